//! Terminal of a live table: an alternate screen and key events.
//!
//! **Invariant:** the terminal is restored on every exit, including a panic.

use std::io;
use std::thread;

use ratatui::crossterm::event::{self, Event};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc::{Receiver, channel};

/// Maximum number of events waiting to be handled.
const EVENTS_MAX: usize = 64;

/// Terminal on standard output.
pub(super) struct Terminal {
    screen: DefaultTerminal,
    events: Receiver<Event>,
}

impl Terminal {
    /// Switches the terminal to an alternate screen and raw mode, and starts reading events.
    ///
    /// # Errors
    ///
    /// Returns an error if the terminal cannot be set up.
    pub(super) fn take() -> io::Result<Self> {
        let (send, events) = channel(EVENTS_MAX);
        let terminal = Self { screen: ratatui::try_init()?, events };
        // A blocking read cannot be cancelled; the thread ends with the process.
        thread::Builder::new()
            .name("keys".into())
            .spawn(move || while event::read().is_ok_and(|event| send.blocking_send(event).is_ok()) {})?;
        Ok(terminal)
    }

    /// Redraws the screen with what `draw` renders.
    ///
    /// # Errors
    ///
    /// Returns an error if the terminal cannot be written.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.screen.draw(draw).map(drop)
    }

    /// Waits for the next event.
    ///
    /// # Errors
    ///
    /// Returns an error if the terminal is closed.
    pub(super) async fn event(&mut self) -> io::Result<Event> {
        self.events.recv().await.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
