//! Server loop of a surface: serves its routes behind the guard until stopped.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::guard::{Guard, Pages, check};

/// Maximum time to finish open responses after `stop` resolves. It is needed because record streams
/// may never end.
const STOP_TIME_MAX: Duration = Duration::from_millis(200);

/// Serves `router` behind the guard until `stop` resolves. The server then accepts no more requests
/// and finishes open responses within 200 ms; responses still open after that are cut off.
///
/// # Errors
///
/// Returns an error if the listener cannot be used by the runtime.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    pages: Pages,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let guard = Guard { listening: listener.local_addr()?, pages };
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (running, stopped) = oneshot::channel::<()>();
    let served = axum::serve(listener, router.layer(from_fn_with_state(guard, check)))
        .with_graceful_shutdown(async { drop(stopped.await) });
    let stop = async {
        stop.await;
        drop(running);
        sleep(STOP_TIME_MAX).await;
    };
    tokio::select! {
        served = served.into_future() => served,
        () = stop => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests {
    use std::collections::HashMap;
    use std::net::Ipv4Addr;

    use axum::extract::Query;
    use axum::routing::{get, post};
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    async fn exchange(request: &str) -> (String, String) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/", get(async |_: Query<HashMap<u8, u8>>| "read"))
            .route("/write", post(async || crate::json(&json!({"written": true}))));
        let (end, ended) = oneshot::channel::<()>();
        let served = tokio::spawn(serve(listener, router, Pages::Own, async { drop(ended.await) }));
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(format!("{request}Connection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        drop(end);
        served.await.unwrap().unwrap();
        let (head, content) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_ascii_lowercase(), content.to_owned())
    }

    #[tokio::test]
    async fn all_errors_have_one_form() {
        for (request, status) in [
            ("GET /?a=b HTTP/1.1\r\nHost: localhost\r\n", "400 bad request"),
            ("GET /nothing HTTP/1.1\r\nHost: localhost\r\n", "404 not found"),
            ("DELETE / HTTP/1.1\r\nHost: localhost\r\n", "405 method not allowed"),
            ("GET / HTTP/1.1\r\nHost: evil.example\r\n", "421 misdirected request"),
            ("POST /write HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n", "403 forbidden"),
        ] {
            let (head, content) = exchange(request).await;
            assert!(head.starts_with(&format!("http/1.1 {status}\r\n")), "{head}");
            assert!(head.contains("\r\ncache-control: no-store"), "{head}");
            assert!(head.contains("\r\ncontent-type: application/json"), "{head}");
            let content: Value = serde_json::from_str(&content).unwrap();
            assert!(content["error"].as_str().is_some_and(|error| !error.is_empty()), "{content}");
        }
        let (head, _) = exchange("DELETE / HTTP/1.1\r\nHost: localhost\r\n").await;
        assert!(head.contains("\r\nallow: get,head\r\n"), "{head}");
        let own = "POST /write HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:1\r\n";
        assert_eq!(exchange(own).await.1, r#"{"written":true}"#);
    }
}
