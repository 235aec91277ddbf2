//! One track's uploads: a long PUT with chunked transfer coding, a chunk the moment it is due.
//!
//! **Invariant:** live time goes on whatever the connection does. An upload that breaks is followed by another, which
//! begins with the CMAF header and the next chunk that decoding can start with.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{sleep, sleep_until, timeout};

use super::media::Track;
use super::retime::{LiveTime, retime};
use super::timeline::{Clock, Position};
use crate::shutdown::Shutdown;

/// Between the end of one upload and the start of the next.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long the origin may take nothing before the upload is given up and begun anew.
const STALL_MAX: Duration = Duration::from_secs(5);

/// How long to wait for the answer once an upload has ended.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Frames between the track and its connection.
const FRAMES_QUEUED: usize = 4;

/// Most of an error's answer that is read.
const ANSWER_BYTES_MAX: usize = 4 << 10;

/// Pushes a track until `shutdown`.
pub(super) async fn run(track: Track, clock: Clock, to: Arc<Uri>, shutdown: Shutdown) {
    loop {
        let Err(failure) = upload(&track, &clock, &to, shutdown.clone()).await else { return };
        tracing::warn!(track = track.name, to = %to, failure = format!("{failure:#}"), "upload broke off");
        tokio::select! {
            () = sleep(RETRY_PAUSE) => {}
            () = shutdown.clone().asked() => return,
        }
    }
}

/// One upload, until `shutdown` or a failure.
async fn upload(track: &Track, clock: &Clock, to: &Uri, shutdown: Shutdown) -> anyhow::Result<()> {
    let authority = to.authority().context("the publishing point has no host")?;
    let port = authority.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((authority.host().trim_matches(['[', ']']), port))
        .await
        .context("cannot connect")?;
    stream.set_nodelay(true)?;
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);

    let (body, channel) = Channel::<Bytes>::new(FRAMES_QUEUED);
    let path = format!("{}/Streams({})", to.path().trim_end_matches('/'), track.name);
    let request = Request::put(&path)
        .header(HOST, authority.as_str())
        .header(CONTENT_TYPE, track.content_type())
        .body(channel)?;
    let answer = client.send_request(request);
    tokio::pin!(answer);
    tracing::info!(track = track.name, to = %to, "upload begins");

    let sent = tokio::select! {
        sent = send(track, clock, body, shutdown) => sent,
        early = &mut answer => {
            judge(early?).await?;
            bail!("the origin answered before the upload's end");
        }
    };
    // A refusal and the end of the connection come together: the refusal has the reason.
    let outcome = match timeout(ANSWER_MAX, answer).await {
        Ok(Ok(answered)) => judge(answered).await.and(sent),
        Ok(Err(_)) | Err(_) => sent,
    };
    connection.abort();
    outcome
}

/// Sends the header and each chunk when it is due, until `shutdown`.
async fn send(
    track: &Track,
    clock: &Clock,
    mut body: Sender<Bytes>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let table = track.table();
    put(&mut body, track.header.clone()).await?;
    let mut position = clock.timeline.next_start(table, clock.elapsed());
    loop {
        let place = table.chunks[position.index];
        let begin = clock.timeline.begin(table, position);
        let end = begin + place.decode_end() - place.decode_time;
        tokio::select! {
            () = sleep_until(clock.instant(end, table.per_s)) => {}
            () = shutdown.clone().asked() => return Ok(()),
        }
        for part in live_chunk(track, clock, position, begin).await? {
            put(&mut body, part).await?;
        }
        position = position.next(table);
    }
}

async fn live_chunk(
    track: &Track,
    clock: &Clock,
    position: Position,
    begin: u64,
) -> anyhow::Result<[Bytes; 2]> {
    let table = track.table();
    let chunk = track.read(table.chunks[position.index]).await?;
    let time = LiveTime {
        sequence_number: position.sequence_number(table),
        decode_time: begin,
        captured: clock.utc(begin, table.per_s),
    };
    Ok(retime(&chunk.bytes, track.info.track_id, time)?)
}

async fn put(body: &mut Sender<Bytes>, bytes: Bytes) -> anyhow::Result<()> {
    match timeout(STALL_MAX, body.send_data(bytes)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => bail!("the connection was closed"),
        Err(_) => bail!("the origin took nothing for {} s", STALL_MAX.as_secs()),
    }
}

/// An answer of success, or the refusal with its reason.
async fn judge(response: Response<Incoming>) -> anyhow::Result<()> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let reason =
        match timeout(ANSWER_MAX, Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect()).await {
            Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).trim().to_owned(),
            Ok(Err(_)) | Err(_) => String::new(),
        };
    bail!("answered {status}: {reason}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::expect;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::timeline::Timeline;
    use super::super::{Clock, media};
    use super::*;
    use crate::shutdown;

    /// The sample's sound, live from now.
    fn sound() -> (Track, Clock) {
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

    /// Uploads to a server that does `serve` with the connection; what came of it.
    async fn upload_to(shutdown: Shutdown, serve: impl AsyncFnOnce(TcpStream) -> ()) -> anyhow::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = format!("http://{}/ingest/a/", listener.local_addr().unwrap()).parse().unwrap();
        let (track, clock) = sound();
        let served = async { serve(listener.accept().await.unwrap().0).await };
        tokio::join!(upload(&track, &clock, &to, shutdown), served).0
    }

    #[tokio::test]
    async fn an_upload_ends_whole_when_it_is_asked_to() {
        let (trigger, shutdown) = shutdown::channel();
        let outcome = upload_to(shutdown, async |mut stream| {
            let head = read_until(&mut stream, b"\r\n\r\n").await;
            assert!(head.starts_with("PUT /ingest/a/Streams(audio.cmfa) HTTP/1.1\r\n"), "{head}");
            assert!(head.contains("content-type: audio/mp4\r\ntransfer-encoding: chunked\r\n"), "{head}");
            read_until(&mut stream, b"moof").await;
            trigger.ask();
            read_until(&mut stream, b"\r\n0\r\n\r\n").await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        });
        outcome.await.unwrap();
    }

    #[tokio::test]
    async fn a_refusal_is_told_with_its_reason() {
        let (_trigger, shutdown) = shutdown::channel();
        let outcome = upload_to(shutdown, async |mut stream| {
            read_until(&mut stream, b"\r\n\r\n").await;
            let refusal = b"HTTP/1.1 415 Unsupported Media Type\r\nContent-Length: 12\r\n\r\nnot of ours\n";
            stream.write_all(refusal).await.unwrap();
        });
        expect!["answered 415 Unsupported Media Type: not of ours"]
            .assert_eq(&format!("{:#}", outcome.await.unwrap_err()));
    }

    #[tokio::test]
    async fn a_connection_that_breaks_is_a_failure() {
        let (_trigger, shutdown) = shutdown::channel();
        let outcome = upload_to(shutdown, async |mut stream| {
            read_until(&mut stream, b"moof").await;
        });
        assert!(outcome.await.is_err());
    }
}
