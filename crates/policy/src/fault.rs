//! Faults in a policy: message, position and help.

use std::fmt;

use thalweg_units::nearest;

use crate::source::{Place, Sources, Span};

/// Maximum number of faults recorded, because a file that is not VCL would produce thousands.
pub const FAULTS_MAX: usize = 100;

/// Severity of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The policy is rejected.
    Error,
    /// The policy is accepted.
    Warning,
}

/// One error or warning.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Error or warning.
    pub severity: Severity,
    /// Position where the fault starts.
    pub place: Place,
    /// Description of the fault.
    pub message: String,
    /// The remedy: the allowed alternatives, the nearest known name, or an explanation.
    pub help: Option<String>,
    line: String,
    mark: std::ops::Range<usize>,
}

impl Fault {
    /// Returns the source line, with carets below the fault. Both lines are indented by `indent`.
    pub(crate) fn marked(&self, indent: &str) -> String {
        let shown: String =
            self.line.chars().map(|c| if c.is_control() && c != '\t' { ' ' } else { c }).collect();
        let line = format!("{indent}{shown}");
        format!("{}\n{indent}{}", line.trim_end(), self.carets())
    }

    /// Returns the carets to print below the source line. Copies tabs, so that the carets align at
    /// any tab width.
    fn carets(&self) -> String {
        let before = &self.line[..self.mark.start];
        let lead: String = before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        lead + &"^".repeat(self.line[self.mark.clone()].chars().count().max(1))
    }
}

impl fmt::Display for Fault {
    /// Formats the message, the position, the source line with carets, and the help.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let number = self.place.line.to_string();
        let gutter = " ".repeat(number.len());
        writeln!(f, "{severity}: {}", self.message)?;
        writeln!(f, "{gutter}--> {}", self.place)?;
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{number} | {}", self.line)?;
        writeln!(f, "{gutter} | {}", self.carets())?;
        if let Some(help) = &self.help {
            writeln!(f, "{gutter} = {help}")?;
        }
        Ok(())
    }
}

/// All errors and warnings of a policy, in source order.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The faults, in source order.
    pub faults: Vec<Fault>,
}

impl Report {
    /// Returns whether the policy is rejected.
    pub fn has_errors(&self) -> bool {
        self.faults.iter().any(|fault| fault.severity == Severity::Error)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

/// Collects faults by span; [`report`](Self::report) adds their source lines.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    found: Vec<(Severity, Span, String, Option<String>)>,
}

impl Faults {
    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>) {
        self.record(Severity::Error, span, message.into(), None);
    }

    pub(crate) fn error_help(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.record(Severity::Error, span, message.into(), Some(help.into()));
    }

    /// Records an error and returns `None`, so that a caller can report and return in one
    /// expression.
    pub(crate) fn refuse<T>(&mut self, span: Span, message: impl Into<String>) -> Option<T> {
        self.error(span, message);
        None
    }

    /// Like [`refuse`](Self::refuse), but adds help.
    pub(crate) fn refuse_help<T>(
        &mut self,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Option<T> {
        self.error_help(span, message, help);
        None
    }

    pub(crate) fn warning(&mut self, span: Span, message: impl Into<String>, help: Option<String>) {
        self.record(Severity::Warning, span, message.into(), help);
    }

    fn record(&mut self, severity: Severity, span: Span, message: String, help: Option<String>) {
        let is_same =
            |(_, at, what, _): &(Severity, Span, String, Option<String>)| *at == span && *what == message;
        // Record the first error even if warnings have filled the list.
        if (self.found.len() < FAULTS_MAX || (severity == Severity::Error && !self.has_errors()))
            && !self.found.iter().any(is_same)
        {
            self.found.push((severity, span, message, help));
        }
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.found.iter().any(|(severity, ..)| *severity == Severity::Error)
    }

    /// Returns whether an error starts within `whole`.
    pub(crate) fn has_error_in(&self, whole: Span) -> bool {
        self.found.iter().any(|(severity, span, ..)| {
            *severity == Severity::Error
                && span.file == whole.file
                && (whole.start..whole.end).contains(&span.start)
        })
    }

    pub(crate) fn report(mut self, sources: &Sources) -> Report {
        self.found.sort_by_key(|(_, span, ..)| (span.file, span.start));
        let fault = |(severity, span, message, help)| {
            let (line, mark) = sources.line(span);
            Fault { severity, place: sources.place(span), message, help, line: line.to_owned(), mark }
        };
        Report { faults: self.found.into_iter().map(fault).collect() }
    }
}

/// Formats "did you mean …?", or the list of known names if none is close.
pub(crate) fn suggest<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(near) => format!("did you mean {near}?"),
        None => allowed(known),
    }
}

/// Formats "allowed here: a, b, c".
pub(crate) fn allowed<'a>(known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    if known.is_empty() {
        "none are defined".to_owned()
    } else {
        format!("allowed here: {}", known.join(", "))
    }
}
