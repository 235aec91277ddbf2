//! What can go wrong with a request: a closed set of kinds, which is what is counted, and a text for people.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

/// The kinds of errors. Each request has one at most, the first; what it brought may be one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Refused or unreachable.
    Connect,
    /// No connection within the time-out.
    ConnectTimeout,
    /// No TLS: a handshake that failed or took too long, a certificate that is not trusted, a record that is not right.
    Tls,
    /// No port, file descriptor or memory left on this side.
    Local,
    /// No head within the time-out.
    HeadTimeout,
    /// Nothing of the content for as long as the time-out.
    ContentTimeout,
    /// The server closed before a whole head.
    NoHead,
    /// The server closed before the end of the content, or reset the connection meanwhile.
    Cut,
    /// What came is not HTTP.
    Malformed,
    /// Not the range that was asked for.
    Range,
    /// A viewer's redirect, which it does not follow.
    Status3xx,
    /// A status from 400 to 499.
    Status4xx,
    /// A status from 500 on.
    Status5xx,
    /// Content that is not what path and offset say.
    Content,
    /// A manifest that a viewer cannot play.
    Manifest,
    /// Media that is not what its CMAF header says.
    Media,
    /// An error of a script; it ends the run, unless it is a response that is too long for it.
    Script,
}

impl ErrorKind {
    /// All of them, in the order in which they are printed.
    pub const ALL: [ErrorKind; 17] = [
        ErrorKind::Connect,
        ErrorKind::ConnectTimeout,
        ErrorKind::Tls,
        ErrorKind::Local,
        ErrorKind::HeadTimeout,
        ErrorKind::ContentTimeout,
        ErrorKind::NoHead,
        ErrorKind::Cut,
        ErrorKind::Malformed,
        ErrorKind::Range,
        ErrorKind::Status3xx,
        ErrorKind::Status4xx,
        ErrorKind::Status5xx,
        ErrorKind::Content,
        ErrorKind::Manifest,
        ErrorKind::Media,
        ErrorKind::Script,
    ];

    /// As in JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Connect => "connect",
            ErrorKind::ConnectTimeout => "connect_timeout",
            ErrorKind::Tls => "tls",
            ErrorKind::Local => "local",
            ErrorKind::HeadTimeout => "head_timeout",
            ErrorKind::ContentTimeout => "content_timeout",
            ErrorKind::NoHead => "no_head",
            ErrorKind::Cut => "cut",
            ErrorKind::Malformed => "malformed",
            ErrorKind::Range => "range",
            ErrorKind::Status3xx => "status3xx",
            ErrorKind::Status4xx => "status4xx",
            ErrorKind::Status5xx => "status5xx",
            ErrorKind::Content => "content",
            ErrorKind::Manifest => "manifest",
            ErrorKind::Media => "media",
            ErrorKind::Script => "script",
        }
    }
}

/// One request's error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What is counted.
    pub kind: ErrorKind,
    /// What happened, for people; one line.
    pub detail: String,
}

impl Failure {
    /// An error of that kind.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// The error of a system call that makes or begins a connection.
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

/// Numbers for which `io::ErrorKind` has no stable name.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for kind in ErrorKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
