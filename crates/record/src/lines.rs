//! Logged lines of a request, in order and within limits, because records wait in bounded queues.
//!
//! **Invariant:** every dropped line is counted.

use crate::LineTag;

/// Maximum lines per record.
pub const LINES_MAX: usize = 100;
/// Maximum length of a line's text, in bytes; the rest is cut off.
pub const LINE_BYTES_MAX: usize = 4 * 1024;
/// Maximum bytes of all texts of a record.
pub const LINES_BYTES_MAX: usize = 16 * 1024;

const _: () = assert!(LINES_BYTES_MAX.is_multiple_of(LINE_BYTES_MAX));

message! {
    /// A logged line of a request.
    pub struct Line as "Line" {
        /// Tag of the line.
        pub tag: LineTag = 1;
        /// Text as logged.
        pub text: String = 2;
    }
}

message! {
    /// The logged lines of a request.
    #[derive(Default)]
    pub struct Lines as "Response" {
        /// Lines logged by the policy and its modules, in order.
        pub(crate) kept: Vec<Line> = 22, named("lines"), sparse, no_column;
        /// Number of lines dropped for lack of room.
        pub(crate) lost: u32 = 23, named("lines_lost"), sparse, no_column;
    }
}

inlined! { Lines }

impl Lines {
    /// Adds a line, cut to [`LINE_BYTES_MAX`], or counts it as lost if the record is full.
    pub fn push(&mut self, tag: LineTag, mut text: String) {
        text.truncate(text.floor_char_boundary(LINE_BYTES_MAX));
        let used: usize = self.kept.iter().map(|line| line.text.len()).sum();
        if self.kept.len() < LINES_MAX && used + text.len() <= LINES_BYTES_MAX {
            self.kept.push(Line { tag, text });
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// Iterates over the lines, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Line> {
        self.kept.iter()
    }

    /// Returns the number of dropped lines.
    pub fn lost(&self) -> u32 {
        self.lost
    }
}
