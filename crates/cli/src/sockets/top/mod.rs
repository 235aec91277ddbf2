//! `thalweg sockets top`: dumps the sockets once per period, and shows the activity of each socket.
//!
//! [`live`] compares two dumps, [`terminal`] shows them and reads keys, and [`prompt`] edits the
//! filter. Without a terminal, each dump is printed as a block of lines.

mod live;
mod prompt;
mod terminal;

use std::io::{IsTerminal, Write, stdout};

use anyhow::Context;
use ratatui::crossterm::event::{Event, KeyCode, KeyModifiers};
use ratatui::text::{Line, Text};
use thalweg_tcp::diag::{Filter, States};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::args::{Sort, TOP_HELP, TopArgs};
use super::source::Kernel;
use super::table;
use crate::Signals;
use crate::log::stdout_colour;
use live::{Display, Sockets};
use prompt::{Outcome, Prompt};
use terminal::Terminal;

/// Terminal lines that are not rows: the summary and the column names.
const HEAD_LINES: usize = 2;

/// Content of the terminal.
#[derive(Debug)]
enum Mode {
    Table,
    /// The table, with the edited filter above it.
    Filter(Prompt),
    Help,
}

/// Updates the display until the user quits or the last update is done.
///
/// # Errors
///
/// Returns an error if the filter is invalid, the kernel does not respond, or the output cannot be
/// written.
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
    /// Filter as written.
    filter_text: String,
    mode: Mode,
    sockets: Sockets,
    last_dump: Option<Instant>,
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
            last_dump: None,
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
        let mut dumps = 0;
        while self.args.count.is_none_or(|count| dumps < count) {
            tokio::select! {
                () = signals.next() => return Ok(()),
                _ = period.tick() => {
                    dumps += 1;
                    if !self.is_paused {
                        self.update()?;
                    }
                }
                event = event(terminal.as_mut()) => match self.handle_event(&event?) {
                    Pressed::Nothing => {}
                    // A new filter starts a new period.
                    Pressed::Filtered => {
                        self.update()?;
                        period.reset();
                    }
                    Pressed::End => return Ok(()),
                },
            }
            self.show(terminal.as_mut())?;
        }
        Ok(())
    }

    /// Handles a key; any other event only redraws the terminal.
    fn handle_event(&mut self, event: &Event) -> Pressed {
        let Some(key) = event.as_key_press_event() else { return Pressed::Nothing };
        // In raw mode the terminal sends no signal for Ctrl-C.
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Pressed::End;
        }
        match &mut self.mode {
            Mode::Table => return self.command(key.code),
            Mode::Help => self.mode = Mode::Table,
            Mode::Filter(prompt) => match prompt.press(key.code, event) {
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

    fn command(&mut self, key: KeyCode) -> Pressed {
        match key {
            KeyCode::Char('q' | 'Q') => return Pressed::End,
            KeyCode::Char('s' | 'S') => self.sort = self.sort.next(),
            KeyCode::Char('p' | 'P' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.mode = Mode::Filter(Prompt::of(&self.filter_text)),
            KeyCode::Char('?' | 'h' | 'H') => self.mode = Mode::Help,
            _ => {}
        }
        Pressed::Nothing
    }

    fn update(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let elapsed = self.last_dump.map(|before| now - before).unwrap_or_default();
        self.last_dump = Some(now);
        self.sockets.begin();
        let sockets = &mut self.sockets;
        self.is_complete =
            self.kernel.dump(&self.filter, |socket, namespace, _| sockets.add(socket, namespace, elapsed))?;
        Ok(())
    }

    fn show(&self, terminal: Option<&mut Terminal>) -> anyhow::Result<()> {
        let Some(terminal) = terminal else {
            let mut out = stdout().lock();
            for line in self.table(usize::MAX) {
                writeln!(out, "{}", table::text(&line))?;
            }
            writeln!(out)?;
            return Ok(out.flush()?);
        };
        Ok(terminal.draw(|frame| {
            let area = frame.area();
            let (columns, lines) = (usize::from(area.width), usize::from(area.height));
            let shown = match &self.mode {
                Mode::Table => self.table(lines.saturating_sub(HEAD_LINES)),
                Mode::Filter(prompt) => {
                    let (mut shown, caret) = prompt.lines(columns);
                    frame.set_cursor_position((u16::try_from(caret).unwrap_or(u16::MAX), 0));
                    shown.extend(self.table(lines.saturating_sub(HEAD_LINES + shown.len())));
                    shown
                }
                Mode::Help => TOP_HELP.lines().map(Line::raw).collect(),
            };
            frame.render_widget(Text::from(shown), area);
        })?)
    }

    /// Formats the table, with at most this many rows.
    fn table(&self, rows_max: usize) -> Vec<Line<'static>> {
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
        let shown = Display { sort: self.sort, rows_max, colour: stdout_colour(), note: &note };
        self.sockets.lines(self.kernel.names(), &shown)
    }
}

/// Action after a key, in addition to redrawing.
enum Pressed {
    Nothing,
    /// The filter has changed.
    Filtered,
    End,
}

/// Waits for the next event; never resolves without a terminal.
async fn event(terminal: Option<&mut Terminal>) -> std::io::Result<Event> {
    match terminal {
        Some(terminal) => terminal.event().await,
        None => std::future::pending().await,
    }
}
