//! Errors from the spool, queries and sinks. Each states the attempted operation, its location and
//! the cause.

use std::fmt;
use std::path::Path;

/// A failed operation.
#[derive(Debug)]
pub struct Error {
    what: String,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Creates an error without an underlying cause.
    pub(crate) fn refused(what: impl Into<String>) -> Self {
        Self { what: what.into(), cause: None }
    }

    /// Creates an error with a cause.
    pub(crate) fn of(
        what: impl Into<String>,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { what: what.into(), cause: Some(cause.into()) }
    }

    /// Formats the error and its chain of causes on one line, for logs.
    pub(crate) fn chain(&self) -> String {
        let causes = std::iter::successors(std::error::Error::source(self), |error| error.source());
        causes.fold(self.to_string(), |text, cause| format!("{text}: {cause}"))
    }

    /// Returns a `map_err` function that describes a failed file operation.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let what = format!("cannot {what} {}", path.display());
        move |cause| Self::of(what, cause)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

/// Failure to store a batch.
#[derive(Debug)]
pub struct SinkError {
    /// The attempted operation and its location.
    pub what: String,
    /// Whether the failure may pass without intervention. A broker may come back up, but a missing
    /// column needs an operator. Both kinds are retried; the second kind is logged as an error.
    pub is_passing: bool,
    /// The cause.
    pub cause: Box<dyn std::error::Error + Send + Sync>,
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for SinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.cause)
    }
}
