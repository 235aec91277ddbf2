//! Protobuf encoding of batches, as the field declarations specify. `proto/telemetry.proto` is
//! generated from the same declarations for third-party readers.
//!
//! **Invariant:** decoded input is validated: every address has 4 or 16 bytes, every word belongs
//! to its set, and every version is known.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use prost::encoding::{
    DecodeContext, WireType, check_wire_type, decode_key, decode_varint, encode_key, encode_varint,
    skip_field,
};

use crate::batch::Spooled;
use crate::value::{Blank, Build, Datum, Invalid, Message, Put, Slot, Type};
use crate::{
    Batch, Declared, EdgePosition, Entry, Field, Kind, LossRecord, Record, ResponseRecord, SocketRecord,
    Source,
};

/// Reason why bytes do not decode as a batch.
#[derive(Debug)]
pub enum DecodeError {
    /// The bytes are not protobuf, or do not follow this schema.
    Wire(prost::DecodeError),
    /// A field has an invalid value.
    Value {
        /// Names of the message and the field.
        field: String,
    },
    /// A record has a newer version than this release can read.
    Version {
        /// Name of the message.
        message: &'static str,
        /// Version in the message.
        found: u32,
        /// Newest known version.
        known: u32,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(_) => f.write_str("not a telemetry batch"),
            Self::Value { field } => write!(f, "invalid value for {field}"),
            Self::Version { message, found, known } => {
                write!(f, "{message} has version {found}, but this program reads up to version {known}")
            }
        }
    }
}

impl std::error::Error for DecodeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Wire(cause) => Some(cause),
            Self::Value { .. } | Self::Version { .. } => None,
        }
    }
}

impl From<prost::DecodeError> for DecodeError {
    fn from(cause: prost::DecodeError) -> Self {
        Self::Wire(cause)
    }
}

impl From<Invalid> for DecodeError {
    fn from(Invalid(field): Invalid) -> Self {
        Self::Value { field }
    }
}

impl Batch {
    /// Appends the batch to `out` as one `thalweg.Batch`, without a length prefix.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Self::encode_some(&self.source, &self.entries, out);
    }

    /// Like [`Batch::encode`], but for borrowed entries.
    pub fn encode_some<'a>(source: &Source, entries: impl IntoIterator<Item = &'a Entry>, out: &mut Vec<u8>) {
        write(source, out);
        let field = Self::DECLARED.field("entries");
        entries.into_iter().for_each(|entry| write_field(field, Datum::Part(entry), out));
    }

    /// Decodes a batch encoded by this or another release.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not a batch, or a record has a version that this release
    /// cannot read.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        decode(bytes)
    }
}

impl EdgePosition {
    /// Appends edge positions to `out`, which must end with an encoded batch.
    pub fn encode<'a>(heard: impl Iterator<Item = &'a Self>, out: &mut Vec<u8>) {
        // Decoding concatenated encodings merges the messages (protobuf's "Last One Wins").
        let field = Spooled::DECLARED.field("heard");
        heard.for_each(|one| write_field(field, Datum::Part(one), out));
    }

    /// Decodes the edge positions that follow a batch.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not a batch.
    pub fn decode(bytes: &[u8]) -> Result<Vec<Self>, DecodeError> {
        Ok(decode::<Spooled>(bytes)?.heard)
    }
}

const EXACTLY_ONE: &[&str] = &[" Exactly one of socket, response and loss is present."];

/// Indices of an entry's three record fields, exactly one of which is present.
const SOCKET: usize = 0;
const RESPONSE: usize = 1;
const LOSS: usize = 2;

/// A record is stored in one of its entry's three record fields.
impl Type for Record {
    const KIND: Kind = Kind::Part(ResponseRecord::DECLARED);
    const WIDTH: usize = 3;

    fn datum(&self) -> Datum<'_> {
        match self {
            Self::Socket(record) => Datum::Part(&**record),
            Self::Response(record) => Datum::Part(&**record),
            Self::Loss(record) => Datum::Part(record),
        }
    }

    fn declare(_: Field, fields: &mut Vec<Field>) {
        fields.push(Field::new::<Option<SocketRecord>>("Entry", "socket", EXACTLY_ONE).tag(4));
        fields.push(Field::new::<Option<ResponseRecord>>("Entry", "response", &[]).tag(5));
        fields.push(Field::new::<Option<LossRecord>>("Entry", "loss", &[]).tag(6));
    }

    fn put<'a>(&'a self, to: &mut Put<'_, 'a>) {
        let at = match self {
            Self::Socket(_) => SOCKET,
            Self::Response(_) => RESPONSE,
            Self::Loss(_) => LOSS,
        };
        (0..Self::WIDTH).for_each(|kind| to.put(if kind == at { self.datum() } else { Datum::Null }));
    }

    fn slot(&mut self, index: usize) -> Option<&mut dyn Slot> {
        *self = match index {
            SOCKET => Self::Socket(Box::new(SocketRecord::blank())),
            RESPONSE => Self::Response(Arc::new(ResponseRecord::blank())),
            _ => Self::Loss(LossRecord::blank()),
        };
        Some(self)
    }

    fn is_whole(&self, seen: u64) -> bool {
        (seen & (1 << SOCKET | 1 << RESPONSE | 1 << LOSS)).count_ones() == 1
    }
}

impl Blank for Record {
    fn blank() -> Self {
        Self::Loss(LossRecord::blank())
    }
}

impl Slot for Record {
    fn set(&mut self, _: Datum<'_>) -> bool {
        false
    }

    fn part(&mut self) -> Option<&mut dyn Message> {
        match self {
            Self::Socket(record) => Some(&mut **record),
            // A blank record is not shared yet.
            Self::Response(record) => Arc::get_mut(record).map(|record| record as &mut dyn Message),
            Self::Loss(record) => Some(record),
        }
    }
}

/// Protobuf number of the version field.
const VERSION_TAG: u32 = 1;

/// Appends a message's fields.
fn write(message: &dyn Message, out: &mut Vec<u8>) {
    if let Some(version) = message.declared().version {
        write_number(VERSION_TAG, version.into(), out);
    }
    message.each(&mut |field, datum| write_field(field, datum, out));
}

fn write_field(field: &Field, datum: Datum<'_>, out: &mut Vec<u8>) {
    let Some(tag) = field.tag else { return };
    if !field.is_optional && datum.is_default() {
        return;
    }
    match datum {
        Datum::Null | Datum::Ip(_) | Datum::Port(_) => {}
        Datum::Bool(value) => write_number(tag, value.into(), out),
        Datum::Number(number) => write_number(tag, number, out),
        Datum::Text(text) => write_bytes(tag, text.as_bytes(), out),
        Datum::Address(address) => {
            match address.ip() {
                IpAddr::V4(ip) => write_bytes(tag, &ip.octets(), out),
                IpAddr::V6(ip) => write_bytes(tag, &ip.octets(), out),
            }
            if address.port() > 0 {
                write_number(tag + 1, address.port().into(), out);
            }
        }
        Datum::Part(part) => write_part(tag, part, out),
        Datum::List(list) => list.into_iter().for_each(|one| write_field(field, one, out)),
    }
}

fn write_number(tag: u32, number: u64, out: &mut Vec<u8>) {
    encode_key(tag, WireType::Varint, out);
    encode_varint(number, out);
}

fn write_bytes(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends a message with a length prefix. The prefix is inserted after the message is written,
/// because the length is unknown until then.
fn write_part(tag: u32, part: &dyn Message, out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    let begin = out.len();
    write(part, out);
    let mut length = [0; 10];
    let mut rest = &mut length[..];
    encode_varint((out.len() - begin) as u64, &mut rest);
    let unused = rest.len();
    out.splice(begin..begin, length[..length.len() - unused].iter().copied());
}

fn decode<T: Build>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut message = T::blank();
    read(&mut message, bytes)?;
    Ok(message)
}

/// Decodes bytes into a blank message. If decoding fails and the message has a newer version,
/// returns the version error, because the version explains the failure.
fn read(message: &mut dyn Message, bytes: &[u8]) -> Result<(), DecodeError> {
    let declared = message.declared();
    read_fields(message, bytes).map_err(|error| newer_version(declared, bytes).unwrap_or(error))
}

/// Returns the version error if the message has a newer version than this release can read.
fn newer_version(declared: &Declared, bytes: &[u8]) -> Option<DecodeError> {
    let known = declared.version?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let (tag, wire_type) = decode_key(&mut rest).ok()?;
        if tag == VERSION_TAG && wire_type == WireType::Varint {
            let found = u32::try_from(decode_varint(&mut rest).ok()?).unwrap_or(u32::MAX);
            return (found > known).then_some(DecodeError::Version { message: declared.proto, found, known });
        }
        skip_field(wire_type, tag, &mut rest, DecodeContext::default()).ok()?;
    }
    None
}

fn read_fields(message: &mut dyn Message, bytes: &[u8]) -> Result<(), DecodeError> {
    let declared = message.declared();
    let fields = declared.fields();
    // `seen` has one bit per field read.
    let (mut seen, mut version) = (0, 0);
    let (mut rest, mut last) = (bytes, 0);
    while !rest.is_empty() {
        let (tag, wire_type) = decode_key(&mut rest)?;
        if tag == VERSION_TAG && declared.version.is_some() {
            check_wire_type(WireType::Varint, wire_type)?;
            version = decode_varint(&mut rest)?;
            continue;
        }
        // Fields usually arrive in declaration order.
        let found = (last..fields.len()).chain(0..last).find(|&at| fields[at].has_tag(tag));
        let Some((at, slot)) = found.and_then(|at| Some((at, message.slot(at)?))) else {
            skip_field(wire_type, tag, &mut rest, DecodeContext::default())?;
            continue;
        };
        last = at;
        if fields[at].tag == Some(tag) {
            seen |= 1 << at;
            read_field(&fields[at], wire_type, &mut rest, slot)?;
        } else {
            check_wire_type(WireType::Varint, wire_type)?;
            let port = u16::try_from(decode_varint(&mut rest)?);
            let is_set = port.is_ok_and(|port| slot.set(Datum::Port(port)));
            is_set.then_some(()).ok_or_else(|| Invalid::new(&fields[at]))?;
        }
    }
    if declared.version.is_some_and(|known| version == 0 || version > u64::from(known)) {
        return Err(DecodeError::Value { field: declared.proto.to_owned() });
    }
    for (at, field) in fields.iter().enumerate() {
        if seen & 1 << at == 0 && !field.is_optional {
            message.set_default(at, field)?;
        }
    }
    let is_whole = message.is_whole(seen);
    is_whole.then_some(()).ok_or_else(|| DecodeError::Value { field: declared.proto.to_owned() })
}

fn read_field(
    field: &Field,
    wire_type: WireType,
    rest: &mut &[u8],
    slot: &mut dyn Slot,
) -> Result<(), DecodeError> {
    let invalid = || DecodeError::from(Invalid::new(field));
    let datum = match field.kind {
        Kind::Bool | Kind::Number(_) | Kind::Time => {
            check_wire_type(WireType::Varint, wire_type)?;
            let number = decode_varint(rest)?;
            if matches!(field.kind, Kind::Bool) { Datum::Bool(number != 0) } else { Datum::Number(number) }
        }
        Kind::Address => {
            let bytes = read_bytes(field, wire_type, rest)?;
            match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
                (Ok(ip), _) => Datum::Ip(IpAddr::from(ip)),
                (_, Ok(ip)) => Datum::Ip(IpAddr::from(ip)),
                _ => return Err(invalid()),
            }
        }
        Kind::Text | Kind::Word(_) => {
            let bytes = read_bytes(field, wire_type, rest)?;
            Datum::Text(std::str::from_utf8(bytes).map_err(|_| invalid())?.into())
        }
        Kind::Part(_) | Kind::List(_) => {
            let bytes = read_bytes(field, wire_type, rest)?;
            return read(slot.part().ok_or_else(invalid)?, bytes);
        }
    };
    slot.set(datum).then_some(()).ok_or_else(invalid)
}

/// Reads the content of a length-delimited field.
fn read_bytes<'a>(field: &Field, wire_type: WireType, rest: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    check_wire_type(WireType::LengthDelimited, wire_type)?;
    let length = usize::try_from(decode_varint(rest)?).unwrap_or(usize::MAX);
    let (content, after) = rest.split_at_checked(length).ok_or_else(|| Invalid::new(field))?;
    *rest = after;
    Ok(content)
}
