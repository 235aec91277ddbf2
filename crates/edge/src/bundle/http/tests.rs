//! Answers, good and hostile, and how long each may take. Time is paused: it goes on when nothing else does.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep};

use super::*;

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: \"a\"\r\n\r\n";

/// The request as it goes out, then a connection whose other end is `server`'s.
async fn with<F: Future<Output = ()> + Send + 'static>(
    server: impl FnOnce(DuplexStream) -> F,
) -> Result<Answer, String> {
    let (near, far) = tokio::io::duplex(1 << 16);
    let server = tokio::spawn(server(far));
    let super::super::BundleSource::Http(url) = "http://Static.example:80/b?edge=e".parse().unwrap() else {
        panic!("it is a file")
    };
    let asked = request(&url, &[("prefer", "wait=30".into()), ("if-none-match", "\"a\"".into())]).unwrap();
    let answer = exchange(near, asked).await;
    server.abort();
    answer
}

async fn read_request(far: &mut DuplexStream) -> String {
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") {
        request.push(char::from(far.read_u8().await.unwrap()));
    }
    request
}

/// An answer of these bytes, after which the connection ends.
async fn to(bytes: impl Into<Vec<u8>>) -> Result<Answer, String> {
    let bytes = bytes.into();
    with(async move |mut far| {
        read_request(&mut far).await;
        let _ = far.write_all(&bytes).await;
    })
    .await
}

fn document(content: &str, etag: Option<&str>) -> Result<Answer, String> {
    Ok(Answer::Document { content: content.into(), etag: etag.map(str::to_owned) })
}

fn failure(reason: &str) -> Result<Answer, String> {
    Err(reason.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_request_says_who_asks_for_what() {
    let answer = with(async |mut far| {
        let request = read_request(&mut far).await;
        let content = request.replace("\r\n", "\n");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len());
        far.write_all((head + &content).as_bytes()).await.unwrap();
    });
    let expected = format!(
        "GET /b?edge=e HTTP/1.1\nhost: static.example:80\nuser-agent: {AGENT}\nconnection: close\nprefer: wait=30\n\
         if-none-match: \"a\"\n\n"
    );
    assert_eq!(answer.await, document(&expected, None));
}

#[tokio::test(start_paused = true)]
async fn answers_that_mean_something() {
    let ok = "HTTP/1.1 200 OK\r\n";
    assert_eq!(to(format!("{CHUNKED}1\r\na\r\n2\r\nbc\r\n0\r\n\r\n")).await, document("abc", Some("\"a\"")));
    assert_eq!(to("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc").await, document("abc", None));
    assert_eq!(to(format!("{ok}Content-Length: 0\r\n\r\n")).await, document("", None));
    assert_eq!(to("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n").await, Ok(Answer::Unchanged));
    assert_eq!(to("HTTP/1.1 204 No Content\r\n\r\n").await, Ok(Answer::Nothing));
    let after_interim =
        format!("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n{ok}Content-Length: 1\r\n\r\na");
    assert_eq!(to(after_interim).await, document("a", None));
    // Tags that are none, or too long to be remembered.
    for etag in ["a", "\"a", "\"a\", \"b\"", "\"\u{e9}\"", &format!("\"{}\"", "a".repeat(ETAG_BYTES_MAX))] {
        let answer = to(format!("{ok}ETag: {etag}\r\nContent-Length: 1\r\n\r\na")).await;
        assert_eq!(answer, document("a", None), "{etag}");
    }
    assert_eq!(
        to(format!("{ok}ETag: W/\"a\"\r\nContent-Length: 1\r\n\r\na")).await,
        document("a", Some("W/\"a\""))
    );
}

#[tokio::test(start_paused = true)]
async fn other_answers_are_failures() {
    let to_status = async |rest: &str| to(format!("HTTP/1.1 {rest}\r\nContent-Length: 0\r\n\r\n")).await;
    assert_eq!(to_status("404 Not Found").await, failure("it answered 404 Not Found"));
    assert_eq!(to_status("206 Partial Content").await, failure("it answered 206 Partial Content"));
    assert_eq!(
        to_status("302 Found\r\nLocation: http://b/\u{9f}").await,
        failure("it answered 302 Found to \"http://b/\\u{9f}\"; redirects are not followed"),
    );
    for bytes in [
        "",
        "garbage\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ] {
        assert!(to(bytes).await.is_err(), "{bytes:?}");
    }
    assert_eq!(
        to("HTTP/1.1 200 OK\r\n\r\n{").await,
        failure("the answer has no length: its end cannot be told from a break"),
    );
    let endless_head = format!("HTTP/1.1 200 OK\r\n{}", format!("A: {}\r\n", "a".repeat(1000)).repeat(1000));
    let refused = to(endless_head).await.unwrap_err();
    assert!(refused.contains("too large"), "{refused}");
    for broken in ["2\r\na", "nonsense\r\n", "1\r\nabc\r\n0\r\n\r\n", "1\r\na\r\n", "fffffffffffffffff\r\n"] {
        let refused = to(format!("{CHUNKED}{broken}")).await.unwrap_err();
        assert!(refused.starts_with("the answer broke off: "), "{broken:?}: {refused}");
    }
    let refused = to("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab").await.unwrap_err();
    assert!(refused.starts_with("the answer broke off: "), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn what_is_too_long_is_not_read_to_its_end() {
    let too_long = |etag: Option<&str>| Ok(Answer::TooLong { etag: etag.map(str::to_owned) });
    // By what it says, of which nothing is there.
    assert_eq!(to("HTTP/1.1 200 OK\r\nContent-Length: 9437184\r\n\r\n").await, too_long(None));
    let endless = with(async |mut far| {
        read_request(&mut far).await;
        far.write_all(CHUNKED.as_bytes()).await.unwrap();
        let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
        while far.write_all(chunk.as_bytes()).await.is_ok() {}
    });
    assert_eq!(endless.await, too_long(Some("\"a\"")));
    let most = " ".repeat(BYTES_MAX);
    let at_most = to(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES_MAX}\r\n\r\n{most}")).await;
    assert_eq!(at_most, document(&most, None));
}

#[tokio::test(start_paused = true)]
async fn nothing_takes_longer_than_it_may() {
    let begun = Instant::now();
    let silent = with(async |mut far| {
        read_request(&mut far).await;
        sleep(HEAD_TIME_MAX * 2).await;
    });
    assert_eq!(silent.await, failure("no answer came in time"));
    assert_eq!(begun.elapsed(), HEAD_TIME_MAX);

    let begun = Instant::now();
    let interim = with(async |mut far| {
        read_request(&mut far).await;
        while far.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    });
    assert_eq!(interim.await, failure("no answer came in time"));
    assert_eq!(begun.elapsed(), HEAD_TIME_MAX);

    // Held as long as was asked for, then a byte a second.
    let begun = Instant::now();
    let drip = with(async |mut far| {
        read_request(&mut far).await;
        sleep(Duration::from_secs(WAIT_S)).await;
        far.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8000000\r\n\r\n").await.unwrap();
        while far.write_all(b" ").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    });
    assert_eq!(drip.await, failure("the answer's content took too long"));
    assert_eq!(begun.elapsed(), Duration::from_secs(WAIT_S) + CONTENT_TIME_MAX);
}
