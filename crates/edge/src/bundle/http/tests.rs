//! Bundle request tests, with valid and hostile replies. Time limits are tested with the HTTP
//! client.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: \"a\"\r\n\r\n";

/// Requests a bundle from a server that handles the connection with `serve`. In failures, `URL`
/// replaces the server's URL.
async fn with<F: Future<Output = ()> + Send + 'static>(
    serve: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> Result<Reply, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { serve(listener.accept().await.unwrap().0).await });
    let super::super::BundleSource::Http(url) = format!("http://{addr}/b?edge=e").parse().unwrap() else {
        panic!("not a URL")
    };
    let fields = [("prefer", "wait=30".into()), ("if-none-match", "\"a\"".into())];
    let answer =
        request_bundle(&client(None), &BundleServer { url: url.clone(), token: None, tls: None }, &fields)
            .await;
    server.abort();
    answer.map_err(|reason| reason.replace(&url.to_string(), "URL"))
}

async fn read_request(far: &mut TcpStream) -> String {
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") {
        request.push(char::from(far.read_u8().await.unwrap()));
    }
    request
}

/// Requests a bundle from a server that sends `bytes` and closes the connection.
async fn to(bytes: impl Into<Vec<u8>>) -> Result<Reply, String> {
    let bytes = bytes.into();
    with(async move |mut far| {
        read_request(&mut far).await;
        let _ = far.write_all(&bytes).await;
    })
    .await
}

fn document(content: &str, etag: Option<&str>) -> Result<Reply, String> {
    Ok(Reply::Document { content: content.into(), etag: etag.map(str::to_owned) })
}

fn failure(reason: &str) -> Result<Reply, String> {
    Err(reason.to_owned())
}

#[tokio::test]
async fn request_identifies_edge_and_known_bundles() {
    let answer = with(async |mut far| {
        let request = read_request(&mut far).await;
        let content = request.replace("\r\n", "\n");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len());
        far.write_all((head + &content).as_bytes()).await.unwrap();
    });
    let Ok(Reply::Document { content, .. }) = answer.await else { panic!("not a document") };
    let content = String::from_utf8(content).unwrap();
    let mut lines: Vec<_> = content.lines().filter(|line| !line.starts_with("host: 127.0.0.1:")).collect();
    lines.sort_unstable();
    let agent = concat!("user-agent: thalweg/", env!("CARGO_PKG_VERSION"));
    assert_eq!(lines, ["", "GET /b?edge=e HTTP/1.1", "if-none-match: \"a\"", "prefer: wait=30", agent]);
}

#[tokio::test]
async fn meaningful_replies_are_accepted() {
    let ok = "HTTP/1.1 200 OK\r\n";
    assert_eq!(to(format!("{CHUNKED}1\r\na\r\n2\r\nbc\r\n0\r\n\r\n")).await, document("abc", Some("\"a\"")));
    assert_eq!(to("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc").await, document("abc", None));
    assert_eq!(to(format!("{ok}Content-Length: 0\r\n\r\n")).await, document("", None));
    assert_eq!(to("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n").await, Ok(Reply::Unchanged));
    assert_eq!(to("HTTP/1.1 204 No Content\r\n\r\n").await, Ok(Reply::Nothing));
    let after_interim =
        format!("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n{ok}Content-Length: 1\r\n\r\na");
    assert_eq!(to(after_interim).await, document("a", None));
    // Entity tags that are invalid or too long to keep.
    for etag in ["a", "\"a", "\"a\", \"b\"", "\"\u{e9}\"", &format!("\"{}\"", "a".repeat(ETAG_BYTES_MAX))] {
        let answer = to(format!("{ok}ETag: {etag}\r\nContent-Length: 1\r\n\r\na")).await;
        assert_eq!(answer, document("a", None), "{etag}");
    }
    assert_eq!(
        to(format!("{ok}ETag: W/\"a\"\r\nContent-Length: 1\r\n\r\na")).await,
        document("a", Some("W/\"a\""))
    );
}

#[tokio::test]
async fn other_replies_are_failures() {
    let to_status = async |rest: &str| to(format!("HTTP/1.1 {rest}\r\nContent-Length: 0\r\n\r\n")).await;
    assert_eq!(to_status("404 Not Found").await, failure("status 404 Not Found"));
    assert_eq!(to_status("206 Partial Content").await, failure("status 206 Partial Content"));
    assert_eq!(
        to_status("302 Found\r\nLocation: http://b/\u{9f}").await,
        failure("status 302 Found, redirect to \"http://b/\\u{9f}\" not followed"),
    );
    let reason = r#"{"error":"this port expects TLS\n"}"#;
    assert_eq!(
        to(format!("HTTP/1.1 400 Bad Request\r\nContent-Length: {}\r\n\r\n{reason}", reason.len())).await,
        failure(r#"status 400 Bad Request: "this port expects TLS\n""#),
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
        failure("response from URL has no length, so a broken connection would go unnoticed"),
    );
    let endless_head = format!("HTTP/1.1 200 OK\r\n{}", format!("A: {}\r\n", "a".repeat(1000)).repeat(1000));
    let refused = to(endless_head).await.unwrap_err();
    assert!(refused.contains("too large"), "{refused}");
    for broken in ["2\r\na", "nonsense\r\n", "1\r\nabc\r\n0\r\n\r\n", "1\r\na\r\n", "fffffffffffffffff\r\n"] {
        let refused = to(format!("{CHUNKED}{broken}")).await.unwrap_err();
        assert!(refused.starts_with("response from URL broke off: "), "{broken:?}: {refused}");
    }
    let refused = to("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab").await.unwrap_err();
    assert!(refused.starts_with("response from URL broke off: "), "{refused}");
}

#[tokio::test]
async fn overlong_content_is_not_read_completely() {
    let too_long = |etag: Option<&str>| Ok(Reply::TooLong { etag: etag.map(str::to_owned) });
    // The declared length alone is too long.
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
