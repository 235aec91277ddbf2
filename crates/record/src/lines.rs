//! What was logged of a request, in order, within limits: a record waits in queues, and none may grow without end.
//!
//! **Invariant:** a line that is left out is counted.

use crate::LineTag;

/// Lines that a record keeps.
pub const LINES_MAX: usize = 100;
/// Bytes of one line's text; the rest of it is cut off.
pub const LINE_BYTES_MAX: usize = 4 * 1024;
/// Bytes of the texts of all lines.
pub const LINES_BYTES_MAX: usize = 16 * 1024;

const _: () = assert!(LINES_BYTES_MAX.is_multiple_of(LINE_BYTES_MAX));

/// A line that was logged of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What it is about.
    pub tag: LineTag,
    /// Its text, as it was logged.
    pub text: String,
}

/// The lines that were logged of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    pub(crate) kept: Vec<Line>,
    pub(crate) lost: u32,
}

impl Lines {
    /// Adds a line, cut to [`LINE_BYTES_MAX`], if it finds room.
    pub fn push(&mut self, tag: LineTag, mut text: String) {
        text.truncate(text.floor_char_boundary(LINE_BYTES_MAX));
        let used: usize = self.kept.iter().map(|line| line.text.len()).sum();
        if self.kept.len() < LINES_MAX && used + text.len() <= LINES_BYTES_MAX {
            self.kept.push(Line { tag, text });
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// What was written, whatever the limits of its writer.
    pub(crate) fn read(kept: Vec<Line>, lost: u32) -> Self {
        Self { kept, lost }
    }

    /// The lines, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Line> {
        self.kept.iter()
    }

    /// How many found no room.
    pub fn lost(&self) -> u32 {
        self.lost
    }
}
