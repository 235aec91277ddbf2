//! Locations of settings, and faults at these locations.

use std::fmt;
use std::ops::Range;

use super::declare::Setting;

/// Where a value is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A position in the config file. Lines and columns start at 1; columns count characters.
    File { line: usize, column: usize },
    /// On the command line: the setting's flag, or the command itself if a flag is missing.
    Command,
    /// Nowhere: the setting has its default.
    Default,
}

impl Place {
    /// Returns the location at which the byte range `span` of `text` starts.
    pub(crate) fn in_file(text: &str, span: &Range<usize>) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place::File {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// Returns line and column for sorting; locations outside the file sort first.
    fn order(self) -> (usize, usize) {
        match self {
            Place::File { line, column } => (line, column),
            Place::Command | Place::Default => (0, 0),
        }
    }
}

/// A fault in the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    /// The invalid or missing setting, if the fault concerns a single setting.
    pub(crate) setting: Option<&'static Setting>,
    pub(crate) message: String,
}

/// All faults of the settings, displayed one per line in file order.
#[derive(Debug)]
pub(crate) struct Faults {
    file: String,
    faults: Vec<Fault>,
}

impl Faults {
    /// Sorts `faults` into file order. `file` is the file name as given by the user, or empty if
    /// flags were used.
    pub(crate) fn new(file: &str, mut faults: Vec<Fault>) -> Self {
        faults.sort_by_key(|fault| fault.place.order());
        Self { file: file.to_owned(), faults }
    }

    /// Wraps a single fault without a location.
    pub(crate) fn alone(message: String) -> Self {
        Self::new("", vec![Fault { place: Place::Command, setting: None, message }])
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            self.write_place(f, fault)?;
            f.write_str(&fault.message)?;
        }
        Ok(())
    }
}

impl Faults {
    fn write_place(&self, f: &mut fmt::Formatter<'_>, fault: &Fault) -> fmt::Result {
        if let Place::File { line, column } = fault.place {
            write!(f, "{}:{line}:{column}: ", self.file)?;
        }
        let Some(setting) = fault.setting else { return Ok(()) };
        match fault.place {
            Place::File { .. } => write!(f, "{}: ", setting.name),
            Place::Command => write!(f, "{}: ", setting.flag()),
            Place::Default if self.file.is_empty() => write!(f, "{}, by default: ", setting.flag()),
            Place::Default => write!(f, "{}: {}.{}, by default: ", self.file, setting.section, setting.name),
        }
    }
}

impl std::error::Error for Faults {}
