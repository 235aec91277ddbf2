//! JSON lines of records, written and read as the field declarations specify.
//!
//! Times are UTC, in RFC 3339 format with milliseconds. Readers ignore unknown fields; writers omit
//! absent values.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::net::SocketAddr;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::value::{Blank, Datum, Invalid, Message, Slot};
use crate::{Error, Field, Kind, ResponseRecord, SCHEMA_VERSION, parse_time, time};

/// Name of the version field.
pub(crate) const VERSION: &str = "v";

impl ResponseRecord {
    /// Appends the record to `out` as one JSON line, including the newline.
    pub fn append_json_line(&self, out: &mut Vec<u8>) {
        write(self, out);
        out.push(b'\n');
    }

    /// Formats the record as one JSON line, without a newline.
    pub fn to_json(&self) -> String {
        let mut out = Vec::new();
        write(self, &mut out);
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    /// Parses one JSON line.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Version`] if the line is a record with another schema version, otherwise
    /// [`Error::Json`].
    pub fn from_json(line: &str) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        serde_json::from_str(line).map_err(|fault| match serde_json::from_str::<Version>(line) {
            Ok(Version { v }) if v != SCHEMA_VERSION => Error::Version { found: v },
            _ => Error::Json(fault),
        })
    }
}

/// Appends a message as a JSON object. The encoder is hand-written for speed: every response writes
/// a line, and field names need no escaping.
fn write(message: &dyn Message, out: &mut Vec<u8>) {
    let mut before = b'{';
    let mut name = |json: &str, out: &mut Vec<u8>| {
        out.extend_from_slice(&[before, b'"']);
        out.extend_from_slice(json.as_bytes());
        out.extend_from_slice(b"\":");
        before = b',';
    };
    if let Some(version) = message.declared().version {
        name(VERSION, out);
        put(&version, out);
    }
    message.each(&mut |field, datum| {
        let is_absent = matches!(datum, Datum::Null) || field.is_sparse && datum.is_default();
        if !is_absent {
            name(field.json, out);
            write_value(field.kind, &datum, out);
        }
    });
    if before == b'{' {
        out.push(b'{');
    }
    out.push(b'}');
}

fn write_value(kind: Kind, datum: &Datum<'_>, out: &mut Vec<u8>) {
    match datum {
        Datum::Bool(value) => put(value, out),
        Datum::Number(unix_us) if matches!(kind, Kind::Time) => {
            write!(out, "\"{:.3}\"", time(*unix_us)).expect("writing to a Vec cannot fail");
        }
        Datum::Number(number) => put(number, out),
        Datum::Text(text) => put(text, out),
        Datum::Address(address) => put(address, out),
        Datum::Part(part) => write(*part, out),
        Datum::List(list) => {
            let mut before = b'[';
            for one in list {
                out.push(before);
                write_value(kind, one, out);
                before = b',';
            }
            out.push(b']');
        }
        Datum::Null | Datum::Ip(_) | Datum::Port(_) => out.extend_from_slice(b"null"),
    }
}

fn put(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("no value is a map, and writing to a Vec cannot fail");
}

impl<'de> Deserialize<'de> for ResponseRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut record = Self::blank();
        Object(&mut record).deserialize(deserializer)?;
        Ok(record)
    }
}

/// Reads a JSON object into a blank message.
struct Object<'m>(&'m mut dyn Message);

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {}", self.0.declared().name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(message) = self;
        let declared = message.declared();
        let fields = declared.fields();
        // `seen` has one bit per field read; `is_true` has one bit per computed flag that is true
        // in the line.
        let (mut seen, mut is_true) = (0u64, 0u64);
        let (mut version, mut next) = (None, 0);
        while let Some(Text(name)) = map.next_key()? {
            // Fields usually arrive in declaration order.
            let mut later = (next..fields.len()).chain(0..next);
            let Some(at) = later.find(|&at| fields[at].json == name) else {
                if declared.version.is_some() && name == VERSION {
                    version = Some(map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
                continue;
            };
            next = at + 1;
            if seen & 1 << at != 0 {
                return Err(A::Error::duplicate_field(fields[at].json));
            }
            seen |= 1 << at;
            match message.slot(at) {
                Some(slot) => map.next_value_seed(Read(&fields[at], slot))?,
                None => {
                    let mut value = false;
                    let field = &fields[at];
                    if matches!(field.kind, Kind::Bool) {
                        map.next_value_seed(Read(field, &mut value))?;
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                    is_true |= u64::from(value) << at;
                }
            }
        }
        let mut has_computed_flag = false;
        for (at, field) in fields.iter().enumerate() {
            has_computed_flag |= field.tag.is_none() && matches!(field.kind, Kind::Bool);
            if seen & 1 << at == 0 && !field.is_optional && field.tag.is_some() {
                let default =
                    if field.is_sparse { message.set_default(at, field) } else { Err(Invalid::new(field)) };
                default.map_err(|_| A::Error::missing_field(field.json))?;
            }
        }
        match (declared.version, version) {
            (Some(_), None) => return Err(A::Error::missing_field(VERSION)),
            (Some(known), Some(found)) if known != found => {
                return Err(A::Error::custom(Error::Version { found }));
            }
            _ => {}
        }
        if has_computed_flag { check_computed(message, is_true).map_err(A::Error::custom) } else { Ok(()) }
    }
}

/// Checks a message's computed flags against the flags in its JSON line. In `is_true`, the bit of
/// each flag that is true in the line is set.
fn check_computed(message: &dyn Message, is_true: u64) -> Result<(), String> {
    let (mut at, mut fault) = (0, None);
    message.each(&mut |field, datum| {
        let is_computed = field.tag.is_none();
        if let (true, Datum::Bool(value)) = (is_computed, datum)
            && value != (is_true >> at & 1 == 1)
        {
            fault = Some(format!("`{}` contradicts the other fields", field.json));
        }
        at += 1;
    });
    fault.map_or(Ok(()), Err)
}

/// Reads a field's value into its slot.
struct Read<'s>(&'static Field, &'s mut dyn Slot);

impl Read<'_> {
    fn set<E: serde::de::Error>(self, datum: Datum<'_>) -> Result<(), E> {
        let Self(field, slot) = self;
        if slot.set(datum) { Ok(()) } else { Err(E::custom(Invalid::new(field))) }
    }
}

impl<'de> DeserializeSeed<'de> for Read<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.0.is_optional { deserializer.deserialize_option(self) } else { self.visit_some(deserializer) }
    }
}

impl<'de> Visitor<'de> for Read<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.json)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<(), E> {
        self.set(Datum::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Self(field, slot) = self;
        let datum = match field.kind {
            Kind::Bool => Datum::Bool(bool::deserialize(deserializer)?),
            Kind::Number(_) => Datum::Number(u64::deserialize(deserializer)?),
            Kind::Text => Datum::Text(Text::deserialize(deserializer)?.0),
            Kind::Word(words) => {
                let Text(word) = Text::deserialize(deserializer)?;
                if !words.all.contains(&&*word) {
                    return Err(D::Error::custom(format!("{word:?} is not one of {}", words.all.join(", "))));
                }
                Datum::Text(word)
            }
            Kind::Time => {
                let Text(text) = Text::deserialize(deserializer)?;
                let unix_us = parse_time(&text).ok_or_else(|| {
                    D::Error::custom(format!(
                        "invalid time {text:?}: expected RFC 3339 from 1970 on, such as 2026-11-20T23:00:00Z"
                    ))
                })?;
                Datum::Number(unix_us)
            }
            Kind::Address => Datum::Address(SocketAddr::deserialize(deserializer)?),
            Kind::Part(_) => {
                let part = slot.part().ok_or_else(|| D::Error::custom(Invalid::new(field)))?;
                return Object(part).deserialize(deserializer);
            }
            Kind::List(_) => return deserializer.deserialize_seq(Objects(field, slot)),
        };
        Self(field, slot).set(datum)
    }
}

/// Reads a JSON array of messages into a list.
struct Objects<'s>(&'static Field, &'s mut dyn Slot);

impl<'de> Visitor<'de> for Objects<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array in {}", self.0.json)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self(field, slot) = self;
        // `Element` appends a blank message only if the array has another element.
        while seq.next_element_seed(Element(field, slot))?.is_some() {}
        Ok(())
    }
}

/// Reads one element of a list.
struct Element<'s>(&'static Field, &'s mut dyn Slot);

impl<'de> DeserializeSeed<'de> for Element<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Self(field, slot) = self;
        let part = slot.part().ok_or_else(|| D::Error::custom(Invalid::new(field)))?;
        Object(part).deserialize(deserializer)
    }
}

/// A string, borrowed from the line unless it contains escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
