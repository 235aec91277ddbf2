//! What goes wrong with the spool and with queries: what was tried and where, with the cause behind it.

use std::fmt;
use std::path::Path;

/// An operation that failed.
#[derive(Debug)]
pub struct Error {
    what: String,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Why nothing was tried.
    pub(crate) fn refused(what: impl Into<String>) -> Self {
        Self { what: what.into(), cause: None }
    }

    /// What failed, and its cause.
    pub(crate) fn of(
        what: impl Into<String>,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { what: what.into(), cause: Some(cause.into()) }
    }

    /// What failed with a file: a map for `map_err`.
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
