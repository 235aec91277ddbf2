//! Field values: how a declared struct passes its values to a writer and receives them from a
//! reader.
//!
//! A writer visits every field with its [`Datum`] ([`Message::put_all`]). A reader starts from a
//! blank struct and sets each field in place through its [`Slot`], so reading a record allocates
//! only the record's own content.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::field::{Declared, Field, Kind};

/// A field value that is being encoded or decoded.
#[derive(Debug, Clone)]
pub(crate) enum Datum<'a> {
    Null,
    Bool(bool),
    Number(u64),
    Text(Cow<'a, str>),
    Address(SocketAddr),
    /// When decoding: an address whose port is in a separate protobuf field.
    Ip(IpAddr),
    /// When decoding: the port of an address.
    Port(u16),
    /// When encoding: a nested message. Parts are decoded through [`Slot::part`].
    Part(&'a dyn Message),
    /// When encoding: a list of messages, decoded like [`Datum::Part`].
    List(Vec<Datum<'a>>),
}

impl Datum<'_> {
    /// Returns whether this is a default value, which protobuf omits for a required field.
    pub(crate) fn is_default(&self) -> bool {
        match self {
            Datum::Null | Datum::Bool(false) | Datum::Number(0) => true,
            Datum::Text(text) => text.is_empty(),
            Datum::List(list) => list.is_empty(),
            _ => false,
        }
    }
}

impl From<bool> for Datum<'_> {
    fn from(value: bool) -> Self {
        Datum::Bool(value)
    }
}

impl From<u64> for Datum<'_> {
    fn from(value: u64) -> Self {
        Datum::Number(value)
    }
}

impl From<Option<u64>> for Datum<'_> {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Datum::Null, Datum::Number)
    }
}

/// Error for an invalid value. Names the field, such as `Socket.cause`.
#[derive(Debug)]
pub(crate) struct Invalid(pub(crate) String);

impl Invalid {
    pub(crate) fn new(Field { message, name, kind, .. }: &Field) -> Self {
        let part = if matches!(kind, Kind::Address) { "_ip" } else { "" };
        Self(format!("{message}.{name}{part}"))
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid value for {}", self.0)
    }
}

/// A declared struct of any type.
pub(crate) trait Message: fmt::Debug {
    fn declared(&self) -> &'static Declared;

    /// Passes the value of each field to `to`, in declaration order.
    fn put_all<'a>(&'a self, to: &mut Put<'_, 'a>);

    /// Returns the slot of the field at `index` in the declaration; `None` if the field is
    /// computed.
    fn slot(&mut self, index: usize) -> Option<&mut dyn Slot>;

    /// Returns whether the fields that were read form a valid message; `seen` has one bit set for
    /// each of these fields.
    fn is_whole(&self, seen: u64) -> bool;
}

impl dyn Message + '_ {
    /// Visits each field with its value, in declaration order.
    pub(crate) fn each<'a>(&'a self, put: &mut dyn FnMut(&'static Field, Datum<'a>)) {
        self.put_all(&mut Put { fields: self.declared().fields().iter(), put });
    }

    /// Sets a field missing from the input to its default value.
    pub(crate) fn set_default(&mut self, index: usize, field: &Field) -> Result<(), Invalid> {
        let default = match field.kind {
            Kind::Bool => Datum::Bool(false),
            Kind::Number(_) | Kind::Time => Datum::Number(0),
            Kind::Text | Kind::Word(_) => Datum::Text(Cow::Borrowed("")),
            // A list in a blank message is already empty.
            Kind::List(_) => return Ok(()),
            Kind::Address | Kind::Part(_) => Datum::Null,
        };
        let slot = self.slot(index);
        if slot.is_none_or(|slot| slot.set(default)) { Ok(()) } else { Err(Invalid::new(field)) }
    }
}

/// A declared struct of a known type.
pub(crate) trait Build: Message + Blank {
    const DECLARED: &'static Declared;
    /// Number of declared fields, including those of inlined messages.
    const WIDTH: usize;
}

/// Pairs values with their fields, in declaration order.
pub(crate) struct Put<'p, 'a> {
    fields: std::slice::Iter<'static, Field>,
    put: &'p mut dyn FnMut(&'static Field, Datum<'a>),
}

impl<'a> Put<'_, 'a> {
    pub(crate) fn put(&mut self, datum: Datum<'a>) {
        let field = self.fields.next().expect("every value has a declared field");
        (self.put)(field, datum);
    }
}

/// A type with a blank value, which a reader fills in.
pub(crate) trait Blank: Sized {
    fn blank() -> Self;
}

/// A field's slot in a struct that is being read.
pub(crate) trait Slot {
    /// Stores a value. Returns false if the value is invalid for the field.
    fn set(&mut self, datum: Datum<'_>) -> bool;

    /// Stores a blank part and returns it to be filled in; `None` if the field has no parts.
    fn part(&mut self) -> Option<&mut dyn Message> {
        None
    }
}

/// The type of a field.
pub(crate) trait Type: Slot + Blank + 'static {
    const KIND: Kind;
    const IS_OPTIONAL: bool = false;
    /// Number of fields declared by the type.
    const WIDTH: usize = 1;

    fn datum(&self) -> Datum<'_>;

    /// Adds the fields declared by this type to a message's fields: one field, or all fields of an
    /// inlined message.
    fn declare(field: Field, fields: &mut Vec<Field>) {
        fields.push(field);
    }

    fn put<'a>(&'a self, to: &mut Put<'_, 'a>) {
        to.put(self.datum());
    }

    /// See [`Message::slot`]; `index` counts from this type's first field.
    fn slot(&mut self, _index: usize) -> Option<&mut dyn Slot> {
        Some(self)
    }

    /// See [`Message::is_whole`]; the lowest bit belongs to this type's first field.
    fn is_whole(&self, _seen: u64) -> bool {
        true
    }
}

impl<T> Blank for Option<T> {
    fn blank() -> Self {
        None
    }
}

impl<T: Type> Slot for Option<T> {
    fn set(&mut self, datum: Datum<'_>) -> bool {
        if matches!(datum, Datum::Null) {
            *self = None;
            return true;
        }
        self.get_or_insert_with(T::blank).set(datum)
    }

    fn part(&mut self) -> Option<&mut dyn Message> {
        self.insert(T::blank()).part()
    }
}

impl<T: Type> Type for Option<T> {
    const KIND: Kind = T::KIND;
    const IS_OPTIONAL: bool = true;

    fn datum(&self) -> Datum<'_> {
        self.as_ref().map_or(Datum::Null, T::datum)
    }
}

impl Blank for bool {
    fn blank() -> Self {
        false
    }
}

impl Slot for bool {
    fn set(&mut self, datum: Datum<'_>) -> bool {
        let Datum::Bool(value) = datum else { return false };
        *self = value;
        true
    }
}

impl Type for bool {
    const KIND: Kind = Kind::Bool;

    fn datum(&self) -> Datum<'_> {
        Datum::Bool(*self)
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Blank for $number {
            fn blank() -> Self {
                0
            }
        }

        impl Slot for $number {
            fn set(&mut self, datum: Datum<'_>) -> bool {
                let Datum::Number(number) = datum else { return false };
                number.try_into().map(|number| *self = number).is_ok()
            }
        }

        impl Type for $number {
            const KIND: Kind = Kind::Number(<$number>::BITS as u8);

            fn datum(&self) -> Datum<'_> {
                Datum::Number((*self).into())
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 }

impl Blank for NonZeroU32 {
    fn blank() -> Self {
        Self::MIN
    }
}

impl Slot for NonZeroU32 {
    fn set(&mut self, datum: Datum<'_>) -> bool {
        let mut number = 0;
        number.set(datum) && Self::new(number).map(|number| *self = number).is_some()
    }
}

impl Type for NonZeroU32 {
    const KIND: Kind = u32::KIND;

    fn datum(&self) -> Datum<'_> {
        Datum::Number(self.get().into())
    }
}

macro_rules! texts {
    ($($text:ty)*) => {$(
        impl Blank for $text {
            fn blank() -> Self {
                Self::default()
            }
        }

        impl Slot for $text {
            fn set(&mut self, datum: Datum<'_>) -> bool {
                let Datum::Text(text) = datum else { return false };
                *self = text.into_owned().into();
                true
            }
        }

        impl Type for $text {
            const KIND: Kind = Kind::Text;

            fn datum(&self) -> Datum<'_> {
                Datum::Text(Cow::Borrowed(self))
            }
        }
    )*};
}

texts! { String Cow<'static, str> Arc<str> }

impl Blank for SocketAddr {
    fn blank() -> Self {
        Self::new(Ipv4Addr::UNSPECIFIED.into(), 0)
    }
}

impl Slot for SocketAddr {
    fn set(&mut self, datum: Datum<'_>) -> bool {
        match datum {
            Datum::Address(address) => *self = address,
            Datum::Ip(ip) => self.set_ip(ip),
            Datum::Port(port) => self.set_port(port),
            _ => return false,
        }
        true
    }
}

impl Type for SocketAddr {
    const KIND: Kind = Kind::Address;

    fn datum(&self) -> Datum<'_> {
        Datum::Address(*self)
    }
}

impl<T> Blank for Vec<T> {
    fn blank() -> Self {
        Self::new()
    }
}

impl<T: Build + 'static> Slot for Vec<T> {
    fn set(&mut self, _: Datum<'_>) -> bool {
        false
    }

    fn part(&mut self) -> Option<&mut dyn Message> {
        self.push(T::blank());
        self.last_mut().map(|last| last as &mut dyn Message)
    }
}

impl<T: Build + 'static> Type for Vec<T> {
    const KIND: Kind = Kind::List(T::DECLARED);

    fn datum(&self) -> Datum<'_> {
        Datum::List(self.iter().map(|one| Datum::Part(one)).collect())
    }
}
