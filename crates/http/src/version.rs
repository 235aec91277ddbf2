//! HTTP versions of messages (RFC 9112 §2.3).

/// An HTTP version that this crate supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// `HTTP/1.0`, which has no chunked coding and closes connections by default.
    Http10,
    /// `HTTP/1.1`, and any later minor version received (RFC 9110 §2.5).
    #[default]
    Http11,
}

impl Version {
    /// Returns the version as written in a start line.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        }
    }
}
