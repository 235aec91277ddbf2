//! Faults of a document: what is wrong, and where.

use std::fmt;

/// Faults that are told; of more, the first ones.
pub const FAULTS_MAX: usize = 100;

/// Where a fault is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The document as a whole.
    Whole,
    /// A byte of the text, line and column counted from 1.
    Text {
        /// The line.
        line: usize,
        /// The column; 0 for the end of the line before.
        column: usize,
    },
    /// A value, as a JSON pointer (RFC 6901).
    Value(String),
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// What, and what would do.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Whole => {}
            Place::Text { line, column } => write!(f, "{line}:{column}: ")?,
            Place::Value(pointer) => write!(f, "{pointer}: ")?,
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a document, at least one fault; each is a line of its text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    faults: Vec<Fault>,
    more: usize,
}

impl Faults {
    pub(crate) fn alone(place: Place, message: String) -> Self {
        Self { faults: vec![Fault { place, message }], more: 0 }
    }

    /// Adds one, about the value at `pointer`.
    pub(crate) fn add(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        if self.faults.len() == FAULTS_MAX {
            self.more += 1;
            return;
        }
        self.faults.push(Fault { place: Place::Value(pointer.into()), message: message.into() });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// The faults, in the order in which they were found; at most [`FAULTS_MAX`].
    pub fn all(&self) -> &[Fault] {
        &self.faults
    }

    /// How many more there are.
    pub fn more(&self) -> usize {
        self.more
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        if self.more > 0 { write!(f, "\nand {} more", self.more) } else { Ok(()) }
    }
}

impl std::error::Error for Faults {}
