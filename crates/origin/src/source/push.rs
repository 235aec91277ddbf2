//! Uploads of one track: a long PUT with chunked transfer coding, in which each chunk is sent at
//! its live time.
//!
//! **Invariant:** live time advances regardless of the connection. After an upload fails, the next
//! one begins with the CMAF header and the next chunk that starts with a sync sample.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::TokioExecutor;
use tokio::time::{sleep, sleep_until, timeout};

use super::media::Track;
use super::retime::{LiveTime, retime};
use super::timeline::{Clock, Position};
use super::{PublishingPoint, Stop};

/// Pause between the end of one upload and the start of the next.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long the origin may stop reading before the upload is abandoned and restarted.
const STALL_MAX: Duration = Duration::from_secs(5);

/// How long to wait for the response after an upload has ended.
const RESPONSE_MAX: Duration = Duration::from_secs(1);

/// Maximum body frames queued for the connection.
const FRAMES_QUEUED: usize = 4;

/// Maximum bytes read from an error response.
const RESPONSE_BYTES_MAX: usize = 4 << 10;

/// Reasons for an upload to fail.
#[derive(Debug)]
enum Failure {
    /// The origin cannot be reached, or the connection failed.
    Client(legacy::Error),
    /// The origin's error response, with its reason.
    Refused(StatusCode, String),
    /// The origin reported success before the upload ended.
    Early,
    /// The connection was closed.
    Closed,
    /// The origin read nothing for [`STALL_MAX`].
    Stalled,
    /// The track's file cannot be read.
    Read(io::Error),
    /// A chunk's times cannot be rewritten.
    Chunk(thalweg_media::error::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Client(error) => error.fmt(f),
            Failure::Refused(status, reason) => write!(f, "origin responded {status}: {reason}"),
            Failure::Early => f.write_str("origin responded before the upload ended"),
            Failure::Closed => f.write_str("connection closed"),
            Failure::Stalled => write!(f, "origin read nothing for {STALL_MAX:?}"),
            Failure::Read(error) => error.fmt(f),
            Failure::Chunk(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Failure::Client(error) => error.source(),
            _ => None,
        }
    }
}

/// Pushes a track until stopped, and restarts the upload after each failure.
pub(super) async fn run(track: Track, clock: Clock, to: Arc<PublishingPoint>, mut stop: Stop) {
    loop {
        let Err(failure) = upload(&track, &clock, &to, stop.clone()).await else { return };
        tracing::warn!(
            track = track.name,
            to = %to.uri,
            failure = &failure as &dyn std::error::Error,
            "upload failed, retrying"
        );
        tokio::select! {
            () = sleep(RETRY_PAUSE) => {}
            () = stop.requested() => return,
        }
    }
}

/// Runs one upload on its own connection until it is stopped or fails.
async fn upload(track: &Track, clock: &Clock, to: &PublishingPoint, stop: Stop) -> Result<(), Failure> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let (body, channel) = Channel::<Bytes>::new(FRAMES_QUEUED);
    let uri = format!("{}/Streams({})", to.uri.to_string().trim_end_matches('/'), track.name);
    let mut request = Request::put(uri).header(CONTENT_TYPE, track.content_type());
    if let Some(token) = &to.token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.text()));
    }
    let request = request.body(channel).expect("a valid URI and token make a valid request");
    let response = client.request(request);
    tokio::pin!(response);
    tracing::info!(track = track.name, to = %to.uri, "upload begins");

    let sent = tokio::select! {
        sent = send(track, clock, body, stop) => sent,
        early = &mut response => {
            check_response(early.map_err(Failure::Client)?).await?;
            return Err(Failure::Early);
        }
    };
    // An origin that refuses an upload often responds and closes the connection at once; only the
    // response states the reason.
    match timeout(RESPONSE_MAX, response).await {
        Ok(Ok(answered)) => check_response(answered).await.and(sent),
        Ok(Err(_)) | Err(_) => sent,
    }
}

/// Sends the header, then each chunk at its live time, until stopped.
async fn send(track: &Track, clock: &Clock, mut body: Sender<Bytes>, mut stop: Stop) -> Result<(), Failure> {
    let table = track.table();
    send_frame(&mut body, track.header.clone()).await?;
    let mut position = clock.timeline.next_start(table, clock.elapsed());
    loop {
        let location = table.chunks[position.index];
        let begin = clock.timeline.begin(table, position);
        let end = begin + location.decode_end() - location.decode_time;
        tokio::select! {
            () = sleep_until(clock.instant(end, table.per_s)) => {}
            () = stop.requested() => return Ok(()),
        }
        for part in live_chunk(track, clock, position, begin).await? {
            send_frame(&mut body, part).await?;
        }
        position = position.next(table);
    }
}

async fn live_chunk(
    track: &Track,
    clock: &Clock,
    position: Position,
    begin: u64,
) -> Result<[Bytes; 2], Failure> {
    let table = track.table();
    let chunk = track.read(table.chunks[position.index]).await.map_err(Failure::Read)?;
    let time = LiveTime {
        sequence_number: position.sequence_number(table),
        decode_time: begin,
        captured: clock.utc(begin, table.per_s),
    };
    retime(&chunk.bytes, track.info.track_id, time).map_err(Failure::Chunk)
}

async fn send_frame(body: &mut Sender<Bytes>, bytes: Bytes) -> Result<(), Failure> {
    match timeout(STALL_MAX, body.send_data(bytes)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Failure::Closed),
        Err(_) => Err(Failure::Stalled),
    }
}

/// Returns an error with the status and the origin's reason, unless the status is a success.
async fn check_response(response: Response<Incoming>) -> Result<(), Failure> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let reason =
        match timeout(RESPONSE_MAX, Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect()).await {
            Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).trim().to_owned(),
            Ok(Err(_)) | Err(_) => String::new(),
        };
    Err(Failure::Refused(status, reason))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::expect;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::watch;

    use super::super::timeline::Timeline;
    use super::super::{Clock, media};
    use super::*;
    use crate::live::ingest::permit::IngestToken;

    /// Loads the sample's audio track and starts its clock now.
    fn audio_track() -> (Track, Clock) {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/sample");
        let tracks = media::load(&sample).unwrap();
        let track = tracks.into_iter().find(|track| track.name == "audio.cmfa").unwrap();
        let clock = Clock::start(Timeline::of([track.table()].into_iter()));
        (track, clock)
    }

    async fn read_until(stream: &mut TcpStream, end: &[u8]) -> String {
        let mut read = Vec::new();
        while !read.ends_with(end) {
            read.push(stream.read_u8().await.unwrap());
        }
        String::from_utf8_lossy(&read).into_owned()
    }

    /// Uploads to a server that handles the connection with `serve`; returns the upload's result.
    async fn upload_to(
        stopped: watch::Receiver<()>,
        serve: impl AsyncFnOnce(TcpStream) -> (),
    ) -> Result<(), Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/ingest/a/", listener.local_addr().unwrap()).parse().unwrap();
        let to = PublishingPoint { uri, token: IngestToken::new("0123456789abcdef") };
        let (track, clock) = audio_track();
        let served = async { serve(listener.accept().await.unwrap().0).await };
        tokio::join!(upload(&track, &clock, &to, Stop(stopped)), served).0
    }

    #[tokio::test]
    async fn upload_ends_cleanly_on_stop() {
        let (running, stopped) = watch::channel(());
        let outcome = upload_to(stopped, async |mut stream| {
            let head = read_until(&mut stream, b"\r\n\r\n").await;
            assert!(head.starts_with("PUT /ingest/a/Streams(audio.cmfa) HTTP/1.1\r\n"), "{head}");
            for field in [
                "\r\ncontent-type: audio/mp4\r\n",
                "\r\nauthorization: Bearer 0123456789abcdef\r\n",
                "\r\nhost: 127.0.0.1:",
                "\r\ntransfer-encoding: chunked\r\n",
            ] {
                assert!(head.contains(field), "{head}");
            }
            read_until(&mut stream, b"moof").await;
            drop(running);
            read_until(&mut stream, b"\r\n0\r\n\r\n").await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        });
        outcome.await.unwrap();
    }

    #[tokio::test]
    async fn refusal_carries_the_origins_reason() {
        let (_running, stopped) = watch::channel(());
        let outcome = upload_to(stopped, async |mut stream| {
            read_until(&mut stream, b"\r\n\r\n").await;
            let refusal = b"HTTP/1.1 415 Unsupported Media Type\r\nContent-Length: 12\r\n\r\nunsupported\n";
            stream.write_all(refusal).await.unwrap();
        });
        expect!["origin responded 415 Unsupported Media Type: unsupported"]
            .assert_eq(&outcome.await.unwrap_err().to_string());
    }

    #[tokio::test]
    async fn broken_connection_is_a_failure() {
        let (_running, stopped) = watch::channel(());
        let outcome = upload_to(stopped, async |mut stream| {
            read_until(&mut stream, b"moof").await;
        });
        assert!(outcome.await.is_err());
    }
}
