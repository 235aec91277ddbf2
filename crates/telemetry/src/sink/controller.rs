//! The controller: each batch one POST of protobuf, over a connection that is kept.
//!
//! Records that go there are not kept for good: the controller makes windows of them, and what is in none that is open is of no use to
//! it. Those that come again it drops, by their numbers.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use thalweg_record::{Batch, Source};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use url::Url;
use url::form_urlencoded::byte_serialize;

use crate::{Error, Sink, SinkError};

/// How long a request may take, with the connection that it may need.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The sink.
#[derive(Debug)]
pub struct ControllerSink {
    /// Host and port.
    authority: String,
    connection: Option<SendRequest<Full<Bytes>>>,
    /// There until the drop.
    runtime: Option<Runtime>,
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

impl ControllerSink {
    /// The controller at a URL, `http://HOST:PORT`; nothing is sent yet.
    ///
    /// # Errors
    /// When it is no such URL, or the system gives no runtime.
    pub fn at(url: &str) -> Result<Self, Error> {
        let refused = || Error::refused(format!("not a controller's URL: {url:?}; write http://HOST:PORT"));
        let parsed = Url::parse(url).map_err(|_| refused())?;
        let host = parsed.host_str().ok_or_else(refused)?;
        let is_plain = parsed.scheme() == "http" && parsed.path() == "/" && parsed.query().is_none();
        if !is_plain || !parsed.username().is_empty() {
            return Err(refused());
        }
        // A thread of its own, so that a connection that the controller closes between two batches is seen to be closed.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|cause| Error::of("cannot start a runtime", cause))?;
        let authority = format!("{host}:{}", parsed.port_or_known_default().unwrap_or(80));
        Ok(Self { authority, connection: None, runtime: Some(runtime) })
    }

    /// Asks, and gives the position that is answered.
    fn ask(&mut self, method: &Method, target: &str, content: &Bytes) -> Result<Option<u64>, SinkError> {
        let Self { authority, connection, runtime } = self;
        let runtime = runtime.as_ref().expect("it is there until the drop");
        let asked = async {
            tokio::time::timeout(ATTEMPT_TIMEOUT, ask(authority, connection, method, target, content))
                .await
                .unwrap_or_else(|late| Err((true, late.into())))
        };
        runtime.block_on(asked).map_err(|(is_passing, cause)| {
            self.connection = None;
            SinkError {
                what: format!("the controller at {} takes nothing", self.authority),
                is_passing,
                cause,
            }
        })
    }
}

/// One request; an error says whether it may pass by itself.
async fn ask(
    authority: &str,
    connection: &mut Option<SendRequest<Full<Bytes>>>,
    method: &Method,
    target: &str,
    content: &Bytes,
) -> Result<Option<u64>, (bool, Cause)> {
    let passing = |cause: Cause| (true, cause);
    let sender = match connection {
        Some(sender) if !sender.is_closed() => sender,
        none => none.insert(connect(authority).await.map_err(passing)?),
    };
    let request = Request::builder().method(method).uri(target).header(HOST, authority);
    let request = request.header(CONTENT_TYPE, "application/x-protobuf").body(Full::new(content.clone()));
    let request = request.map_err(|error| (false, error.into()))?;
    sender.ready().await.map_err(|error| passing(error.into()))?;
    let response = sender.send_request(request).await.map_err(|error| passing(error.into()))?;
    let status = response.status();
    let answer = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(passing)?;
    let answer: Value = serde_json::from_slice(&answer.to_bytes()).unwrap_or_default();
    if status != StatusCode::OK {
        let why = answer["error"].as_str().unwrap_or("it does not say why").to_owned();
        return Err((status.is_server_error(), format!("{status}: {why}").into()));
    }
    Ok(answer["position"].as_u64())
}

async fn connect(authority: &str) -> Result<SendRequest<Full<Bytes>>, Cause> {
    let socket = TcpStream::connect(authority).await?;
    let (sender, connection) = handshake(TokioIo::new(socket)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

impl Sink for ControllerSink {
    fn name(&self) -> &'static str {
        "controller"
    }

    fn position(&mut self, source: &Source) -> Result<Option<u64>, SinkError> {
        let host: String = byte_serialize(source.host.as_bytes()).collect();
        let target = format!("/position?host={host}&epoch={}", source.epoch);
        self.ask(&Method::GET, &target, &Bytes::new())
    }

    fn keep(&mut self, batch: &Batch) -> Result<(), SinkError> {
        let mut content = Vec::new();
        batch.encode(&mut content);
        let position = self.ask(&Method::POST, "/records", &content.into())?;
        let last = batch.entries.last().map_or(0, |last| last.number);
        if position.is_some_and(|position| position > last) {
            return Ok(());
        }
        // Whoever answers there is no controller, or not one that has these.
        Err(SinkError {
            what: format!("the controller at {} has not taken what it was given", self.authority),
            is_passing: false,
            cause: format!("it tells position {position:?} after record {last}").into(),
        })
    }
}

/// Without waiting: where a start fails this is dropped on a thread of another runtime, which must not block.
impl Drop for ControllerSink {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_checked() {
        for (good, authority) in [
            ("http://controller.example:8083", "controller.example:8083"),
            ("http://[::1]:8083/", "[::1]:8083"),
            ("http://controller", "controller:80"),
        ] {
            assert_eq!(ControllerSink::at(good).unwrap().authority, authority);
        }
        for bad in ["controller:8083", "https://x", "http://x/path", "http://x/?a", "http://a:b@x"] {
            assert!(ControllerSink::at(bad).is_err(), "{bad}");
        }
    }
}
