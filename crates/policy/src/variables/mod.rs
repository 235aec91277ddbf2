//! What a variable is: name, type, where it may be read, set and unset, and what it is in the running task.
//!
//! The table is in the files beside: [`request`], [`response`], [`connection`]. Nothing else knows a variable's name.
//! Sources: vcl-var(7) of Varnish 7.1, and for `client.requests`, `client.socket.*`, `client.geo.*` and
//! `client.as.*` Fastly's reference.

mod connection;
mod request;
mod response;

use std::borrow::Cow;

use crate::parse::Version;
use crate::step::Subs;
use crate::task::{Message, Task};
use crate::types::Type;
use crate::value::{Failure, Value};

/// Reads it.
type Get = for<'t> fn(&'t Task<'_>) -> Result<Value<'t>, Failure>;
/// Its text where it lies.
type Lend = for<'t> fn(&'t Task<'_>) -> Result<&'t [u8], Failure>;
/// Sets it to a value of its type, or for [`Type::Body`] to text.
type Put = for<'t, 'v> fn(&'t mut Task<'_>, Value<'v>) -> Result<(), Failure>;
/// Unsets it.
type Drop = for<'t> fn(&'t mut Task<'_>) -> Result<(), Failure>;

/// A variable.
pub struct Variable {
    /// `req.url`, or a pattern: `req.http.*`, `storage.*.happy`.
    pub name: &'static str,
    /// Its type.
    pub kind: Type,
    /// Where it may be read.
    pub read: Subs,
    /// Where it may be set.
    pub set: Subs,
    /// Where it may be unset.
    pub unset: Subs,
    /// Whether it is none of Varnish's.
    pub is_ours: bool,
    only: Option<Version>,
    /// Where in 4.0 it may be set beside.
    set_40: Subs,
    pub(crate) get: Get,
    /// For a text that is always there, and asked for often.
    pub(crate) lend: Option<Lend>,
    pub(crate) put: Put,
    pub(crate) drop: Drop,
    /// For a pattern: whose headers they are.
    pub(crate) message: Option<Message>,
}

impl std::fmt::Debug for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Variable {
    const fn new(name: &'static str, kind: Type, read: Subs, get: Get) -> Variable {
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

    const fn lent(mut self, lend: Lend) -> Variable {
        self.lend = Some(lend);
        self
    }

    const fn set(mut self, set: Subs, put: Put) -> Variable {
        self.set = set;
        self.put = put;
        self
    }

    /// Set in 4.0 alone.
    const fn set_40(mut self, set: Subs, put: Put) -> Variable {
        self.set_40 = set;
        self.put = put;
        self
    }

    const fn unset(mut self, unset: Subs, drop: Drop) -> Variable {
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

    /// Where it may be set in a file of `version`.
    pub(crate) fn set_in(&self, version: Version) -> Subs {
        if version == Version::V40 { self.set.and(self.set_40) } else { self.set }
    }

    /// Which version it is in, if not in both.
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

/// All variables, patterns among them, in the order of the reference.
pub fn all() -> impl Iterator<Item = &'static Variable> + Clone {
    connection::TABLE.iter().chain(&request::TABLE).chain(&response::TABLE)
}

/// A variable, and for a pattern what stood for its star.
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

/// A getter, and if there is a second list of subroutines a setter, of a field of the task.
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

/// A count.
fn count(value: impl TryInto<i64>) -> Value<'static> {
    Value::Int(value.try_into().unwrap_or(i64::MAX))
}

/// A number that names a transaction.
fn xid(value: u64) -> Value<'static> {
    Value::owned(value.to_string())
}

/// The text of `value`, which a setter of text was given.
fn text(value: Value<'_>) -> Vec<u8> {
    match value {
        Value::Text(text) => text.unwrap_or_default().into_owned(),
        Value::Blob(bytes) => bytes.into_owned(),
        _ => Vec::new(),
    }
}

/// As [`text`], for what is kept as a string.
fn string(value: Value<'_>) -> String {
    String::from_utf8_lossy(&text(value)).into_owned()
}

fn storage_name(value: Value<'_>) -> Option<String> {
    match value {
        Value::Storage(name) => name.map(Cow::into_owned),
        _ => None,
    }
}

/// A protocol version that we speak.
fn protocol(text: &str) -> Result<thalweg_http::Version, Failure> {
    match text {
        "HTTP/1.0" => Ok(thalweg_http::Version::Http10),
        "HTTP/1.1" => Ok(thalweg_http::Version::Http11),
        _ => Err(Failure::new(format!("{text:?} is no version of the protocol; HTTP/1.0 and HTTP/1.1 are"))),
    }
}
