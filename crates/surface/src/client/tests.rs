//! Client tests: valid responses, broken responses, and each limit.

use std::net::SocketAddr;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::*;

/// A time limit that is short, to keep the tests fast.
const SHORT: Duration = Duration::from_millis(150);
const BYTES_MAX: usize = 1000;

/// Returns limits with a small maximum size and otherwise generous values.
fn limits() -> Limits {
    Limits { content_bytes_max: BYTES_MAX, ..Limits::default() }
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") {
        request.push(char::from(stream.read_u8().await.unwrap()));
    }
    request
}

fn request(addr: SocketAddr) -> Request<Bytes> {
    Request::get(format!("http://{addr}/a?b")).body(Bytes::new()).unwrap()
}

/// Sends a request to a server that runs `serve` on each connection. Returns the complete response,
/// or the error message with the URL replaced by `URL`.
async fn request_from<F: Future<Output = ()> + Send + 'static>(
    limits: Limits,
    mut serve: impl FnMut(TcpStream) -> F + Send + 'static,
) -> Result<String, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        loop {
            serve(listener.accept().await.unwrap().0).await;
        }
    });
    let answer = async { Client::new(limits).send(request(addr)).await?.into_body().whole().await };
    let answer = answer.await.map(|content| String::from_utf8_lossy(&content).into_owned());
    server.abort();
    answer.map_err(|error| {
        let causes = std::iter::successors(std::error::Error::source(&error), |error| error.source());
        let text = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
        assert!(text.contains(&format!("http://{addr}/a?b")), "{text}");
        text.replace(&format!("http://{addr}/a?b"), "URL")
    })
}

/// Returns the result of a request to a server that sends `bytes` and then closes the connection.
async fn result_of(bytes: &str) -> Result<String, String> {
    let bytes = bytes.to_owned();
    request_from(limits(), move |mut stream| {
        let bytes = bytes.clone();
        async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(bytes.as_bytes()).await;
        }
    })
    .await
}

#[tokio::test]
async fn valid_responses_are_read_and_broken_ones_reported() {
    let ok = |rest: &str| format!("HTTP/1.1 200 OK\r\n{rest}");
    let chunked = |rest: &str| ok(&format!("Transfer-Encoding: chunked\r\n\r\n{rest}"));
    assert_eq!(result_of(&ok("Content-Length: 3\r\n\r\nabc")).await, Ok("abc".into()));
    assert_eq!(result_of(&chunked("1\r\na\r\n2\r\nbc\r\n0\r\n\r\n")).await, Ok("abc".into()));
    let refused = "HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\na";
    assert_eq!(result_of(refused).await, Ok("a".into()), "every status is a response");
    let unbounded = "response from URL has no length, so a broken connection would go unnoticed";
    assert_eq!(result_of(&ok("\r\nabc")).await, Err(unbounded.into()));
    for broken in [ok("Content-Length: 3\r\n\r\nab"), chunked("2\r\na"), chunked("nonsense\r\n")] {
        let error = result_of(&broken).await.unwrap_err();
        assert!(error.starts_with("response from URL broke off: "), "{error}");
    }
    for none in ["", "garbage\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Le"] {
        let error = result_of(none).await.unwrap_err();
        assert!(error.starts_with("no response from URL: "), "{error}");
    }
    let long_head = ok(&format!("A: {}\r\n", "a".repeat(1000)).repeat(200));
    let error = result_of(&long_head).await.unwrap_err();
    assert!(error.contains("too large"), "{error}");
}

#[tokio::test]
async fn content_length_is_limited() {
    let too_long = Err(format!("response from URL is longer than {BYTES_MAX} bytes"));
    let most = "x".repeat(BYTES_MAX);
    let head = |length| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    assert_eq!(result_of(&(head(BYTES_MAX) + &most)).await, Ok(most));
    assert_eq!(result_of(&head(BYTES_MAX + 1)).await, too_long, "rejected before any content arrives");
    let endless = request_from(limits(), async |mut stream| {
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
        while stream.write_all(b"4\r\nabcd\r\n").await.is_ok() {}
    });
    assert_eq!(endless.await, too_long);
}

#[tokio::test]
async fn every_wait_has_a_limit() {
    let silent = request_from(Limits { head: SHORT, ..limits() }, async |mut stream| {
        read_request(&mut stream).await;
        sleep(Duration::MAX).await;
    });
    assert_eq!(silent.await, Err("no response from URL within 150ms".into()));
    let stalled = request_from(Limits { silence: SHORT, ..limits() }, async |mut stream| {
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na").await.unwrap();
        sleep(Duration::MAX).await;
    });
    assert_eq!(stalled.await, Err("URL sent nothing for 150ms".into()));
    let begun = Instant::now();
    let dripping = request_from(Limits { content: SHORT, ..limits() }, async |mut stream| {
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n").await.unwrap();
        while stream.write_all(b"a").await.is_ok() {
            sleep(SHORT / 10).await;
        }
    });
    assert_eq!(dripping.await, Err("response from URL took longer than 150ms".into()));
    assert!(begun.elapsed() >= SHORT);
}

#[tokio::test]
async fn unreachable_server_is_named() {
    let held = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = held.local_addr().unwrap();
    drop(held);
    let error = Client::new(limits()).send(request(addr)).await.unwrap_err();
    assert!(matches!(error.why, Failure::Unreachable(_)), "{error:?}");
    assert_eq!(error.to_string(), format!("cannot reach http://{addr}/a?b"));
}

#[test]
fn connection_is_kept_for_the_idle_time() {
    for (idle, connections) in [(Some(Duration::from_secs(60)), 1), (None, 2)] {
        let client = Blocking::new(Limits { idle, ..limits() }).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let server = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let accepted = server.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            let (mut accepted, mut requests) = (0, 0);
            while requests < 2 {
                let mut stream = listener.accept().await.unwrap().0;
                accepted += 1;
                while requests < 2
                    && stream.readable().await.is_ok()
                    && stream.peek(&mut [0]).await.unwrap() > 0
                {
                    let request = read_request(&mut stream).await;
                    assert!(request.starts_with("GET /a?b HTTP/1.1\r\n"), "{request}");
                    requests += 1;
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na").await.unwrap();
                }
            }
            accepted
        });
        for _ in 0..2 {
            assert_eq!(client.send(request(addr)).unwrap().body(), "a");
        }
        assert_eq!(server.block_on(accepted).unwrap(), connections);
        server.shutdown_background();
    }
}
