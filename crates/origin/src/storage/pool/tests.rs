//! Tests of the pool against servers that keep, close and delay connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// What a server does with a request.
#[derive(Debug, Clone, Copy)]
enum Act {
    Respond,
    /// Closes the connection without a response.
    Close,
    /// Never responds.
    Hang,
}

/// Starts a server that does `act(connection, request)` with each request; both count from 0.
/// Returns its address and its number of connections.
async fn serve(act: fn(usize, usize) -> Act) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let connection = counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(respond(stream, connection, act));
        }
    });
    (address, count)
}

async fn respond(mut stream: TcpStream, connection: usize, act: fn(usize, usize) -> Act) {
    for request in 0.. {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        match act(connection, request) {
            Act::Respond => {
                let content = format!("{connection}.{request}");
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", content.len());
                stream.write_all(format!("{head}{content}").as_bytes()).await.unwrap();
            }
            Act::Close => return,
            Act::Hang => std::future::pending().await,
        }
    }
}

fn options() -> StorageOptions {
    StorageOptions { connections_max: 4, ..StorageOptions::default() }
}

fn get(address: SocketAddr) -> Request<Bytes> {
    Request::get(format!("http://{address}/a?b")).body(Bytes::new()).unwrap()
}

async fn content(pool: &Pool, address: SocketAddr) -> Result<String, Failure> {
    let response = pool.send(get(address)).await?;
    assert_eq!(response.status(), StatusCode::OK);
    let bytes = response.into_body().collect(100).await?;
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn most_recently_used_connection_is_reused_first() {
    let (address, _) = serve(|_, _| Act::Respond).await;
    let pool = Pool::new(options(), None);
    let [mut a, mut b] = [pool.send(get(address)).await.unwrap(), pool.send(get(address)).await.unwrap()];
    let read = async |content: &mut Content| while content.next().await.unwrap().is_some() {};
    read(b.body_mut()).await;
    read(a.body_mut()).await;
    assert_eq!(content(&pool, address).await.unwrap(), "0.1");
    assert_eq!(content(&pool, address).await.unwrap(), "0.2");
    assert_eq!((pool.stats().opened.get(), pool.stats().reused.get()), (2, 2));
}

#[tokio::test]
async fn reuse_race_is_repeated_on_a_new_connection_and_is_no_failure() {
    let (address, count) = serve(|_, request| if request == 1 { Act::Close } else { Act::Respond }).await;
    let pool = Pool::new(options(), None);
    assert_eq!(content(&pool, address).await.unwrap(), "0.0");
    assert_eq!(content(&pool, address).await.unwrap(), "1.0");
    assert_eq!(pool.stats().races.get(), 1);
    assert_eq!(pool.stats().failed(FailureKind::Closed), 0);
    assert_eq!(count.load(Ordering::SeqCst), 2);
    // A POST may have had an effect, so it is not repeated.
    let mut post = get(address);
    *post.method_mut() = Method::POST;
    assert_eq!(pool.send(post).await.unwrap_err().kind, FailureKind::Closed);
}

#[tokio::test]
async fn new_connection_that_closes_is_a_failure() {
    let (address, count) = serve(|_, _| Act::Close).await;
    let pool = Pool::new(options(), None);
    assert_eq!(content(&pool, address).await.unwrap_err().kind, FailureKind::Closed);
    assert_eq!((pool.stats().races.get(), count.load(Ordering::SeqCst)), (0, 1));
}

#[tokio::test]
async fn waits_have_limits() {
    let (address, _) = serve(|_, _| Act::Hang).await;
    let short = Duration::from_millis(50);
    let first_byte_timeout = Duration::from_millis(500);
    let limits = StorageOptions { connections_max: 1, slot_timeout: short, first_byte_timeout, ..options() };
    let pool = Pool::new(limits, None);
    let (late, refused) = tokio::join!(content(&pool, address), content(&pool, address));
    assert_eq!(late.unwrap_err().kind, FailureKind::FirstByte);
    assert_eq!(refused.unwrap_err().kind, FailureKind::Slot);
    assert_eq!(pool.stats().slot_waits.get(), 1);
    assert!(pool.send_at_once(get(address)).await.unwrap().is_err());
}

#[tokio::test]
async fn idle_connections_are_closed_at_the_limit() {
    let (address, _) = serve(|_, _| Act::Respond).await;
    let pool = Pool::new(StorageOptions { idle: Duration::from_millis(50), ..options() }, None);
    content(&pool, address).await.unwrap();
    assert_eq!((pool.stats().idle.get(), pool.stats().open.get()), (1, 1));
    while pool.stats().open.get() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((pool.stats().expired.get(), pool.stats().idle.get()), (1, 0));
    assert_eq!(pool.stats().closed_idle.get(), 0);
}

#[tokio::test]
async fn unread_response_ends_its_connection() {
    let (address, _) = serve(|_, _| Act::Respond).await;
    let pool = Pool::new(options(), None);
    drop(pool.send(get(address)).await.unwrap());
    assert_eq!(content(&pool, address).await.unwrap(), "1.0");
    assert_eq!(pool.stats().abandoned.get(), 1);
}
