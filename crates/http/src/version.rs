//! The version of a message (RFC 9112 §2.3).

/// A version that this crate reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// `HTTP/1.0`: no chunked coding, connections close unless asked to stay.
    Http10,
    /// `HTTP/1.1`.
    #[default]
    Http11,
}

impl Version {
    /// As it stands in a start line.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        }
    }
}
