//! Client for an edge's record stream, served as `GET /records` on the admin address in the form of
//! server-sent events (WHATWG HTML §9.2).

use std::error::Error as _;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use thalweg_surface::Limits;
use thalweg_surface::client::{self, Client, Content, Failure};

use crate::error::Error;

const EVENT_STREAM: &str = "text/event-stream";
/// Maximum line length in a stream, in bytes; records are far shorter.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Pause before the first reconnection attempt; each further pause is twice as long.
pub const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Maximum pause between reconnection attempts.
pub const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Maximum time without data on a stream; an edge sends a comment every 10 s.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Name of the event that ends the current epoch. Its data is the epoch and the record count.
pub const END: &str = "end";
/// Name of the event that reports the end of an earlier epoch. Its data is the epoch and the record
/// count.
pub const ENDED: &str = "ended";

/// Connects to an edge's record stream. The stream starts after the event with the ID `last_event`,
/// or with the next event if no ID is given. An ID that consists only of an epoch starts the stream
/// at the epoch's first record.
///
/// # Errors
///
/// Returns the outer error if the connection fails, the inner error if the server is not an edge.
pub async fn connect(addr: SocketAddr, last_event: Option<&str>) -> Result<Result<EdgeStream, Error>, Error> {
    let mut request = Request::get(format!("http://{addr}/records")).header(ACCEPT, EVENT_STREAM);
    if let Some(last_event) = last_event {
        request = request.header("last-event-id", last_event);
    }
    let failed = |cause: Box<dyn std::error::Error + Send + Sync>| {
        Error::of(format!("cannot read records from {addr}"), cause)
    };
    let request = request.body(Bytes::new()).map_err(|error| failed(error.into()))?;
    let limits = Limits { head: SILENCE_MAX, silence: SILENCE_MAX, ..Limits::default() };
    let response = Client::new(limits).send(request).await.map_err(|error| failed(error.into()))?;
    let (status, kind) = (response.status(), response.headers().get(CONTENT_TYPE));
    let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(EVENT_STREAM.as_bytes()));
    Ok(if status.is_success() && is_stream {
        Ok(EdgeStream::new(response.into_body()))
    } else {
        let what = format!("{addr} answered {status} to /records: it is not an edge's admin address");
        Err(Error::refused(what))
    })
}

/// Reason why a stream ended.
#[derive(Debug)]
pub enum End {
    /// The edge closed the stream.
    Ended,
    /// The connection broke.
    Broken(client::Error),
    /// Nothing arrived for [`SILENCE_MAX`], not even a keep-alive comment.
    Silent,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("has ended the stream"),
            Self::Broken(error) => {
                f.write_str("has interrupted the stream")?;
                let mut cause = error.source();
                while let Some(next) = cause {
                    write!(f, ": {next}")?;
                    cause = next.source();
                }
                Ok(())
            }
            Self::Silent => write!(f, "has sent nothing for {} s", SILENCE_MAX.as_secs()),
        }
    }
}

/// Result of one read from a stream.
#[derive(Debug)]
pub enum Next {
    /// An event.
    Event(Event),
    /// All events received so far have been returned.
    Pause,
    /// The stream has ended.
    End(End),
}

/// An open record stream.
#[derive(Debug)]
pub struct EdgeStream {
    content: Content,
    events: Events,
    /// Whether the buffer may contain a complete event.
    has_more: bool,
}

impl EdgeStream {
    fn new(content: Content) -> Self {
        Self { content, events: Events::default(), has_more: false }
    }

    /// Waits for the next event, a pause or the end of the stream.
    ///
    /// # Errors
    ///
    /// Returns an error if the content is not a record stream.
    pub async fn next(&mut self) -> Result<Next, Error> {
        loop {
            if self.has_more {
                let event = self.events.next()?;
                self.has_more = event.is_some();
                return Ok(event.map_or(Next::Pause, Next::Event));
            }
            match self.content.next().await {
                Ok(Some(bytes)) => {
                    self.events.push(&bytes);
                    self.has_more = true;
                }
                Ok(None) => return Ok(Next::End(End::Ended)),
                Err(error) if matches!(error.why, Failure::Silent(_)) => return Ok(Next::End(End::Silent)),
                Err(error) => return Ok(Next::End(End::Broken(error))),
            }
        }
    }
}

/// A server-sent event.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Event name; empty for a record.
    pub name: String,
    /// Event ID; `EPOCH-NUMBER` for a record.
    pub id: String,
    /// Event data.
    pub data: String,
}

/// Incremental parser for server-sent events (WHATWG HTML §9.2.6). It reads the fields `event`,
/// `id` and `data`, and accepts input split at any byte.
#[derive(Debug, Default)]
struct Events {
    buffer: Vec<u8>,
    event: Event,
}

impl Events {
    fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete event, or `None` if more bytes are needed.
    fn next(&mut self) -> Result<Option<Event>, Error> {
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
            let what = format!("not a record stream: line exceeds {LINE_BYTES_MAX} bytes");
            return Err(Error::refused(what));
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
            _ => {} // a keep-alive comment or an unused field
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Opens a record stream that starts with `bytes`. Returns it with the server side of the
    /// connection.
    async fn stream(bytes: &str) -> (EdgeStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {EVENT_STREAM}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{bytes}\r\n",
            bytes.len()
        );
        let (stream, far) = tokio::join!(connect(addr, None), async {
            let (mut far, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(far.read_u8().await.unwrap());
            }
            far.write_all(answer.as_bytes()).await.unwrap();
            far
        });
        (stream.unwrap().unwrap(), far)
    }

    /// Reads up to the first event.
    async fn first(stream: &mut EdgeStream) {
        while !matches!(stream.next().await.unwrap(), Next::Event(_)) {}
    }

    /// Reads a stream to its end and returns the reason as a string.
    async fn end(mut stream: EdgeStream) -> String {
        loop {
            if let Next::End(end) = stream.next().await.unwrap() {
                return end.to_string();
            }
        }
    }

    #[tokio::test]
    async fn stream_end_states_its_cause() {
        let (open, mut far) = stream(": hello\n\n").await;
        far.write_all(b"0\r\n\r\n").await.unwrap();
        assert_eq!(end(open).await, "has ended the stream");

        let (mut open, far) = stream("data: {}\n\n").await;
        first(&mut open).await;
        drop(far);
        let broken = end(open).await;
        assert!(broken.starts_with("has interrupted the stream: "), "{broken}");

        let (mut open, far) = stream("data: {}\n\n").await;
        first(&mut open).await;
        tokio::time::pause();
        let started = tokio::time::Instant::now();
        assert_eq!(end(open).await, "has sent nothing for 30 s");
        let silent = started.elapsed();
        // The paused clock advances in whole milliseconds.
        assert!((SILENCE_MAX..SILENCE_MAX + Duration::from_millis(10)).contains(&silent), "{silent:?}");
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
    fn events_comments_and_multiline_data_are_parsed() {
        let expected = [("", "{\"v\":1}"), ("lost", "{\"count\":3}"), ("", "a\nb")];
        let expected = expected.map(|(name, data)| (name.to_owned(), data.to_owned()));
        assert_eq!(read(&[STREAM.as_bytes()]), expected);
    }

    #[test]
    fn endless_line_is_an_error() {
        let mut events = Events::default();
        events.push(&vec![b'x'; LINE_BYTES_MAX + 1]);
        assert!(events.next().is_err());
    }

    proptest! {
        #[test]
        fn parsed_events_do_not_depend_on_how_bytes_are_split(cuts in proptest::collection::vec(0..STREAM.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|cut| &STREAM.as_bytes()[cut[0]..cut[1]]).collect();
            prop_assert_eq!(read(&pieces), read(&[STREAM.as_bytes()]));
        }
    }
}
