//! The terminal of a live table: another screen, keys without a return, and all as it was at the end.
//!
//! **Invariant:** whatever ends the table, the terminal is as it was before: that is done when the value goes.

use std::io::{self, Read, Write, stdout};
use std::thread;

use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc::{Receiver, channel};

use super::keys::{self, Key};

/// Another screen, without a caret, without wrapping.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The lines and columns of a terminal that does not tell them.
const SIZE_UNKNOWN: (usize, usize) = (24, 80);

/// Keys that wait to be seen to.
const KEYS_MAX: usize = 64;
/// Bytes of keys that are read at once.
const READ_BYTES_MAX: usize = 256;

/// Standard output's terminal, and the keys of standard input if that is one too.
pub(super) struct Terminal {
    keys: Option<Keys>,
}

/// A thread reads them: it ends with the process, or the keyboard.
struct Keys {
    pressed: Receiver<Key>,
    before: Termios,
}

impl Terminal {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub(super) fn take() -> io::Result<Self> {
        stdout().write_all(ENTER.as_bytes())?;
        let mut terminal = Self { keys: None }; // from here on it is given back
        if let Ok(before) = tcgetattr(stdin()) {
            terminal.keys = Some(Keys::listen(before)?);
        }
        Ok(terminal)
    }

    /// How many lines and columns there are.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(rustix::stdio::stdout()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
            _ => SIZE_UNKNOWN,
        }
    }

    /// Shows these lines, and nothing else.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub(super) fn show(&self, lines: &[String]) -> io::Result<()> {
        let mut text = "\x1b[H".to_owned();
        for (number, line) in lines.iter().enumerate() {
            if number > 0 {
                text += "\r\n";
            }
            text += line;
            text += "\x1b[K";
        }
        text += "\x1b[J";
        let mut out = stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// The next key; never, where there is no keyboard.
    ///
    /// # Errors
    /// Where it has gone.
    pub(super) async fn key(&mut self) -> io::Result<Key> {
        match &mut self.keys {
            Some(keys) => keys.pressed.recv().await.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()),
            None => std::future::pending().await,
        }
    }
}

impl Keys {
    fn listen(before: Termios) -> io::Result<Self> {
        let mut now = before.clone();
        now.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(stdin(), OptionalActions::Now, &now)?;
        let (press, pressed) = channel(KEYS_MAX);
        let keys = Self { pressed, before };
        thread::Builder::new().name("keys".into()).spawn(move || {
            let mut bytes = [0; READ_BYTES_MAX];
            while let Ok(length @ 1..) = io::stdin().lock().read(&mut bytes) {
                if keys::keys(&bytes[..length]).into_iter().any(|key| press.blocking_send(key).is_err()) {
                    return;
                }
            }
        })?;
        Ok(keys)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = stdout().write_all(LEAVE.as_bytes());
        let _ = stdout().flush();
    }
}
