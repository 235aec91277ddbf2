//! Failed requests: a fixed set of error kinds to count, and a description of each failure.

use std::fmt;
use std::io;

named! {
    /// Kinds of errors. A failed request counts only its first error. Unusable content of a
    /// successful request counts as an error of its own.
    pub enum ErrorKind {
        /// Connection refused or server unreachable.
        Connect = "connect",
        /// No connection within the time limit.
        ConnectTimeout = "connect_timeout",
        /// TLS failed: a failed or slow handshake, an untrusted certificate, or an invalid record.
        Tls = "tls",
        /// No local port, file descriptor or memory available.
        Local = "local",
        /// No head within the time limit.
        HeadTimeout = "head_timeout",
        /// No content within the time limit.
        ContentTimeout = "content_timeout",
        /// The server closed the connection before the head was complete.
        NoHead = "no_head",
        /// The server closed or reset the connection before the end of the content.
        Cut = "cut",
        /// The response is not HTTP.
        Malformed = "malformed",
        /// The response does not have the requested range.
        Range = "range",
        /// A redirect, which viewers do not follow.
        Status3xx = "status3xx",
        /// A status from 400 to 499.
        Status4xx = "status4xx",
        /// A status of 500 or above.
        Status5xx = "status5xx",
        /// Content that differs from the expected content.
        Content = "content",
        /// A manifest that a viewer cannot play.
        Manifest = "manifest",
        /// Media that contradicts its CMAF header.
        Media = "media",
        /// A script error, which ends the run, or a response too long for the script, which does
        /// not.
        Script = "script",
    }
}

/// Failure of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Kind under which the failure is counted.
    pub kind: ErrorKind,
    /// Readable description, on one line.
    pub detail: String,
}

impl Failure {
    /// Creates a failure.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// Converts a system call error that occurred while opening a connection.
    pub(super) fn from_connect(error: &io::Error) -> Self {
        let is_local = matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse)
            || matches!(
                error.raw_os_error(),
                Some(libc_codes::EMFILE | libc_codes::ENFILE | libc_codes::ENOBUFS)
            );
        let kind = if is_local { ErrorKind::Local } else { ErrorKind::Connect };
        Self::new(kind, error.to_string())
    }
}

/// Error numbers for which `io::ErrorKind` has no stable name.
mod libc_codes {
    use rustix::io::Errno;

    pub(super) const EMFILE: i32 = Errno::MFILE.raw_os_error();
    pub(super) const ENFILE: i32 = Errno::NFILE.raw_os_error();
    pub(super) const ENOBUFS: i32 = Errno::NOBUFS.raw_os_error();
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Failure {}
