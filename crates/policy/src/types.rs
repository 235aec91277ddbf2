//! VCL types and their conversions to STRING and BOOL.

use std::fmt;

/// A type, named as in Varnish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// An access control list.
    Acl,
    /// A backend, a director or no backend.
    Backend,
    /// A byte string.
    Blob,
    /// Message content; write-only.
    Body,
    /// True or false.
    Bool,
    /// A size, in bytes.
    Bytes,
    /// A time span, in seconds.
    Duration,
    /// One of a fixed set of words.
    Enum(&'static [&'static str]),
    /// A header, given by name; possibly unset.
    Header,
    /// An entire message.
    Http,
    /// A 64-bit integer.
    Int,
    /// An address and a port.
    Ip,
    /// A probe.
    Probe,
    /// A floating-point number.
    Real,
    /// A regular expression.
    Regex,
    /// A storage.
    Stevedore,
    /// A string, possibly unset.
    String,
    /// Several strings to be concatenated.
    Strands,
    /// A point in time, in Unix seconds.
    Time,
    /// No value.
    Void,
}

impl Type {
    /// Returns the type's name.
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

    /// Returns whether the type is a kind of string.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Type::String | Type::Strands | Type::Header)
    }

    /// Returns whether a value of this type converts to STRING.
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

    /// Returns whether a value of this type converts to BOOL.
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
