//! Value types of settings: their parsing and bounds, the same in the file and on the command line.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use thalweg_http::Authority;

use thalweg_record::is_name;
use thalweg_units::{Size, Span};

use super::place::Place;

/// A value as written, not yet parsed.
#[derive(Debug, Clone)]
pub(crate) struct Raw {
    pub(crate) written: Written,
    pub(crate) place: Place,
}

/// Shapes of a written value. On the command line, there are only texts and lists.
#[derive(Debug, Clone)]
pub(crate) enum Written {
    Text(String),
    Number(String),
    List(Vec<Raw>),
    /// A shape that no setting accepts, with TOML's name for it.
    Other(&'static str),
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Written::Text(text) => write!(f, "{text:?}"),
            Written::Number(number) => write!(f, "the number {number}"),
            Written::List(_) => f.write_str("a list"),
            Written::Other(kind) => write!(f, "a value of type {kind}"),
        }
    }
}

/// A rejected value: its location (in a list, the location of the item) and the reason.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) place: Place,
    pub(crate) message: String,
}

/// A type that a setting can have.
pub(crate) trait Value: Sized {
    /// Expected form in words, with an example. Completes messages such as "X is not …".
    const FORM: &'static str;

    /// Short name of the form, for help texts and tables.
    const PLACEHOLDER: &'static str;

    /// Whether the type is a list.
    const MANY: bool = false;

    /// Whether the value may be a TOML number in a file. All other values are strings.
    const IS_NUMBER: bool = false;

    /// Parses a value from text. Relative paths are resolved against `base`.
    ///
    /// # Errors
    ///
    /// Returns an error that states the expected form if `text` is invalid.
    fn from_text(text: &str, base: &Path) -> Result<Self, String>;

    /// Parses a raw value.
    ///
    /// # Errors
    ///
    /// Returns an error with its location if the value is invalid; for a list, one per invalid
    /// item.
    fn read(raw: &Raw, base: &Path) -> Result<Self, Vec<Refused>> {
        let value = match &raw.written {
            Written::Text(text) => Self::from_text(text, base),
            Written::Number(text) if Self::IS_NUMBER => Self::from_text(text, base),
            other => Err(format!("expected {}, got {other}", Self::FORM)),
        };
        value.map_err(|message| vec![Refused { place: raw.place, message }])
    }

    /// Returns the number to compare with the bounds. Types without bounds keep the default.
    fn rank(&self) -> u128 {
        0
    }
}

/// Returns the message for a text that is not a value of this type.
pub(super) fn is_not<T: Value>(text: &str) -> String {
    format!("{text:?} is not {}", T::FORM)
}

/// Parses one of the placeholder's words; `values` are in the same order as the words.
pub(super) fn word<T: Value + Copy>(text: &str, values: &[T]) -> Result<T, String> {
    let mut words = T::PLACEHOLDER.split('|').zip(values);
    words.find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| is_not::<T>(text))
}

impl Value for SocketAddr {
    const FORM: &'static str = "an address and a port such as \"127.0.0.1:8080\"";
    const PLACEHOLDER: &'static str = "ADDR:PORT";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        text.parse().map_err(|_| match text.strip_prefix(':').or(text.parse::<u16>().ok().map(|_| text)) {
            Some(port) => {
                format!("{text:?} has no address: write \"127.0.0.1:{port}\" or \"0.0.0.0:{port}\"")
            }
            None if text.starts_with("localhost") => {
                format!("{text:?} is a name: write \"127.0.0.1\" or \"[::1]\"")
            }
            None => is_not::<Self>(text),
        })
    }
}

impl Value for Size {
    const FORM: &'static str = "a size such as \"512MiB\"";
    const PLACEHOLDER: &'static str = "SIZE";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        text.parse().map_err(|fault: thalweg_units::Error| fault.to_string())
    }

    fn rank(&self) -> u128 {
        self.bytes.into()
    }
}

impl Value for Span {
    const FORM: &'static str = "a duration such as \"250ms\"";
    const PLACEHOLDER: &'static str = "DURATION";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        text.parse().map_err(|fault: thalweg_units::Error| fault.to_string())
    }

    fn rank(&self) -> u128 {
        self.duration.as_millis()
    }
}

/// A whole number.
impl Value for usize {
    const FORM: &'static str = "a whole number";
    const PLACEHOLDER: &'static str = "N";
    const IS_NUMBER: bool = true;

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        text.parse().map_err(|_| is_not::<Self>(text))
    }

    fn rank(&self) -> u128 {
        *self as u128
    }
}

/// Any text.
impl Value for String {
    const FORM: &'static str = "a text";
    const PLACEHOLDER: &'static str = "TEXT";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

/// A switch: `on` or `off`.
impl Value for bool {
    const FORM: &'static str = "\"on\" or \"off\"";
    const PLACEHOLDER: &'static str = "on|off";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        word(text, &[true, false])
    }
}

/// A path. In a file, a relative path is resolved against the file's directory.
impl Value for PathBuf {
    const FORM: &'static str = "a path";
    const PLACEHOLDER: &'static str = "PATH";

    fn from_text(text: &str, base: &Path) -> Result<Self, String> {
        if text.is_empty() { Err("the path is empty".to_owned()) } else { Ok(base.join(text)) }
    }
}

/// A URL for browsers: `http` or `https`, without a path or trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicUrl(pub(crate) String);

impl Value for PublicUrl {
    const FORM: &'static str = "an address such as \"https://edge.example.com\"";
    const PLACEHOLDER: &'static str = "URL";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        let url = text.trim_end_matches('/');
        let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        match host.map(|host| Authority::parse(host.as_bytes())) {
            Some(Ok(host)) if !host.host().is_empty() => Ok(Self(url.to_owned())),
            _ => Err(is_not::<Self>(text)),
        }
    }
}

/// A channel name: one path segment that needs no escaping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChannelName(pub(crate) String);

impl Value for ChannelName {
    const FORM: &'static str = "a name of letters, digits, '-', '_' and '.', at most 253";
    const PLACEHOLDER: &'static str = "NAME";

    fn from_text(text: &str, _: &Path) -> Result<Self, String> {
        if text.starts_with('.') || !is_name(text) {
            return Err(is_not::<Self>(text));
        }
        Ok(Self(text.to_owned()))
    }
}

/// One or more values of a type. A single value may be written without a list.
impl<T: Value> Value for Vec<T> {
    const FORM: &'static str = T::FORM;
    const PLACEHOLDER: &'static str = T::PLACEHOLDER;
    const MANY: bool = true;

    fn from_text(text: &str, base: &Path) -> Result<Self, String> {
        T::from_text(text, base).map(|one| vec![one])
    }

    fn read(raw: &Raw, base: &Path) -> Result<Self, Vec<Refused>> {
        let items = match &raw.written {
            Written::List(items) => items.as_slice(),
            _ => std::slice::from_ref(raw),
        };
        if items.is_empty() {
            let message = format!("expected {}, got an empty list", T::FORM);
            return Err(vec![Refused { place: raw.place, message }]);
        }
        let mut values = Vec::new();
        let mut refused = Vec::new();
        for item in items {
            match T::read(item, base) {
                Ok(value) => values.push(value),
                Err(faults) => refused.extend(faults),
            }
        }
        if refused.is_empty() { Ok(values) } else { Err(refused) }
    }
}
