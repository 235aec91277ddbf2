//! Values at run time, and what each becomes as text.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};

use thalweg_http::{date, number};

use crate::source::Place;
use crate::task::{Backend, Message};

/// A value that a variable or a function gives or is given.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'v> {
    /// Nothing.
    Void,
    /// BOOL
    Bool(bool),
    /// INT
    Int(i64),
    /// REAL
    Real(f64),
    /// TIME, unix seconds
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
    /// BLOB that stands for a `directors.shard_param`, by its object; it has no octets.
    Parameters(u32),
    /// BACKEND
    Backend(Backend),
    /// STEVEDORE, by its name.
    Storage(Option<Cow<'v, str>>),
    /// HEADER
    Header(Message, &'v str),
    /// HTTP
    Http(Message),
    /// ENUM
    Word(&'static str),
    /// REGEX, by its index in the program.
    Regex(u32),
}

impl<'v> Value<'v> {
    /// A text.
    pub fn text(text: &'v str) -> Value<'v> {
        Value::Text(Some(Cow::Borrowed(text.as_bytes())))
    }

    /// A text of its own.
    pub fn owned(text: impl Into<Vec<u8>>) -> Value<'v> {
        Value::Text(Some(Cow::Owned(text.into())))
    }

    /// A text that may be unset.
    pub fn maybe(text: Option<&'v str>) -> Value<'v> {
        Value::Text(text.map(|text| Cow::Borrowed(text.as_bytes())))
    }
}

/// Writes an integer.
pub(crate) fn write_int(value: i64, into: &mut Vec<u8>) {
    if value < 0 {
        into.push(b'-');
    }
    into.extend_from_slice(number::format(value.unsigned_abs(), &mut [0; number::DECIMAL_BYTES_MAX]));
}

/// Three decimals, as Varnish writes REAL and DURATION.
pub(crate) fn write_real(value: f64, into: &mut Vec<u8>) {
    write!(into, "{value:.3}").expect("a vector takes all that is written");
}

/// An IMF-fixdate; a time before 1970 is 1970.
pub(crate) fn write_time(value: f64, into: &mut Vec<u8>) {
    into.extend_from_slice(&date::format(value.max(0.0) as u64));
}

/// The address without its port.
pub(crate) fn write_ip(value: SocketAddr, into: &mut Vec<u8>) {
    let IpAddr::V4(address) = value.ip().to_canonical() else {
        return write!(into, "{}", value.ip()).expect("a vector takes all that is written");
    };
    for (at, part) in address.octets().into_iter().enumerate() {
        if at > 0 {
            into.push(b'.');
        }
        write_int(i64::from(part), into);
    }
}

/// The status of a final response: a number whose last three digits, which alone go out, are those of one.
pub(crate) fn final_status(value: i64) -> Result<u16, Failure> {
    let status = u16::try_from(value).ok().filter(|status| status % 1000 >= 200);
    status.ok_or_else(|| Failure::new(format!("{value} is no status of a final response")))
}

/// Why an evaluation ended: the request is answered with 503.
///
/// One pointer, so that what succeeds does not carry the room for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(Box<(String, Option<Place>)>);

impl Failure {
    /// A failure whose place the evaluator adds.
    pub fn new(what: impl Into<String>) -> Failure {
        Failure(Box::new((what.into(), None)))
    }

    /// What.
    pub fn what(&self) -> &str {
        &self.0.0
    }

    /// The statement that failed.
    pub fn place(&self) -> Option<&Place> {
        self.0.1.as_ref()
    }

    /// Says where, unless that was said before.
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
