//! Faults found in a document, each with its location and a message.

use std::fmt;

/// Maximum number of faults reported. Further faults are only counted.
pub const FAULTS_MAX: usize = 100;

/// Location of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The document as a whole.
    Whole,
    /// A position in the text; lines and columns count from 1.
    Text {
        /// Line number.
        line: usize,
        /// Column number; 0 for the end of the previous line.
        column: usize,
    },
    /// A value, as a JSON pointer (RFC 6901).
    Value(String),
}

/// A fault in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Location of the fault.
    pub place: Place,
    /// Description of the fault and of valid values.
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

/// All faults found in a document; never empty when returned as an error. `Display` prints one
/// fault per line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    faults: Vec<Fault>,
    more: usize,
}

impl Faults {
    pub(crate) fn alone(place: Place, message: String) -> Self {
        Self { faults: vec![Fault { place, message }], more: 0 }
    }

    /// Adds a fault for the value at the JSON pointer `pointer`, or only counts it if
    /// [`FAULTS_MAX`] faults are already stored.
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

    /// Returns the first [`FAULTS_MAX`] faults, in the order found.
    pub fn all(&self) -> &[Fault] {
        &self.faults
    }

    /// Returns the number of faults beyond [`FAULTS_MAX`].
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
