//! Run-time values and their string form.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};

use thalweg_http::{date, number};

use crate::message::Message;
use crate::source::Place;

/// A reference to a backend in a policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backend {
    /// No backend. Where one is required, the default backend is used.
    #[default]
    None,
    /// The index in [`Program::backends`](crate::Program::backends).
    Declared(u32),
    /// The object index of a director; [`Program::resolve`](crate::Program::resolve) selects its
    /// backend.
    Director(u32),
}

/// The value of a variable, an argument or a result.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'v> {
    /// No value.
    Void,
    /// BOOL
    Bool(bool),
    /// INT
    Int(i64),
    /// REAL
    Real(f64),
    /// TIME, Unix seconds
    Time(f64),
    /// DURATION, seconds
    Duration(f64),
    /// BYTES
    Bytes(i64),
    /// IP
    Ip(SocketAddr),
    /// STRING; `None` is an unset header.
    Text(Option<Cow<'v, [u8]>>),
    /// BLOB
    Blob(Cow<'v, [u8]>),
    /// A BLOB that refers to a `directors.shard_param` by object index and has no bytes.
    Parameters(u32),
    /// BACKEND
    Backend(Backend),
    /// STEVEDORE, by name.
    Storage(Option<Cow<'v, str>>),
    /// HEADER
    Header(Message, &'v str),
    /// HTTP
    Http(Message),
    /// ENUM
    Word(&'static str),
    /// REGEX, by index in the program.
    Regex(u32),
}

impl<'v> Value<'v> {
    /// Creates a borrowed STRING.
    pub fn text(text: &'v str) -> Value<'v> {
        Value::Text(Some(Cow::Borrowed(text.as_bytes())))
    }

    /// Creates an owned STRING.
    pub fn owned(text: impl Into<Vec<u8>>) -> Value<'v> {
        Value::Text(Some(Cow::Owned(text.into())))
    }

    /// Creates a STRING that may be unset.
    pub fn maybe(text: Option<&'v str>) -> Value<'v> {
        Value::Text(text.map(|text| Cow::Borrowed(text.as_bytes())))
    }

    /// Returns this value with borrowed content.
    pub(crate) fn lend(&self) -> Value<'_> {
        match self {
            Value::Text(text) => Value::Text(text.as_deref().map(Cow::Borrowed)),
            Value::Blob(bytes) => Value::Blob(Cow::Borrowed(bytes)),
            Value::Storage(name) => Value::Storage(name.as_deref().map(Cow::Borrowed)),
            other => other.clone(),
        }
    }

    /// Returns this value with owned content. A HEADER, which can only be borrowed from the
    /// program, becomes [`Value::Void`].
    pub(crate) fn into_owned(self) -> Value<'static> {
        match self {
            Value::Void | Value::Header(..) => Value::Void,
            Value::Bool(value) => Value::Bool(value),
            Value::Int(value) => Value::Int(value),
            Value::Real(value) => Value::Real(value),
            Value::Time(value) => Value::Time(value),
            Value::Duration(value) => Value::Duration(value),
            Value::Bytes(value) => Value::Bytes(value),
            Value::Ip(value) => Value::Ip(value),
            Value::Text(text) => Value::Text(text.map(|text| Cow::Owned(text.into_owned()))),
            Value::Blob(bytes) => Value::Blob(Cow::Owned(bytes.into_owned())),
            Value::Parameters(object) => Value::Parameters(object),
            Value::Backend(value) => Value::Backend(value),
            Value::Storage(name) => Value::Storage(name.map(|name| Cow::Owned(name.into_owned()))),
            Value::Http(message) => Value::Http(message),
            Value::Word(word) => Value::Word(word),
            Value::Regex(regex) => Value::Regex(regex),
        }
    }
}

/// Appends an integer.
pub(crate) fn write_int(value: i64, into: &mut Vec<u8>) {
    if value < 0 {
        into.push(b'-');
    }
    into.extend_from_slice(number::format(value.unsigned_abs(), &mut [0; number::DECIMAL_BYTES_MAX]));
}

/// Appends a number with three decimals, as Varnish formats REAL and DURATION.
pub(crate) fn write_real(value: f64, into: &mut Vec<u8>) {
    write!(into, "{value:.3}").expect("writing to a Vec cannot fail");
}

/// Appends an IMF-fixdate; clamps times before 1970 to 1970.
pub(crate) fn write_time(value: f64, into: &mut Vec<u8>) {
    into.extend_from_slice(&date::format(value.max(0.0) as u64));
}

/// Appends the address without its port.
pub(crate) fn write_ip(value: SocketAddr, into: &mut Vec<u8>) {
    let IpAddr::V4(address) = value.ip().to_canonical() else {
        return write!(into, "{}", value.ip()).expect("writing to a Vec cannot fail");
    };
    for (at, part) in address.octets().into_iter().enumerate() {
        if at > 0 {
            into.push(b'.');
        }
        write_int(i64::from(part), into);
    }
}

/// Checks the status of a final response. Only the last three digits are sent, and they must be at
/// least 200.
pub(crate) fn final_status(value: i64) -> Result<u16, Failure> {
    let status = u16::try_from(value).ok().filter(|status| status % 1000 >= 200);
    status.ok_or_else(|| Failure::new(format!("{value} is not the status of a final response")))
}

/// Reason why evaluation failed. The request ends with 503.
///
/// The type is as small as a pointer, so that `Result`s stay small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(Box<(String, Option<Place>)>);

impl Failure {
    /// Creates a failure without a position; the evaluator adds one.
    pub fn new(what: impl fmt::Display) -> Failure {
        Failure(Box::new((what.to_string(), None)))
    }

    /// Returns a description of the failure.
    pub fn what(&self) -> &str {
        &self.0.0
    }

    /// Returns the position of the statement that failed.
    pub fn place(&self) -> Option<&Place> {
        self.0.1.as_ref()
    }

    /// Adds a position, unless the failure already has one.
    pub(crate) fn at(mut self, place: impl FnOnce() -> Place) -> Failure {
        self.0.1.get_or_insert_with(place);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            Some(place) => write!(f, "{}:{}: {}", place.file, place.line, self.what()),
            None => f.write_str(self.what()),
        }
    }
}

impl std::error::Error for Failure {}
