//! `thalweg sockets top`: a look at the sockets each period, with what each did since the last one.
//!
//! [`live`] compares two looks, [`terminal`] shows them; off a terminal each look is a block of lines.

mod live;
mod terminal;

use std::io::{IsTerminal, Write, stdout};

use anyhow::Context;
use thalweg_tcp::diag::{Filter, States};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::args::{Sort, TopArgs};
use super::source::Kernel;
use crate::log::stdout_colour;
use crate::shutdown::Signals;
use live::{Shown, Sockets};
use terminal::Terminal;

/// Lines on a terminal that are no rows: the summary and the columns' names.
const HEAD_LINES: usize = 2;

/// What a key does.
enum Key {
    End,
    Sort,
    Pause,
}

impl Key {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            b'q' | b'Q' => Some(Self::End),
            b's' | b'S' => Some(Self::Sort),
            b'p' | b'P' | b' ' => Some(Self::Pause),
            _ => None,
        }
    }
}

/// Looks and shows until it is ended.
///
/// # Errors
/// A filter that is none; where the kernel does not answer, or the output cannot be written.
pub(super) fn run(args: &TopArgs) -> anyhow::Result<()> {
    let filter = super::filter(&args.which, States::CONNECTED)?;
    let kernel = Kernel::open(&args.which.namespaces)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start a runtime")?.block_on(Top::new(args, kernel, filter).follow())
}

struct Top<'a> {
    args: &'a TopArgs,
    kernel: Kernel,
    filter: Filter,
    sockets: Sockets,
    looked: Option<Instant>,
    sort: Sort,
    is_paused: bool,
    is_complete: bool,
}

impl<'a> Top<'a> {
    fn new(args: &'a TopArgs, kernel: Kernel, filter: Filter) -> Self {
        let sockets = Sockets::default();
        Self {
            args,
            kernel,
            filter,
            sockets,
            looked: None,
            sort: args.sort,
            is_paused: false,
            is_complete: true,
        }
    }

    async fn follow(mut self) -> anyhow::Result<()> {
        let mut signals = Signals::catch()?;
        let mut period = interval(self.args.period.duration);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut terminal = if stdout().is_terminal() { Some(Terminal::take()?) } else { None };
        let mut looks = 0;
        while self.args.count.is_none_or(|count| looks < count) {
            tokio::select! {
                () = signals.next() => return Ok(()),
                _ = period.tick() => {
                    looks += 1;
                    if !self.is_paused {
                        self.look()?;
                    }
                }
                key = key(terminal.as_mut()) => match Key::of(key?) {
                    Some(Key::End) => return Ok(()),
                    Some(Key::Sort) => self.sort = self.sort.next(),
                    Some(Key::Pause) => self.is_paused = !self.is_paused,
                    None => continue,
                },
            }
            self.show(terminal.as_ref())?;
        }
        Ok(())
    }

    fn look(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let elapsed = self.looked.map(|before| now - before).unwrap_or_default();
        self.looked = Some(now);
        self.sockets.begin();
        let sockets = &mut self.sockets;
        self.is_complete =
            self.kernel.dump(&self.filter, |socket, namespace, _| sockets.see(socket, namespace, elapsed))?;
        Ok(())
    }

    fn show(&self, terminal: Option<&Terminal>) -> anyhow::Result<()> {
        let rows_asked = self.args.limit.unwrap_or(usize::MAX);
        let rows_max = match terminal {
            Some(terminal) => rows_asked.min(terminal.lines().saturating_sub(HEAD_LINES)),
            None => rows_asked,
        };
        let note = match (self.is_paused, self.is_complete) {
            (true, _) => "  paused",
            (false, false) => "  some may be missing",
            (false, true) => "",
        };
        let shown = Shown { sort: self.sort, rows_max, colour: stdout_colour(), note };
        let lines = self.sockets.lines(self.kernel.names(), &shown);
        match terminal {
            Some(terminal) => terminal.show(&lines)?,
            None => {
                let mut out = stdout().lock();
                writeln!(out, "{}\n", lines.join("\n"))?;
                out.flush()?;
            }
        }
        Ok(())
    }
}

/// The next key; never, where there is no terminal.
async fn key(terminal: Option<&mut Terminal>) -> std::io::Result<u8> {
    match terminal {
        Some(terminal) => terminal.key().await,
        None => std::future::pending().await,
    }
}
