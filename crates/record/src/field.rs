//! Field declarations: each record field is declared once, and every encoding is derived from that
//! declaration.
//!
//! To add a field, write one line in its message's declaration (`response.rs`, `socket.rs`,
//! `batch.rs`), with the next free protobuf number, and one line where the field is measured:
//! `edge/src/steering/tcp.rs` for responses, `telemetry/src/collect/` for sockets. JSON,
//! protobuf, table rows and the field names of `thalweg log -q` then include the field. Then
//! `UPDATE_EXPECT=1 cargo test -p thalweg-record -p thalweg-telemetry generated` writes
//! `proto/telemetry.proto`, `console/src/record.ts` and the columns in `schema/`, and fails until
//! `docs/reference/records.md` has a row for the field.
//!
//! `message!` (`declare.rs`) turns a declaration into the struct, its table of [`Field`]s and its
//! `Message` implementation (`value.rs`), which reads and writes the struct field by field.
//! `json.rs`, `proto.rs`, `rows.rs` and `query.rs` use only these tables and values, and name no
//! field.
//!
//! **Invariant:** a protobuf number is never reused for another field.

use crate::value::Type;

/// A declared field.
#[derive(Debug, Clone)]
pub struct Field {
    /// Protobuf message that contains the field.
    pub message: &'static str,
    /// Name in Rust and protobuf.
    pub name: &'static str,
    /// Name in JSON.
    pub json: &'static str,
    /// Column name, or the prefix of a part's column names; `None` if no table has the field.
    pub column: Option<&'static str>,
    /// Type of the field's values.
    pub kind: Kind,
    /// Whether the field may be absent.
    pub is_optional: bool,
    /// Whether JSON omits the field when it is zero, false or empty.
    pub is_sparse: bool,
    /// Whether the column has too many distinct strings for dictionary encoding.
    pub is_text: bool,
    /// Whether the field is an identifier rather than a quantity.
    pub is_id: bool,
    /// Protobuf field number; `None` if the field is computed from other fields. The port of an
    /// address has the next number.
    pub tag: Option<u32>,
    /// Documentation, one item per source line.
    pub doc: &'static [&'static str],
}

/// Type of a field.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A flag.
    Bool,
    /// An unsigned integer of this many bits.
    Number(u8),
    /// A UTF-8 string.
    Text,
    /// A word of a closed set.
    Word(&'static Words),
    /// A time in microseconds since the Unix epoch; RFC 3339 in JSON.
    Time,
    /// An IP address with its port: two protobuf fields and two columns.
    Address,
    /// A nested message: an object in JSON, columns in tables.
    Part(&'static Declared),
    /// A list of messages.
    List(&'static Declared),
}

/// A closed set of words.
#[derive(Debug)]
pub struct Words {
    /// Name of the set.
    pub name: &'static str,
    /// Documentation, one item per source line.
    pub doc: &'static [&'static str],
    /// The words, in order.
    pub all: &'static [&'static str],
}

/// A declared message.
#[derive(Debug)]
pub struct Declared {
    /// Name in Rust and TypeScript.
    pub name: &'static str,
    /// Name in protobuf.
    pub proto: &'static str,
    /// Version that this crate writes, if the message is versioned: field 1 in protobuf, `v` in
    /// JSON.
    pub version: Option<u32>,
    /// Documentation, one item per source line.
    pub doc: &'static [&'static str],
    pub(crate) fields: fn() -> &'static [Field],
}

impl Declared {
    /// Returns the fields, in order.
    pub fn fields(&self) -> &'static [Field] {
        (self.fields)()
    }

    /// Returns the field called `name`, which must exist.
    pub(crate) fn field(&self, name: &str) -> &'static Field {
        self.fields().iter().find(|field| field.name == name).expect("callers name declared fields only")
    }
}

/// Unit of a quantity, derived from the field name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds.
    Micros,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
}

impl Unit {
    /// Returns the unit implied by a field name.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            _ if name.ends_with("_us") => Some(Self::Micros),
            _ if name.ends_with("_bytes_per_s") => Some(Self::BytesPerSecond),
            _ if name == "bytes" || name.starts_with("bytes_") || name.ends_with("_bytes") => {
                Some(Self::Bytes)
            }
            _ => None,
        }
    }
}

/// Constructor, and methods that serve as options in a declaration.
impl Field {
    pub(crate) fn new<T: Type>(
        message: &'static str,
        name: &'static str,
        doc: &'static [&'static str],
    ) -> Self {
        Self {
            message,
            name,
            json: name,
            column: Some(name),
            kind: T::KIND,
            is_optional: T::IS_OPTIONAL,
            is_sparse: false,
            is_text: false,
            is_id: false,
            tag: None,
            doc,
        }
    }

    /// Returns whether this is the protobuf number of the field or, for an address, of its port.
    pub(crate) fn has_tag(&self, tag: u32) -> bool {
        let parts = if matches!(self.kind, Kind::Address) { 2 } else { 1 };
        self.tag.is_some_and(|first| (first..first + parts).contains(&tag))
    }

    pub(crate) fn tag(self, tag: u32) -> Self {
        Self { tag: Some(tag), ..self }
    }

    /// Sets the name in protobuf and JSON, if it differs from the Rust name.
    pub(crate) fn named(self, name: &'static str) -> Self {
        Self { name, json: name, ..self }
    }

    /// Sets the name in JSON, if it differs from the Rust name.
    pub(crate) fn json(self, json: &'static str) -> Self {
        Self { json, ..self }
    }

    /// Sets the column name, if it differs from the field name. For a part, sets the prefix of its
    /// column names.
    pub(crate) fn column(self, column: &'static str) -> Self {
        Self { column: Some(column), ..self }
    }

    /// Excludes the field from tables.
    pub(crate) fn no_column(self) -> Self {
        Self { column: None, ..self }
    }

    /// Marks the field as a point in time.
    pub(crate) fn time(self) -> Self {
        Self { kind: Kind::Time, ..self }
    }

    pub(crate) fn text(self) -> Self {
        Self { is_text: true, ..self }
    }

    pub(crate) fn sparse(self) -> Self {
        Self { is_sparse: true, ..self }
    }

    pub(crate) fn id(self) -> Self {
        Self { is_id: true, ..self }
    }
}
