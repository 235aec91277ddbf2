//! The records of a running edge: `GET /records` of its admin address, as server-sent events.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::ACCEPT;

use super::printer::Printer;
use crate::admin;

/// The longest line of the stream; a record is far shorter.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The first pause before an edge that has gone is looked for again; each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Prints records as they happen, over restarts of the edge.
///
/// # Errors
/// When no edge answers the first time, or what answers is none, or the output cannot be written.
pub(super) fn follow(addr: SocketAddr, printer: &mut Printer<impl io::Write>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let hint = || format!("no edge answers at {addr}; --admin says where, or name a log file");
        let mut body = connect(addr).await.with_context(hint)??;
        loop {
            read(body, printer).await?;
            eprintln!("thalweg: the edge at {addr} has ended the stream; waiting for it");
            body = connect_again(addr).await?;
        }
    })
}

/// The stream of records. The outer error says that nobody answers, the inner one that it is no edge.
async fn connect(addr: SocketAddr) -> anyhow::Result<anyhow::Result<Incoming>> {
    let request = Request::get("/records").header(ACCEPT, "text/event-stream");
    let response = admin::send(addr, request, String::new()).await?;
    let status = response.status();
    Ok(if status.is_success() {
        Ok(response.into_body())
    } else {
        Err(anyhow!("{addr} answered {status} to /records: it is not an edge's admin address"))
    })
}

/// The stream of an edge that was there before, once it is there again.
async fn connect_again(addr: SocketAddr) -> anyhow::Result<Incoming> {
    let mut pause = PAUSE_MIN;
    loop {
        tokio::time::sleep(pause).await;
        match connect(addr).await {
            Ok(answered) => return answered,
            Err(_) => pause = (pause * 2).min(PAUSE_MAX),
        }
    }
}

/// Prints what comes, until the stream ends or breaks off.
async fn read(mut body: Incoming, printer: &mut Printer<impl io::Write>) -> anyhow::Result<()> {
    let mut events = Events::default();
    while let Some(Ok(frame)) = body.frame().await {
        let Some(bytes) = frame.data_ref() else { continue };
        events.push(bytes);
        while let Some(event) = events.next()? {
            print(&event, printer)?;
        }
        printer.flush()?;
    }
    Ok(())
}

fn print(event: &Event, printer: &mut Printer<impl io::Write>) -> io::Result<()> {
    match event.name.as_str() {
        "" => printer.line(&event.data),
        name => {
            eprintln!("thalweg: {name}: {}", event.data);
            Ok(())
        }
    }
}

/// One event: its name, empty for a plain message, and its data.
#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    name: String,
    data: String,
}

/// Events out of bytes that arrive in any pieces (WHATWG HTML §9.2.6, the fields `event` and `data`).
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
    use proptest::prelude::*;

    use super::*;

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
