//! The records of a running edge, over its restarts.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use hyper::body::Incoming;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::printer::Printer;
use crate::stream::{END, Event, Next, PAUSE_MAX, PAUSE_MIN, Stream, connect};

/// Prints records as they happen, over restarts of the edge.
///
/// # Errors
/// When no edge answers the first time, or what answers is none, or the output cannot be written.
pub(super) fn follow(addr: SocketAddr, printer: &mut Printer<impl io::Write>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let hint = || format!("no edge answers at {addr}; --admin says where, or name a log file");
        let mut body = connect(addr, None).await.with_context(hint)??;
        let (mut pause, mut is_told) = (PAUSE_MIN, false);
        loop {
            let mut stream = Stream::new(body);
            let end = loop {
                match stream.next().await? {
                    Next::Event(event) => {
                        (pause, is_told) = (PAUSE_MIN, false);
                        print(&event, printer)?;
                    }
                    Next::Pause => printer.flush()?,
                    Next::End(end) => break end,
                }
            };
            if !is_told {
                eprintln!("thalweg: the edge at {addr} {end}; waiting for it");
                is_told = true;
            }
            body = connect_again(addr, &mut pause).await?;
        }
    })
}

/// The stream of an edge that was there before, once it is there again, which is looked for after each `pause`.
async fn connect_again(addr: SocketAddr, pause: &mut Duration) -> anyhow::Result<Incoming> {
    loop {
        if has_reader_gone() {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        }
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).min(PAUSE_MAX);
        if let Ok(answered) = connect(addr, None).await {
            return answered;
        }
    }
}

/// Whether nobody reads standard output any more; a write would tell as well, but there is nothing to write.
fn has_reader_gone() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1..))
        && polled[0].revents().contains(PollFlags::ERR)
}

fn print(event: &Event, printer: &mut Printer<impl io::Write>) -> io::Result<()> {
    match event.name.as_str() {
        "" => printer.line(&event.data),
        END => Ok(()), // the stream ends as well
        name => {
            eprintln!("thalweg: {name}: {}", event.data);
            Ok(())
        }
    }
}
