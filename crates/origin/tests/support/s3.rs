//! A real S3 server (versitygw), and a proxy in front of it that injects faults.
#![allow(dead_code, reason = "each test binary uses only some fixtures")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderValue, RANGE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

const KEY: &str = "thalweg-test";
const SECRET: &str = "thalweg-test-secret";
/// Name of the bucket.
pub(crate) const BUCKET: &str = "films";

/// Returns whether the process has the server's credentials. Otherwise, runs the test again in a
/// process that has them: a test cannot change its own environment safely.
pub(crate) fn has_credentials(test: &str) -> bool {
    if std::env::var("AWS_ACCESS_KEY_ID").is_ok_and(|key| key == KEY) {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env("AWS_ACCESS_KEY_ID", KEY);
    command.env("AWS_SECRET_ACCESS_KEY", SECRET).env("AWS_REGION", "us-east-1");
    assert!(command.status().unwrap().success(), "{test} with credentials");
    false
}

/// A running versitygw, stopped when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Directory with the objects of the bucket.
    pub(crate) objects: PathBuf,
}

impl Server {
    pub(crate) fn start() -> Server {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let program = top.join("target/services/bin/versitygw");
        assert!(program.exists(), "{} is missing: run tools/setup test", program.display());
        let root = super::directory("s3");
        let objects = root.join(BUCKET);
        fs::create_dir(&objects).unwrap();
        let address = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new(program);
        command.args(["--keep-alive", "--quiet", "--port", &address.to_string(), "posix"]).arg(root);
        command.env("ROOT_ACCESS_KEY", KEY).env("ROOT_SECRET_KEY", SECRET);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let begun = Instant::now();
        while StdStream::connect(address).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "versitygw does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Server { child, address, objects }
    }

    /// Uploads a file over S3, which gives it an entity tag.
    pub(crate) fn put(&self, file: &Path, key: &str) {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user"]);
        command.arg(format!("{KEY}:{SECRET}")).args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "-T"]);
        command.arg(file).arg(format!("http://{}/{BUCKET}/{key}", self.address));
        assert!(command.status().unwrap().success(), "upload of {key}");
    }

    /// Uploads all files of a directory below a prefix.
    pub(crate) fn put_all(&self, directory: &Path, prefix: &str) {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let key = format!("{prefix}/{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                self.put_all(&entry.path(), &key);
            } else {
                self.put(&entry.path(), &key);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the proxy does to a ranged read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Forwards it unchanged.
    None,
    /// Closes the connection in the middle of the content.
    Reset,
    /// Responds with 503 SlowDown.
    SlowDown,
    /// Responds late.
    Slow(Duration),
    /// Replaces the entity tag.
    WrongEtag,
    /// Sends only half of the range, in a well-formed response.
    Truncated,
}

/// A proxy in front of an S3 server.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    faults: Arc<Mutex<VecDeque<Fault>>>,
    reads: Arc<Mutex<Vec<String>>>,
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

impl Proxy {
    /// Starts a proxy that closes connections that are idle for `idle`.
    pub(crate) async fn start(server: SocketAddr, idle: Duration) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (faults, reads) =
            (Arc::<Mutex<VecDeque<Fault>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let shared = (faults.clone(), reads.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let shared = shared.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let (faults, reads) = shared.clone();
                    async move {
                        let mut fault = Fault::None;
                        if let Some(range) = request.headers().get(RANGE) {
                            let read = format!("{} {}", request.uri().path(), range.to_str().unwrap());
                            reads.lock().unwrap().push(read);
                            fault = faults.lock().unwrap().pop_front().unwrap_or(Fault::None);
                        }
                        Ok::<_, Infallible>(answer(server, request, fault).await)
                    }
                });
                let mut builder = hyper::server::conn::http1::Builder::new();
                builder.timer(TokioTimer::new()).header_read_timeout(idle);
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
            }
        });
        Proxy { address, faults, reads }
    }

    /// Injects faults into the next ranged reads, one each.
    pub(crate) fn inject(&self, faults: &[Fault]) {
        self.faults.lock().unwrap().extend(faults);
    }

    /// Returns the paths and ranges read so far, and forgets them.
    pub(crate) fn take_reads(&self) -> Vec<String> {
        std::mem::take(&mut *self.reads.lock().unwrap())
    }
}

async fn answer(server: SocketAddr, request: Request<Incoming>, fault: Fault) -> Response<Body> {
    let full = |bytes: Bytes| Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
    if fault == Fault::SlowDown {
        let content =
            "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>";
        return Response::builder()
            .status(StatusCode::SERVICE_UNAVAILABLE)
            .body(full(content.into()))
            .unwrap();
    }
    if let Fault::Slow(delay) = fault {
        tokio::time::sleep(delay).await;
    }
    let stream = TcpStream::connect(server).await.unwrap();
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let (mut head, content) = client.send_request(request).await.unwrap().into_parts();
    let content = content.collect().await.unwrap().to_bytes();
    let half = content.slice(..content.len() / 2);
    match fault {
        Fault::Reset => {
            let broken = std::io::Error::other("injected");
            // hyper discards bytes that are not yet sent when the content fails.
            let failed = futures_util::stream::once(async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Err(broken)
            });
            let sent = futures_util::stream::iter([Ok(Frame::data(half))]);
            let pieces = futures_util::StreamExt::chain(sent, failed);
            return Response::from_parts(head, StreamBody::new(pieces).boxed_unsync());
        }
        Fault::WrongEtag => {
            head.headers.insert(ETAG, HeaderValue::from_static("\"0123\""));
        }
        Fault::Truncated => {
            let range = head.headers[CONTENT_RANGE].to_str().unwrap().to_owned();
            let (start, total) = (range[6..].split_once('-').unwrap().0, range.split_once('/').unwrap().1);
            let start: usize = start.parse().unwrap();
            let range = format!("bytes {start}-{}/{total}", start + half.len() - 1);
            head.headers.insert(CONTENT_RANGE, range.parse().unwrap());
            head.headers.insert(CONTENT_LENGTH, half.len().into());
            return Response::from_parts(head, full(half));
        }
        Fault::None | Fault::Slow(_) | Fault::SlowDown => {}
    }
    Response::from_parts(head, full(content))
}
