//! Values of settings: how each type is written, read and bounded, the same in the file and on the command
//! line.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use hyper::Uri;
use thalweg_http::Authority;

use thalweg_record::is_name;
use thalweg_record::units::{Size, Span};

use super::place::Place;

/// A value as written, before it has a type.
#[derive(Debug, Clone)]
pub(crate) struct Raw {
    pub(crate) written: Written,
    pub(crate) place: Place,
}

/// The shapes that a value can have in TOML, of which flags have the first and the list.
#[derive(Debug, Clone)]
pub(crate) enum Written {
    Text(String),
    Number(String),
    List(Vec<Raw>),
    /// A shape that no setting has, by TOML's name for it.
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

/// Why a value is refused, and where: in a list it is the item's place.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) place: Place,
    pub(crate) message: String,
}

/// A type that a setting can have.
pub(crate) trait Value: Sized {
    /// The form in words, with an example: it completes both "… is not" and a table's column.
    const FORM: &'static str;

    /// The short name of the form, for help texts and tables.
    const PLACEHOLDER: &'static str;

    /// Whether it is a list.
    const MANY: bool = false;

    /// Reads the text of a value.
    ///
    /// # Errors
    /// A message that says what is allowed.
    fn from_text(text: &str) -> Result<Self, String>;

    /// Reads a value of the shape that this type has in TOML; most are strings.
    ///
    /// # Errors
    /// As [`Value::from_text`].
    fn from_written(written: &Written) -> Result<Self, String> {
        match written {
            Written::Text(text) => Self::from_text(text),
            other => Err(format!("{other} where {} is expected", Self::FORM)),
        }
    }

    /// The value with its relative paths starting at `base`.
    fn relative_to(self, base: &Path) -> Self {
        let _ = base;
        self
    }

    /// Reads what was written at some place.
    ///
    /// # Errors
    /// What is wrong and where; in a list, each item that is.
    fn read(raw: &Raw, base: &Path) -> Result<Self, Vec<Refused>> {
        match Self::from_written(&raw.written) {
            Ok(value) => Ok(value.relative_to(base)),
            Err(message) => Err(vec![Refused { place: raw.place, message }]),
        }
    }

    /// The number that bounds are about, for types that can have any.
    fn rank(&self) -> u128 {
        0
    }
}

impl Value for SocketAddr {
    const FORM: &'static str = "an address and a port such as \"127.0.0.1:8080\"";
    const PLACEHOLDER: &'static str = "ADDR:PORT";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| match text.strip_prefix(':').or(text.parse::<u16>().ok().map(|_| text)) {
            Some(port) => {
                format!("{text:?} has no address: write \"127.0.0.1:{port}\" or \"0.0.0.0:{port}\"")
            }
            None if text.starts_with("localhost") => {
                format!("{text:?} is a name: write \"127.0.0.1\" or \"[::1]\"")
            }
            None => format!("{text:?} is not {}", Self::FORM),
        })
    }
}

impl Value for Size {
    const FORM: &'static str = "a size such as \"512MiB\"";
    const PLACEHOLDER: &'static str = "SIZE";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|fault: thalweg_record::units::Error| fault.to_string())
    }

    fn rank(&self) -> u128 {
        self.bytes.into()
    }
}

impl Value for Span {
    const FORM: &'static str = "a duration such as \"250ms\"";
    const PLACEHOLDER: &'static str = "DURATION";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|fault: thalweg_record::units::Error| fault.to_string())
    }

    fn rank(&self) -> u128 {
        self.duration.as_millis()
    }
}

/// A number of things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) usize);

impl Value for Count {
    const FORM: &'static str = "a whole number";
    const PLACEHOLDER: &'static str = "N";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map(Count).map_err(|_| format!("{text:?} is not {}", Self::FORM))
    }

    fn from_written(written: &Written) -> Result<Self, String> {
        match written {
            Written::Text(text) | Written::Number(text) => Self::from_text(text),
            other => Err(format!("{other} where {} is expected", Self::FORM)),
        }
    }

    fn rank(&self) -> u128 {
        self.0 as u128
    }
}

/// A switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Switch(pub(crate) bool);

impl Value for Switch {
    const FORM: &'static str = "\"on\" or \"off\"";
    const PLACEHOLDER: &'static str = "on|off";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "on" => Ok(Switch(true)),
            "off" => Ok(Switch(false)),
            _ => Err(format!("{text:?} is not {}", Self::FORM)),
        }
    }
}

/// A path; a relative one in a file is relative to that file.
impl Value for PathBuf {
    const FORM: &'static str = "a path";
    const PLACEHOLDER: &'static str = "PATH";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("a path cannot be empty".to_owned()) } else { Ok(PathBuf::from(text)) }
    }

    fn relative_to(self, base: &Path) -> Self {
        base.join(self)
    }
}

/// Where a source pushes to: `http://HOST[:PORT]/ingest/CHANNEL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IngestUrl {
    /// The parsed form.
    pub(crate) uri: Uri,
}

impl Value for IngestUrl {
    const FORM: &'static str = "a publishing point such as \"http://127.0.0.1:8081/ingest/CHANNEL\"";
    const PLACEHOLDER: &'static str = "URL";

    fn from_text(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|_| format!("{text:?} is not {}", Self::FORM))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none_or(str::is_empty) {
            return Err(format!("{text:?} is not {}", Self::FORM));
        }
        if uri.path().trim_end_matches('/').is_empty() {
            return Err(format!("{text:?} names no publishing point: write {}", Self::FORM));
        }
        Ok(IngestUrl { uri })
    }
}

/// A URL as a browser takes it: `http` or `https`, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicUrl {
    /// As written, without a closing slash.
    pub(crate) url: String,
}

impl Value for PublicUrl {
    const FORM: &'static str = "an address such as \"https://edge.example.com\"";
    const PLACEHOLDER: &'static str = "URL";

    fn from_text(text: &str) -> Result<Self, String> {
        let url = text.trim_end_matches('/');
        let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        match host.map(|host| Authority::parse(host.as_bytes())) {
            Some(Ok(host)) if !host.host().is_empty() => Ok(PublicUrl { url: url.to_owned() }),
            _ => Err(format!("{text:?} is not {}", Self::FORM)),
        }
    }
}

/// The name of a channel: one path segment that needs no escaping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChannelName(pub(crate) String);

impl Value for ChannelName {
    const FORM: &'static str = "a name of letters, digits, '-', '_' and '.', at most 253";
    const PLACEHOLDER: &'static str = "NAME";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.starts_with('.') || !is_name(text) {
            return Err(format!("{text:?} is not {}", Self::FORM));
        }
        Ok(ChannelName(text.to_owned()))
    }
}

/// One or more values of a type. A single one needs no list.
impl<T: Value> Value for Vec<T> {
    const FORM: &'static str = T::FORM;
    const PLACEHOLDER: &'static str = T::PLACEHOLDER;
    const MANY: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        T::from_text(text).map(|one| vec![one])
    }

    fn read(raw: &Raw, base: &Path) -> Result<Self, Vec<Refused>> {
        let items = match &raw.written {
            Written::List(items) => items.as_slice(),
            _ => std::slice::from_ref(raw),
        };
        if items.is_empty() {
            let message = format!("an empty list where {} is expected", T::FORM);
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
