//! Variables: name, type, access rights and accessors.
//!
//! The table rows are in the submodules [`request`], [`response`] and [`connection`]. Sources:
//! vcl-var(7) of Varnish 7.1, and Fastly's reference for `client.requests`, `client.socket.*`,
//! `client.geo.*` and `client.as.*`.

mod connection;
mod request;
mod response;

use std::borrow::Cow;

use crate::message::Message;
use crate::parse::Version;
use crate::step::Subs;
use crate::task::Task;
use crate::types::Type;
use crate::value::{Failure, Value};

/// Reads a variable.
type Getter = for<'t> fn(&'t Task<'_>) -> Result<Value<'t>, Failure>;
/// Borrows a variable's string value.
type Borrow = for<'t> fn(&'t Task<'_>) -> Result<&'t [u8], Failure>;
/// Sets a variable to a value of its type or, for [`Type::Body`], to a string or blob.
type Setter = for<'t, 'v> fn(&'t mut Task<'_>, Value<'v>) -> Result<(), Failure>;
/// Unsets a variable.
type Unsetter = for<'t> fn(&'t mut Task<'_>) -> Result<(), Failure>;

/// A variable of the policy language.
pub struct Variable {
    /// Name, such as `req.url`, or a pattern, such as `req.http.*` or `storage.*.happy`.
    pub name: &'static str,
    /// Type of the variable's value.
    pub kind: Type,
    /// Subroutines allowed to read the variable.
    pub read: Subs,
    /// Subroutines allowed to set the variable.
    pub set: Subs,
    /// Subroutines allowed to unset the variable.
    pub unset: Subs,
    /// Whether the variable is a Thalweg addition that Varnish lacks.
    pub is_ours: bool,
    only: Option<Version>,
    /// Additional subroutines allowed to set the variable in VCL 4.0.
    set_40: Subs,
    pub(crate) get: Getter,
    /// Fast path for a frequently read string that is always set.
    pub(crate) lend: Option<Borrow>,
    pub(crate) put: Setter,
    pub(crate) drop: Unsetter,
    /// Message of a header pattern such as `req.http.*`.
    pub(crate) message: Option<Message>,
}

impl std::fmt::Debug for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Variable {
    const fn new(name: &'static str, kind: Type, read: Subs, get: Getter) -> Variable {
        Variable {
            name,
            kind,
            read,
            set: Subs::NONE,
            unset: Subs::NONE,
            is_ours: false,
            only: None,
            set_40: Subs::NONE,
            get,
            lend: None,
            put: |_, _| Ok(()),
            drop: |_| Ok(()),
            message: None,
        }
    }

    const fn lent(mut self, lend: Borrow) -> Variable {
        self.lend = Some(lend);
        self
    }

    const fn set(mut self, set: Subs, put: Setter) -> Variable {
        self.set = set;
        self.put = put;
        self
    }

    /// Makes the variable settable in VCL 4.0 only.
    const fn set_40(mut self, set: Subs, put: Setter) -> Variable {
        self.set_40 = set;
        self.put = put;
        self
    }

    const fn unset(mut self, unset: Subs, drop: Unsetter) -> Variable {
        self.unset = unset;
        self.drop = drop;
        self
    }

    const fn only(mut self, version: Version) -> Variable {
        self.only = Some(version);
        self
    }

    const fn ours(mut self) -> Variable {
        self.is_ours = true;
        self
    }

    const fn headers(name: &'static str, message: Message, read: Subs, change: Subs) -> Variable {
        let mut variable = Variable::new(name, Type::Header, read, |_| Ok(Value::Void));
        variable.set = change;
        variable.unset = change;
        variable.message = Some(message);
        variable
    }

    /// Returns the subroutines allowed to set the variable in a file of `version`.
    pub(crate) fn set_in(&self, version: Version) -> Subs {
        if version == Version::V40 { self.set.and(self.set_40) } else { self.set }
    }

    /// Returns the only VCL version that has the variable; `None` if both versions have it.
    pub fn version(&self) -> Option<&'static str> {
        self.only.map(|version| if version == Version::V40 { "4.0" } else { "4.1" })
    }

    pub(crate) fn is_in(&self, version: Version) -> bool {
        self.only.is_none_or(|only| only == version)
    }

    pub(crate) fn is_pattern(&self) -> bool {
        self.name.contains('*')
    }
}

/// Iterates over all variables, including patterns, in the order of the reference.
pub fn all() -> impl Iterator<Item = &'static Variable> + Clone {
    connection::TABLE.iter().chain(&request::TABLE).chain(&response::TABLE)
}

/// Finds the variable called `name`. For a pattern, also returns the part of `name` matched by `*`.
pub(crate) fn find(name: &str, version: Version) -> Option<(&'static Variable, &str)> {
    let exact =
        all().find(|variable| variable.name == name && !variable.is_pattern() && variable.is_in(version));
    if let Some(variable) = exact {
        return Some((variable, ""));
    }
    all().filter(|variable| variable.is_pattern()).find_map(|variable| {
        let (before, after) = variable.name.split_once('*')?;
        let part = name.strip_prefix(before)?.strip_suffix(after)?;
        let is_part = !part.is_empty() && (after.is_empty() || !part.contains('.'));
        is_part.then_some((variable, part))
    })
}

/// Declares a variable that reads a field of the task. With a second set of subroutines, the
/// variable can also be set.
macro_rules! plain {
    ($name:literal, $kind:ident, $read:expr, $($field:ident).+) => {
        Variable::new($name, Type::$kind, $read, |task| Ok(Value::$kind(task.$($field).+)))
    };
    ($name:literal, $kind:ident, $read:expr, $set:expr, $($field:ident).+) => {
        plain!($name, $kind, $read, $($field).+).set($set, |task, value| {
            if let Value::$kind(value) = value {
                task.$($field).+ = value;
            }
            Ok(())
        })
    };
}
pub(crate) use plain;

/// Like [`plain`], but for an optional field: a string, a storage or a duration in seconds.
macro_rules! optional {
    ($name:literal, String, $subs:expr, $($field:ident).+) => {
        Variable::new($name, Type::String, $subs, |task| Ok(Value::maybe(task.$($field).+.as_deref()))).set(
            $subs,
            |task, value| {
                task.$($field).+ = Some(string(value));
                Ok(())
            },
        )
    };
    ($name:literal, Stevedore, $subs:expr, $($field:ident).+) => {
        Variable::new($name, Type::Stevedore, $subs, |task| {
            Ok(Value::Storage(task.$($field).+.as_deref().map(Into::into)))
        })
        .set($subs, |task, value| {
            task.$($field).+ = storage_name(value);
            Ok(())
        })
    };
    ($name:literal, Duration, $subs:expr, $($field:ident).+) => {
        Variable::new($name, Type::Duration, $subs, |task| {
            Ok(Value::Duration(task.$($field).+.unwrap_or(UNSET_S)))
        })
        .set($subs, |task, value| {
            if let Value::Duration(value) = value {
                task.$($field).+ = Some(value);
            }
            Ok(())
        })
    };
}
pub(crate) use optional;

/// Converts a count to an INT; saturates.
fn count(value: impl TryInto<i64>) -> Value<'static> {
    Value::Int(value.try_into().unwrap_or(i64::MAX))
}

/// Converts a transaction number to a STRING.
fn xid(value: u64) -> Value<'static> {
    Value::owned(value.to_string())
}

/// Returns the bytes of a string or blob, for setters.
fn text(value: Value<'_>) -> Vec<u8> {
    match value {
        Value::Text(text) => text.unwrap_or_default().into_owned(),
        Value::Blob(bytes) => bytes.into_owned(),
        _ => Vec::new(),
    }
}

/// Returns [`text`] as a `String`.
fn string(value: Value<'_>) -> String {
    String::from_utf8_lossy(&text(value)).into_owned()
}

fn storage_name(value: Value<'_>) -> Option<String> {
    match value {
        Value::Storage(name) => name.map(Cow::into_owned),
        _ => None,
    }
}

/// Parses an HTTP version supported by the edge.
fn protocol(text: &str) -> Result<thalweg_http::Version, Failure> {
    match text {
        "HTTP/1.0" => Ok(thalweg_http::Version::Http10),
        "HTTP/1.1" => Ok(thalweg_http::Version::Http11),
        _ => Err(Failure::new(format!("unsupported protocol version {text:?}: use HTTP/1.0 or HTTP/1.1"))),
    }
}
