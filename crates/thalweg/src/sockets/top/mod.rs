//! `thalweg sockets top`: a look at the sockets each period, with what each did since the last one.
//!
//! [`live`] compares two looks, [`terminal`] shows them, [`keys`] and [`prompt`] are what may be done there; off a terminal
//! each look is a block of lines.

mod keys;
mod live;
mod prompt;
mod terminal;

use std::io::{IsTerminal, Write, stdout};

use anyhow::Context;
use thalweg_tcp::diag::{Filter, States};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::args::{Sort, TOP_HELP, TopArgs};
use super::source::Kernel;
use crate::log::stdout_colour;
use crate::shutdown::Signals;
use keys::Key;
use live::{Shown, Sockets};
use prompt::{Outcome, Prompt};
use terminal::Terminal;

/// Lines on a terminal that are no rows: the summary and the columns' names.
const HEAD_LINES: usize = 2;

/// What is on the terminal.
#[derive(Debug)]
enum Mode {
    Table,
    /// The table, and above it the filter that is being edited.
    Filter(Prompt),
    Help,
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
    /// The filter as it was written.
    filter_text: String,
    mode: Mode,
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
            filter_text: args.which.filter.join(" "),
            mode: Mode::Table,
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
                key = key(terminal.as_mut()) => match self.press(key?) {
                    Pressed::Nothing => {}
                    // What changed is about a whole period again.
                    Pressed::Filtered => {
                        self.look()?;
                        period.reset();
                    }
                    Pressed::End => return Ok(()),
                },
            }
            self.show(terminal.as_ref())?;
        }
        Ok(())
    }

    /// Does what a key says.
    fn press(&mut self, key: Key) -> Pressed {
        match &mut self.mode {
            Mode::Table => return self.command(key),
            Mode::Help => self.mode = Mode::Table,
            Mode::Filter(prompt) => match prompt.press(key) {
                Outcome::Edited => {}
                Outcome::Cancelled => self.mode = Mode::Table,
                Outcome::Applied(text, filter) => {
                    (self.filter_text, self.filter, self.mode) = (text, filter, Mode::Table);
                    return Pressed::Filtered;
                }
            },
        }
        Pressed::Nothing
    }

    fn command(&mut self, key: Key) -> Pressed {
        match key {
            Key::Char('q' | 'Q') => return Pressed::End,
            Key::Char('s' | 'S') => self.sort = self.sort.next(),
            Key::Char('p' | 'P' | ' ') => self.is_paused = !self.is_paused,
            Key::Char('/') => self.mode = Mode::Filter(Prompt::of(&self.filter_text)),
            Key::Char('?' | 'h' | 'H') => self.mode = Mode::Help,
            _ => {}
        }
        Pressed::Nothing
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
        let Some(terminal) = terminal else {
            let mut out = stdout().lock();
            writeln!(out, "{}\n", self.table(usize::MAX).join("\n"))?;
            return Ok(out.flush()?);
        };
        let (lines, columns) = terminal.size();
        let shown = match &self.mode {
            Mode::Table => self.table(lines.saturating_sub(HEAD_LINES)),
            Mode::Filter(prompt) => {
                let mut shown = prompt.lines(columns);
                shown.extend(self.table(lines.saturating_sub(HEAD_LINES + shown.len())));
                shown
            }
            Mode::Help => TOP_HELP.lines().map(str::to_owned).collect(),
        };
        Ok(terminal.show(&shown[..shown.len().min(lines)])?)
    }

    /// The table, of so many rows at most.
    fn table(&self, rows_max: usize) -> Vec<String> {
        let mut note = match (self.is_paused, self.is_complete) {
            (true, _) => "  paused".to_owned(),
            (false, false) => "  some may be missing".to_owned(),
            (false, true) => String::new(),
        };
        if !self.filter_text.is_empty() {
            note += "  filter ";
            note += &self.filter_text;
        }
        let rows_max = rows_max.min(self.args.limit.unwrap_or(usize::MAX));
        let shown = Shown { sort: self.sort, rows_max, colour: stdout_colour(), note: &note };
        self.sockets.lines(self.kernel.names(), &shown)
    }
}

/// What is to be done after a key, beside showing it.
enum Pressed {
    Nothing,
    /// There is another filter.
    Filtered,
    End,
}

/// The next key; never, where there is no terminal.
async fn key(terminal: Option<&mut Terminal>) -> std::io::Result<Key> {
    match terminal {
        Some(terminal) => terminal.key().await,
        None => std::future::pending().await,
    }
}
