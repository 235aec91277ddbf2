//! Lines logged for a request, limited in number and length because records wait in bounded queues.
//!
//! **Invariant:** every dropped line is counted.

use crate::LineTag;

/// Maximum number of lines per record.
pub const LINES_MAX: usize = 100;
/// Maximum length of a line's text, in bytes. Longer text is truncated.
pub const LINE_BYTES_MAX: usize = 4 * 1024;
/// Maximum total length of a record's lines, in bytes.
pub const LINES_BYTES_MAX: usize = 16 * 1024;

const _: () = assert!(LINES_BYTES_MAX.is_multiple_of(LINE_BYTES_MAX));

message! {
    /// A line logged for a request.
    pub struct Line as "Line" {
        /// Tag of the line, as in Varnish.
        pub tag: LineTag = 1;
        /// Text of the line, as logged.
        pub text: String = 2;
    }
}

message! {
    /// Lines logged for a request.
    #[derive(Default)]
    pub struct Lines as "Response" {
        /// Lines logged by the policy and its modules, in order.
        pub(crate) kept: Vec<Line> = 22, named("lines"), sparse, no_column;
        /// Number of lines dropped because the record was full.
        pub(crate) lost: u32 = 23, named("lines_lost"), sparse, no_column;
    }
}

inlined! { Lines }

impl Lines {
    /// Adds a line, truncated to [`LINE_BYTES_MAX`]. If the record is full, drops the line and
    /// counts it as lost.
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
