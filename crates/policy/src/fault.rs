//! What is wrong with a policy: message, place, and what is allowed there.

use std::fmt;

use crate::source::{Place, Sources, Span};

/// Faults that are kept; a file that is none of ours would give thousands.
pub const FAULTS_MAX: usize = 100;
/// How alike two names are for one to be a suggestion for the other, by Jaro and Winkler.
const LIKENESS_MIN: f64 = 0.8;

/// How grave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The policy is refused.
    Error,
    /// The policy runs.
    Warning,
}

/// One thing wrong.
#[derive(Debug, Clone)]
pub struct Fault {
    /// How grave.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// What.
    pub message: String,
    /// What is allowed here, the nearest name, or why.
    pub help: Option<String>,
    line: String,
    mark: std::ops::Range<usize>,
}

impl fmt::Display for Fault {
    /// Message, place, line, carets under the piece, help.
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
        // A tab stays a tab, so the carets stand under the piece whatever a tab's width.
        let before = &self.line[..self.mark.start];
        let lead: String = before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let carets = self.line[self.mark.clone()].chars().count().max(1);
        writeln!(f, "{gutter} | {lead}{}", "^".repeat(carets))?;
        if let Some(help) = &self.help {
            writeln!(f, "{gutter} = {help}")?;
        }
        Ok(())
    }
}

/// All that was found in a policy, errors and warnings, in the order of the text.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The faults, in the order of the text.
    pub faults: Vec<Fault>,
}

impl Report {
    /// Whether the policy is refused.
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

/// Collects faults while the text is at hand elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    found: Vec<(Severity, Span, String, Option<String>)>,
}

impl Faults {
    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>) {
        self.put(Severity::Error, span, message.into(), None);
    }

    pub(crate) fn error_help(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.put(Severity::Error, span, message.into(), Some(help.into()));
    }

    pub(crate) fn warning(&mut self, span: Span, message: impl Into<String>, help: Option<String>) {
        self.put(Severity::Warning, span, message.into(), help);
    }

    fn put(&mut self, severity: Severity, span: Span, message: String, help: Option<String>) {
        let said =
            |(_, at, what, _): &(Severity, Span, String, Option<String>)| *at == span && *what == message;
        // An error must not be lost behind warnings.
        if (self.found.len() < FAULTS_MAX || (severity == Severity::Error && !self.has_errors()))
            && !self.found.iter().any(said)
        {
            self.found.push((severity, span, message, help));
        }
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.found.iter().any(|(severity, ..)| *severity == Severity::Error)
    }

    /// Whether there is an error within `whole`.
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

/// The known name most like `name`, if one is near.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_ascii_lowercase();
    let likeness = |candidate: &str| {
        let candidate = candidate.to_ascii_lowercase();
        // Two letters swapped in a short name, which Jaro and Winkler see as two wrong ones.
        let is_swapped = name.len() >= 3 && strsim::osa_distance(&name, &candidate) == 1;
        strsim::jaro_winkler(&name, &candidate).max(if is_swapped { LIKENESS_MIN } else { 0.0 })
    };
    // What both begin with up to a dot, or the vcl_ of subroutines, makes names alike that are not: of the rest half at
    // least is right, or it is the beginning.
    let is_plausible = |candidate: &str| {
        let candidate = candidate.to_ascii_lowercase();
        let same = name.bytes().zip(candidate.bytes()).take_while(|(a, b)| a == b).count();
        let scope = name.as_bytes()[..same].iter().rposition(|byte| *byte == b'.').map_or(0, |dot| dot + 1);
        let scope = if scope == 0 && same >= 4 && name.starts_with("vcl_") { 4 } else { scope };
        let (own, other) = (&name[scope..], &candidate[scope..]);
        (own.len() >= 3 && other.starts_with(own))
            || strsim::osa_distance(own, other) <= own.chars().count().div_ceil(2)
    };
    known
        .into_iter()
        .map(|candidate| (likeness(candidate), candidate))
        .filter(|(likeness, candidate)| *likeness >= LIKENESS_MIN && is_plausible(candidate))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// "did you mean …?", else what is known.
pub(crate) fn suggest<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(near) => format!("did you mean {near}?"),
        None => allowed(known),
    }
}

/// "allowed here: a, b, c".
pub(crate) fn allowed<'a>(known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    if known.is_empty() {
        "none is known here".to_owned()
    } else {
        format!("allowed here: {}", known.join(", "))
    }
}
