//! The stream of a running edge's records: `GET /records` of its admin address, as server-sent events (WHATWG HTML §9.2).

use std::error::Error as _;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{anyhow, bail};
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use thalweg_edge::KEEP_ALIVE;
use tokio::time::timeout;

use crate::admin;

const EVENT_STREAM: &str = "text/event-stream";
/// The longest line of the stream; a record is far shorter.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The first pause before an edge that has gone is looked for again; each is twice the one before.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest such pause.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long a stream may say nothing, not even that it is alive: then its edge is taken to be gone.
const SILENCE_MAX: Duration = KEEP_ALIVE.saturating_mul(3);

/// The event by which an edge tells that it has ended, and before what number.
pub(crate) const END: &str = "end";
/// The one by which it tells that of a start before this.
pub(crate) const ENDED: &str = "ended";

/// The stream of records, from now on or from after the event with the id `last`; an epoch alone is from before its first. The
/// outer error says that nobody answers, the inner one that it is no edge.
pub(crate) async fn connect(
    addr: SocketAddr,
    last: Option<&str>,
) -> anyhow::Result<anyhow::Result<Incoming>> {
    let mut request = Request::get("/records").header(ACCEPT, EVENT_STREAM);
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let response = timeout(SILENCE_MAX, admin::send(addr, request, String::new())).await??;
    let (status, kind) = (response.status(), response.headers().get(CONTENT_TYPE));
    let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(EVENT_STREAM.as_bytes()));
    Ok(if status.is_success() && is_stream {
        Ok(response.into_body())
    } else {
        Err(anyhow!("{addr} answered {status} to /records: it is not an edge's admin address"))
    })
}

/// How a stream has ended, as told of its edge.
#[derive(Debug)]
pub(crate) enum End {
    Ended,
    Broken(hyper::Error),
    Silent,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("has ended the stream"),
            Self::Broken(error) => {
                write!(f, "has broken the stream off: {error}")?;
                error.source().map_or(Ok(()), |cause| write!(f, ": {cause}"))
            }
            Self::Silent => write!(f, "has said nothing for {} s", SILENCE_MAX.as_secs()),
        }
    }
}

/// What a stream has next.
#[derive(Debug)]
pub(crate) enum Next {
    Event(Event),
    /// No more has come with the events before this.
    Pause,
    End(End),
}

/// A stream of records, as it is read.
#[derive(Debug)]
pub(crate) struct Stream {
    body: Incoming,
    events: Events,
    /// Something came that may have an event in it still.
    has_more: bool,
}

impl Stream {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, events: Events::default(), has_more: false }
    }

    /// The next event once it has come, or what comes in its place.
    ///
    /// # Errors
    /// When what comes is no stream of records.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Next> {
        loop {
            if self.has_more {
                let event = self.events.next()?;
                self.has_more = event.is_some();
                return Ok(event.map_or(Next::Pause, Next::Event));
            }
            let frame = match timeout(SILENCE_MAX, self.body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Ok(Next::End(End::Broken(error))),
                Ok(None) => return Ok(Next::End(End::Ended)),
                Err(_) => return Ok(Next::End(End::Silent)),
            };
            if let Some(bytes) = frame.data_ref() {
                self.events.push(bytes);
                self.has_more = true;
            }
        }
    }
}

/// One event: its name, empty for a plain message, its number where it has one, and its data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) data: String,
}

/// Events out of bytes that arrive in any pieces (WHATWG HTML §9.2.6, the fields `event`, `id` and `data`).
#[derive(Debug, Default)]
struct Events {
    buffer: Vec<u8>,
    event: Event,
}

impl Events {
    fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole event, if there is one.
    fn next(&mut self) -> anyhow::Result<Option<Event>> {
        while let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(&self.buffer[..end]).trim_end_matches('\r').to_owned();
            self.buffer.drain(..=end);
            if !line.is_empty() {
                self.field(&line);
            } else if !self.event.data.is_empty() {
                return Ok(Some(std::mem::take(&mut self.event)));
            }
        }
        if self.buffer.len() > LINE_BYTES_MAX {
            bail!("a line of more than {LINE_BYTES_MAX} bytes: this is no stream of records");
        }
        Ok(None)
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => value.clone_into(&mut self.event.id),
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            _ => {} // a comment, which keeps the stream alive, or a field of no use here
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Empty;
    use hyper_util::rt::TokioIo;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    /// A stream of records that begins with `bytes`, and its server's end.
    async fn stream(bytes: &str) -> (Incoming, DuplexStream) {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let (mut client, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(near)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("/records").body(Empty::<bytes::Bytes>::new()).unwrap();
        let answer =
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{bytes}\r\n", bytes.len());
        let (response, ()) = tokio::join!(client.send_request(request), async {
            far.read_u8().await.unwrap(); // it has been asked
            far.write_all(answer.as_bytes()).await.unwrap();
        });
        (response.unwrap().into_body(), far)
    }

    /// Whether anything was read of a stream, and what is told of its end.
    async fn end(body: Incoming) -> (bool, String) {
        let (mut stream, mut has_read) = (Stream::new(body), false);
        loop {
            match stream.next().await.unwrap() {
                Next::Event(_) => has_read = true,
                Next::Pause => {}
                Next::End(end) => return (has_read, end.to_string()),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn how_a_stream_ends_is_told() {
        let (body, mut far) = stream(": hello\n\n").await;
        far.write_all(b"0\r\n\r\n").await.unwrap();
        assert_eq!(end(body).await, (false, "has ended the stream".into()));

        let (body, far) = stream("data: {}\n\n").await;
        drop(far);
        let (has_read, told) = end(body).await;
        assert!(has_read && told.starts_with("has broken the stream off: "), "{told}");

        let (body, far) = stream("data: {}\n\n").await;
        let begun = tokio::time::Instant::now();
        assert_eq!(end(body).await, (true, "has said nothing for 30 s".into()));
        assert_eq!(begun.elapsed(), SILENCE_MAX);
        drop(far);
    }

    const STREAM: &str = ": hello\n\ndata: {\"v\":1}\n\nevent: lost\r\ndata: {\"count\":3}\r\n\r\nid: 7\ndata:a\ndata: b\n\ndata: half";

    fn read(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut events = Events::default();
        let mut found = Vec::new();
        for piece in pieces {
            events.push(piece);
            while let Some(event) = events.next().unwrap() {
                found.push((event.name, event.data));
            }
        }
        found
    }

    #[test]
    fn events_of_a_stream() {
        let expected = [("", "{\"v\":1}"), ("lost", "{\"count\":3}"), ("", "a\nb")];
        let expected = expected.map(|(name, data)| (name.to_owned(), data.to_owned()));
        assert_eq!(read(&[STREAM.as_bytes()]), expected);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut events = Events::default();
        events.push(&vec![b'x'; LINE_BYTES_MAX + 1]);
        assert!(events.next().is_err());
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(cuts in proptest::collection::vec(0..STREAM.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|cut| &STREAM.as_bytes()[cut[0]..cut[1]]).collect();
            prop_assert_eq!(read(&pieces), read(&[STREAM.as_bytes()]));
        }
    }
}
