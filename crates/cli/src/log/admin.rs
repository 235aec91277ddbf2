//! Record stream of a running edge, followed across its restarts.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::printer::Printer;
use thalweg_telemetry::follow::stream::{END, EdgeStream, Event, Next, PAUSE_MAX, PAUSE_MIN, connect};

/// Prints records as they arrive and reconnects when the edge restarts.
///
/// # Errors
///
/// Returns an error if the first connection fails, if the server is not an edge, or if the output
/// cannot be written.
pub(super) fn follow(addr: SocketAddr, printer: &mut Printer<impl io::Write>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let hint = || format!("no edge answers at {addr}; set --admin, or name a log file");
        let mut stream = connect(addr, None).await.with_context(hint)??;
        let (mut pause, mut is_reported) = (PAUSE_MIN, false);
        loop {
            let end = loop {
                match stream.next().await? {
                    Next::Event(event) => {
                        (pause, is_reported) = (PAUSE_MIN, false);
                        print(&event, printer)?;
                    }
                    Next::Pause => printer.flush()?,
                    Next::End(end) => break end,
                }
            };
            if !is_reported {
                eprintln!("thalweg: the edge at {addr} {end}; reconnecting");
                is_reported = true;
            }
            stream = reconnect(addr, &mut pause).await?;
        }
    })
}

/// Reconnects to an edge that was reachable before, with increasing pauses.
async fn reconnect(addr: SocketAddr, pause: &mut Duration) -> anyhow::Result<EdgeStream> {
    loop {
        if is_stdout_closed() {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        }
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).min(PAUSE_MAX);
        if let Ok(answered) = connect(addr, None).await {
            return Ok(answered?);
        }
    }
}

/// Returns whether standard output's reader has closed the pipe, without writing to it.
fn is_stdout_closed() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1..))
        && polled[0].revents().contains(PollFlags::ERR)
}

fn print(event: &Event, printer: &mut Printer<impl io::Write>) -> io::Result<()> {
    match event.name.as_str() {
        "" => printer.line(&event.data),
        END => Ok(()), // the stream ends next
        name => {
            eprintln!("thalweg: {name}: {}", event.data);
            Ok(())
        }
    }
}
