//! Test fixtures: an origin on free ports, an HTTP client, ffmpeg and ffprobe.
#![allow(dead_code, reason = "each test binary uses only some fixtures")]

pub(crate) mod nginx;
pub(crate) mod s3;

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use thalweg_origin::{Config, Ingest, IngestToken, Origin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running origin, stopped when dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) ingest: SocketAddr,
    pub(crate) admin: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Running {
    /// Starts an origin on free ports.
    pub(crate) fn start(config: Config) -> Running {
        Running::start_with_token(config, None)
    }

    /// Starts an origin with an ingest token on free ports.
    pub(crate) fn start_with_token(config: Config, token: Option<IngestToken>) -> Running {
        let listen = ([127, 0, 0, 1], 0).into();
        let ingest = Ingest::new(listen, token).ok();
        let origin = Origin::bind(Config { listen, ingest, admin: Some(listen), ..config }).unwrap();
        let (address, ingest) = (origin.local_addr(), origin.ingest_addr().unwrap());
        let admin = origin.admin_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(origin.run(async move { drop(stopped.await) }));
        Running { address, ingest, admin, stop: Some(stop), task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address_of(path))
    }

    /// Returns the address of the listener that serves `path`.
    fn address_of(&self, path: &str) -> SocketAddr {
        if path.starts_with("/ingest/") { self.ingest } else { self.address }
    }

    /// Stops the origin as a signal would, and waits for it to end.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.task.await.unwrap().unwrap();
    }

    /// Sends a GET and returns the complete response.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[]).await
    }

    /// Sends a GET, requires success, and returns the response's text.
    pub(crate) async fn text(&self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        answer.text()
    }

    pub(crate) async fn request(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.request_at(self.address_of(path), method, path, fields).await
    }

    /// Sends a request to the given listener, whatever the path.
    pub(crate) async fn request_at(
        &self,
        address: SocketAddr,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> Answer {
        let body = Empty::new().map_err(|never| match never {}).boxed();
        Answer::of(send(address, method, path, fields, body).await).await
    }

    pub(crate) async fn put(&self, path: &str, content: impl Into<Bytes>) -> Answer {
        let body = Full::new(content.into()).map_err(|never| match never {}).boxed();
        Answer::of(self.send("PUT", path, &[], body).await).await
    }

    /// Starts an upload to be fed piece by piece; the returned handle resolves to the response.
    pub(crate) fn upload(&self, path: &str) -> (Sender<Bytes, std::io::Error>, JoinHandle<Answer>) {
        let (sender, body) = Channel::new(1);
        let address = self.address_of(path);
        let path = path.to_owned();
        let answer =
            tokio::spawn(
                async move { Answer::of(send(address, "PUT", &path, &[], body.boxed()).await).await },
            );
        (sender, answer)
    }

    /// Starts an upload and waits until the origin reads it, as shown by its `100 Continue` (RFC
    /// 9110 §10.1.1).
    pub(crate) async fn begun_upload(&self, path: &str) -> BegunUpload {
        let mut stream = TcpStream::connect(self.ingest).await.unwrap();
        let fields = "host: o\r\nconnection: close\r\nexpect: 100-continue\r\ntransfer-encoding: chunked";
        stream.write_all(format!("PUT {path} HTTP/1.1\r\n{fields}\r\n\r\n").as_bytes()).await.unwrap();
        let mut begun = [0; 25];
        stream.read_exact(&mut begun).await.unwrap();
        assert_eq!(begun, *b"HTTP/1.1 100 Continue\r\n\r\n");
        BegunUpload(stream)
    }

    /// Sends a GET and returns the response head, with the content unread.
    pub(crate) async fn open(&self, path: &str) -> Response<Incoming> {
        self.send("GET", path, &[], Empty::new().map_err(|never| match never {}).boxed()).await
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: Body,
    ) -> Response<Incoming> {
        send(self.address_of(path), method, path, fields, body).await
    }
}

/// An upload that the origin is reading.
pub(crate) struct BegunUpload(TcpStream);

impl BegunUpload {
    /// Sends `content`, and ends the upload if `last`.
    pub(crate) async fn send(&mut self, content: &[u8], last: bool) {
        let mut chunk = format!("{:x}\r\n", content.len()).into_bytes();
        chunk.extend_from_slice(content);
        chunk.extend_from_slice(if last { b"\r\n0\r\n\r\n" } else { b"\r\n" });
        self.0.write_all(&chunk).await.unwrap();
    }

    /// Waits for the response and returns its status code.
    pub(crate) async fn status(mut self) -> String {
        let mut answer = String::new();
        self.0.read_to_string(&mut answer).await.unwrap();
        answer.strip_prefix("HTTP/1.1 ").unwrap()[..3].to_owned()
    }
}

type Body = BoxBody<Bytes, std::io::Error>;

async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: Body,
) -> Response<Incoming> {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", address.to_string());
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    client.send_request(request.body(body).unwrap()).await.unwrap()
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) content: Bytes,
}

impl Answer {
    async fn of(response: Response<Incoming>) -> Answer {
        let (head, content) = response.into_parts();
        let content = content.collect().await.unwrap().to_bytes();
        Answer { status: head.status, fields: head.headers, content }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).trim_end().to_owned()
    }

    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", |v| v.to_str().unwrap())
    }
}

/// Creates a new, empty directory for the test.
pub(crate) fn directory(name: &str) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let unique = format!("{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Runs ffmpeg with space-separated arguments and `output` last.
pub(crate) fn ffmpeg(arguments: &str, output: impl AsRef<OsStr>) {
    let mut command = ffmpeg_command(arguments, output);
    let run = command.stderr(Stdio::piped()).output().expect("ffmpeg is installed");
    assert!(run.status.success(), "ffmpeg {arguments}: {}", String::from_utf8_lossy(&run.stderr));
}

pub(crate) fn ffmpeg_command(arguments: &str, output: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-loglevel", "error", "-y"]).args(arguments.split_whitespace()).arg(output);
    command.stdin(Stdio::null());
    command
}

/// Runs ffprobe on `input` with space-separated arguments; returns its output.
pub(crate) async fn ffprobe(arguments: &str, input: &str) -> String {
    let mut command = Command::new("ffprobe");
    command.args(["-loglevel", "error"]).args(arguments.split_whitespace()).arg(input);
    let run = tokio::task::spawn_blocking(move || command.output().expect("ffprobe is installed"));
    let run = run.await.unwrap();
    assert!(run.status.success(), "ffprobe {input}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

/// ffmpeg flags for one CMAF track with chunks of 0.5 s.
pub(crate) const CMAF: &str =
    "-f mp4 -movflags +cmaf+empty_moov+default_base_moof+frag_keyframe -frag_duration 500000";
/// ffmpeg flags for tiny video with a key frame every two seconds and no B-frames.
pub(crate) const VIDEO: &str =
    "-an -c:v libx264 -preset ultrafast -bf 0 -g 50 -keyint_min 50 -sc_threshold 0 -pix_fmt yuv420p";

/// Creates a video track of `seconds`.
pub(crate) fn make_video(path: &Path, size: &str, seconds: f64) {
    let input = format!("-f lavfi -i testsrc2=size={size}:rate=25 -t {seconds} {VIDEO} {CMAF}");
    ffmpeg(&input, path);
}

/// Creates an audio track of `seconds`.
pub(crate) fn make_audio(path: &Path, seconds: f64) {
    let input = format!("-f lavfi -i sine=440:sample_rate=48000 -t {seconds} -vn -c:a aac -b:a 64k {CMAF}");
    ffmpeg(&input, path);
}

/// Creates a media directory with presentation `a`: two sizes of video, one audio, `seconds` long.
pub(crate) fn make_media(seconds: f64) -> PathBuf {
    let media = directory("media");
    let a = media.join("a");
    std::fs::create_dir(&a).unwrap();
    make_video(&a.join("video_90.mp4"), "160x90", seconds);
    make_video(&a.join("video_180.mp4"), "320x180", seconds);
    make_audio(&a.join("audio.mp4"), seconds);
    media
}
