//! The types of the language and what each becomes as text.

use std::fmt;

/// A type, named as in Varnish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// A list of addresses.
    Acl,
    /// A backend, a director, or none.
    Backend,
    /// Octets.
    Blob,
    /// Content: it can be set, not read.
    Body,
    /// True or false.
    Bool,
    /// A size, in bytes.
    Bytes,
    /// Seconds.
    Duration,
    /// One of some words.
    Enum(&'static [&'static str]),
    /// A header by its name, which may be unset.
    Header,
    /// A whole message.
    Http,
    /// An integer of 64 bits.
    Int,
    /// An address and a port.
    Ip,
    /// A probe.
    Probe,
    /// A number with a fraction.
    Real,
    /// A regular expression.
    Regex,
    /// A storage.
    Stevedore,
    /// Text, which may be unset.
    String,
    /// Several texts, joined.
    Strands,
    /// Seconds since 1970.
    Time,
    /// Nothing.
    Void,
}

impl Type {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Type::Acl => "ACL",
            Type::Backend => "BACKEND",
            Type::Blob => "BLOB",
            Type::Body => "BODY",
            Type::Bool => "BOOL",
            Type::Bytes => "BYTES",
            Type::Duration => "DURATION",
            Type::Enum(_) => "ENUM",
            Type::Header => "HEADER",
            Type::Http => "HTTP",
            Type::Int => "INT",
            Type::Ip => "IP",
            Type::Probe => "PROBE",
            Type::Real => "REAL",
            Type::Regex => "REGEX",
            Type::Stevedore => "STEVEDORE",
            Type::String => "STRING",
            Type::Strands => "STRANDS",
            Type::Time => "TIME",
            Type::Void => "VOID",
        }
    }

    /// Text as it is.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Type::String | Type::Strands | Type::Header)
    }

    /// Whether a value has a form as text.
    pub(crate) fn has_text(self) -> bool {
        self.is_text()
            || matches!(
                self,
                Type::Backend
                    | Type::Bool
                    | Type::Bytes
                    | Type::Duration
                    | Type::Int
                    | Type::Ip
                    | Type::Real
                    | Type::Stevedore
                    | Type::Time
            )
    }

    /// Whether a value is true or false by itself.
    pub(crate) fn has_truth(self) -> bool {
        self.is_text()
            || matches!(self, Type::Backend | Type::Bool | Type::Duration | Type::Int | Type::Stevedore)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
