//! A field section (RFC 9110 §5): ordered field lines, kept as the text that goes on the wire.
//!
//! `text` holds `Name: value CRLF` for each line and nothing else; `spans` says where each one lies. So writing
//! a section is one copy, cloning it two, and no field has an allocation of its own.
//!
//! **Invariant:** every name is a token, every value is trimmed and free of CR, LF, NUL and other controls, and
//! `text` has no byte outside a line: nothing put in here can start a line of its own (response splitting).
//! **Invariant:** spans are in the order of `text` and join without gaps.
//! **Invariant:** the bit of each name that is there is set in `present`.

use std::fmt;

use crate::name::{self, Name, NameKey, SEPARATOR};
use crate::number;
use crate::token::{is_token, is_value_byte, trim_ows};

pub use crate::name::NAME_BYTES_MAX;

const LINE_END: &[u8] = b"\r\n";

/// An ordered list of field lines. Names compare without regard to ASCII case.
#[derive(Default)]
pub struct Fields {
    text: Vec<u8>,
    spans: Vec<Span>,
    /// Most names that are asked for are not there: this mostly says so without a look at the lines. A bit stays when its
    /// line goes.
    present: u64,
}

/// Where one line lies in the text.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u32,
    value_bytes: u32,
    key: NameKey,
}

impl Fields {
    /// An empty section; allocates nothing.
    pub fn new() -> Fields {
        Fields::default()
    }

    /// The number of field lines.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The bytes of the section on the wire, without the empty line that ends it.
    pub fn text_len(&self) -> usize {
        self.text.len()
    }

    /// The section as it goes on the wire, each line ended by CRLF, without the empty line that ends it.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Removes all lines and keeps the allocations.
    pub fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
        self.present = 0;
    }

    /// Appends a line. White space around `value` is dropped and control bytes in it become spaces
    /// (RFC 9110 §5.5).
    ///
    /// # Panics
    /// If `name` is not a token: check a name from outside with [`is_token`] first.
    pub fn push(&mut self, name: &str, value: impl AsRef<[u8]>) {
        assert!(is_token(name.as_bytes()), "a field name is a token: {name:?}");
        let value = trim_value(value.as_ref());
        self.push_line(name.as_bytes(), value);
        self.replace_controls(value);
    }

    /// Makes spaces of the controls in the last line's value, which is `value`.
    fn replace_controls(&mut self, value: &[u8]) {
        // All bytes in one vectorised loop: controls are rare.
        if !value.iter().fold(true, |clean, byte| clean & is_value_byte(*byte)) {
            let value_end = self.text.len() - LINE_END.len();
            replace_controls(&mut self.text[value_end - value.len()..value_end]);
        }
    }

    /// Appends a line whose value is a number.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    pub fn push_number(&mut self, name: &str, value: u64) {
        self.push(name, number::format(value, &mut [0; number::DECIMAL_BYTES_MAX]));
    }

    /// Appends a line that a parser has found to be one: a token, and a value trimmed and without controls.
    pub(crate) fn push_line(&mut self, name: &[u8], value: &[u8]) {
        assert!(name.len() <= NAME_BYTES_MAX, "a field name is at most {NAME_BYTES_MAX} bytes long");
        let start = self.text.len();
        self.text.reserve(name.len() + SEPARATOR.len() + value.len() + LINE_END.len());
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(SEPARATOR.as_bytes());
        self.text.extend_from_slice(value);
        self.text.extend_from_slice(LINE_END);
        let key = NameKey::of(name);
        self.spans.push(Span::new(start, key, value.len()));
        self.present |= key.bit();
    }

    /// Makes room for `lines` more lines of `bytes` in all.
    pub(crate) fn reserve(&mut self, lines: usize, bytes: usize) {
        self.spans.reserve(lines);
        self.text.reserve(bytes);
    }

    /// Replaces all lines called `name` by one at the end of the section.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.remove(name);
        self.push(name, value);
    }

    /// [`set`](Self::set), the name checked before.
    pub fn set_named(&mut self, name: &Name, value: &[u8]) {
        self.remove_named(name);
        let (value, start) = (trim_value(value), self.text.len());
        self.text.reserve(name.line_start().len() + value.len() + LINE_END.len());
        self.text.extend_from_slice(name.line_start());
        self.text.extend_from_slice(value);
        self.text.extend_from_slice(LINE_END);
        self.spans.push(Span::new(start, name.key(), value.len()));
        self.present |= name.key().bit();
        self.replace_controls(value);
    }

    /// Adds `member` at the end of the list field `name` (RFC 9110 §5.3), on its last line if there is one.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    pub fn append(&mut self, name: &str, member: impl AsRef<[u8]>) {
        let key = NameKey::of(name.as_bytes());
        let Some(index) = self.spans.iter().rposition(|span| span.is_called(&self.text, name, key)) else {
            return self.push(name, member);
        };
        let member = trim_value(member.as_ref());
        if member.is_empty() {
            return;
        }
        let mut addition = Vec::with_capacity(member.len() + 2);
        if self.spans[index].value_bytes > 0 {
            addition.extend_from_slice(b", ");
        }
        addition.extend_from_slice(member);
        replace_controls(&mut addition);
        self.insert_value(index, &addition);
    }

    /// Puts `addition` at the end of the value of line `index`.
    fn insert_value(&mut self, index: usize, addition: &[u8]) {
        let span = self.spans[index];
        let at = span.value_end();
        let grown = Span::new(span.start as usize, span.key, at - span.value_start() + addition.len());
        self.text.splice(at..at, addition.iter().copied());
        self.spans[index] = grown;
        let mut start = grown.end();
        for later in &mut self.spans[index + 1..] {
            *later = later.at(start);
            start = later.end();
        }
    }

    /// Removes all lines called `name`; says how many there were.
    pub fn remove(&mut self, name: &str) -> usize {
        self.remove_called(name, NameKey::of(name.as_bytes()))
    }

    /// [`remove`](Self::remove), the name checked before.
    pub fn remove_named(&mut self, name: &Name) -> usize {
        self.remove_called(name.as_str(), name.key())
    }

    fn remove_called(&mut self, name: &str, key: NameKey) -> usize {
        // Nearly all that is set was not there before, or once.
        let Some(first) = self.position(name, key, 0) else { return 0 };
        if self.position(name, key, first + 1).is_some() {
            return self.remove_where(|line_name, _| line_name.eq_ignore_ascii_case(name.as_bytes()));
        }
        let gone = self.spans.remove(first);
        self.text.drain(gone.start as usize..gone.end());
        for later in &mut self.spans[first..] {
            *later = later.at(later.start as usize - gone.bytes());
        }
        1
    }

    /// Removes every line of which `unwanted(name, value)` is true; says how many there were.
    pub fn remove_where(&mut self, mut unwanted: impl FnMut(&[u8], &[u8]) -> bool) -> usize {
        let before = self.spans.len();
        let (mut kept, mut write) = (0, 0);
        for index in 0..before {
            let span = self.spans[index];
            if unwanted(span.name(&self.text), span.value(&self.text)) {
                continue;
            }
            if write != span.start as usize {
                self.text.copy_within(span.start as usize..span.end(), write);
            }
            let moved = span.at(write);
            self.spans[kept] = moved;
            (kept, write) = (kept + 1, moved.end());
        }
        self.spans.truncate(kept);
        self.text.truncate(write);
        before - kept
    }

    /// Removes what concerns one connection only: `Connection`, the fields that it nominates, and those that
    /// RFC 9110 §7.6.1 lists as known (`Proxy-Connection`, `Keep-Alive`, `TE`, `Transfer-Encoding`, `Upgrade`).
    ///
    /// `Trailer`, `Proxy-Authenticate` and `Proxy-Authorization` stay: that clause does not list them. `Host`,
    /// `Content-Length`, `Cache-Control`, `Via` and `CDN-Loop` stay even if nominated: they are for every recipient, a
    /// sender must not nominate them (same clause), and a client must not be able to strip them (RFC 8586 §2).
    pub fn remove_hop_by_hop(&mut self) {
        let nominated = self.nominated();
        self.remove_where(|name, _| {
            is_hop_by_hop(name)
                || (!nominated.is_empty()
                    && members(&nominated).any(|option| option.eq_ignore_ascii_case(name))
                    && !is_for_every_recipient(name))
        });
    }

    /// Removes the fields that `Connection` nominates, and leaves those that always are for one connection: what others
    /// must not see must not choose for them either.
    pub fn remove_nominated(&mut self) {
        let nominated = self.nominated();
        if !nominated.is_empty() {
            self.remove_where(|name, _| {
                members(&nominated).any(|option| option.eq_ignore_ascii_case(name))
                    && !is_for_every_recipient(name)
            });
        }
    }

    /// The connection options that may name fields, joined by commas; empty, and without an allocation, when
    /// there are only `close` and names that are removed anyway.
    fn nominated(&self) -> Vec<u8> {
        let mut nominated = Vec::new();
        for option in self.list("connection") {
            if !option.eq_ignore_ascii_case(b"close") && !is_hop_by_hop(option) {
                nominated.extend_from_slice(option);
                nominated.push(b',');
            }
        }
        nominated
    }

    /// Whether there is a line called `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.position(name, NameKey::of(name.as_bytes()), 0).is_some()
    }

    /// The index of the first line called `name`, of which `key` is the key, from line `from` on.
    fn position(&self, name: &str, key: NameKey, from: usize) -> Option<usize> {
        if self.present & key.bit() == 0 {
            return None;
        }
        let lines = &self.spans[from..];
        lines.iter().position(|span| span.is_called(&self.text, name, key)).map(|index| from + index)
    }

    /// The value of the first line called `name`, without white space around it.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        Some(self.spans[self.position(name, NameKey::of(name.as_bytes()), 0)?].value(&self.text))
    }

    /// [`get`](Self::get), the name checked before.
    pub fn get_named(&self, name: &Name) -> Option<&[u8]> {
        Some(self.spans[self.position(name.as_str(), name.key(), 0)?].value(&self.text))
    }

    /// [`get`](Self::get) where the value is UTF-8.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        str::from_utf8(self.get(name)?).ok()
    }

    /// The values of all lines called `name`, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + Clone {
        let key = NameKey::of(name.as_bytes());
        self.spans
            .iter()
            .filter(move |span| span.is_called(&self.text, name, key))
            .map(|span| span.value(&self.text))
    }

    /// The members of the list field `name` over all its lines (RFC 9110 §5.6.1); see [`members`].
    pub fn list<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.get_all(name).flat_map(members)
    }

    /// All lines as name and value, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        self.spans.iter().map(|span| {
            let name = str::from_utf8(span.name(&self.text)).expect("a field name is an ASCII token");
            (name, span.value(&self.text))
        })
    }
}

impl PartialEq for Fields {
    /// `present` may tell of lines that are gone.
    fn eq(&self, other: &Fields) -> bool {
        self.text == other.text && self.spans == other.spans
    }
}

impl Eq for Fields {}

impl Clone for Fields {
    fn clone(&self) -> Fields {
        Fields { text: self.text.clone(), spans: self.spans.clone(), present: self.present }
    }

    /// Keeps the allocations, which the derived one would not.
    fn clone_from(&mut self, source: &Fields) {
        self.text.clone_from(&source.text);
        self.spans.clone_from(&source.spans);
        self.present = source.present;
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> FromIterator<(N, V)> for Fields {
    /// # Panics
    /// As [`Fields::push`].
    fn from_iter<I: IntoIterator<Item = (N, V)>>(lines: I) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.push(name.as_ref(), value);
        }
        fields
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(|(name, value)| (name, String::from_utf8_lossy(value))))
            .finish()
    }
}

impl Span {
    /// Panics where the section outgrows 4 GiB, which no limit of a head allows.
    fn new(start: usize, key: NameKey, value_bytes: usize) -> Span {
        Span {
            start: u32::try_from(start).expect("a field section is below 4 GiB"),
            value_bytes: u32::try_from(value_bytes).expect("a field value is below 4 GiB"),
            key,
        }
    }

    /// The same line, beginning elsewhere.
    fn at(self, start: usize) -> Span {
        Span::new(start, self.key, self.value_bytes as usize)
    }

    fn name_end(self) -> usize {
        self.start as usize + self.key.name_bytes()
    }

    fn value_start(self) -> usize {
        self.name_end() + SEPARATOR.len()
    }

    fn value_end(self) -> usize {
        self.value_start() + self.value_bytes as usize
    }

    fn end(self) -> usize {
        self.value_end() + LINE_END.len()
    }

    fn bytes(self) -> usize {
        self.end() - self.start as usize
    }

    fn name(self, text: &[u8]) -> &[u8] {
        &text[self.start as usize..self.name_end()]
    }

    fn value(self, text: &[u8]) -> &[u8] {
        &text[self.value_start()..self.value_end()]
    }

    /// Whether the line is called `name`, of which `key` is the key.
    #[inline]
    fn is_called(self, text: &[u8], name: &str, key: NameKey) -> bool {
        self.key == key && name::is_same(self.name(text), name.as_bytes())
    }
}

/// The members of one list value (RFC 9110 §5.6.1): split at commas outside quoted strings, white space around
/// them dropped, empty ones skipped.
///
/// A quoted string that never ends runs to the end of the value: a comma in it never splits.
pub fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    Members { rest: value }
}

#[derive(Clone)]
struct Members<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let end = unquoted_position(self.rest, b',').unwrap_or(self.rest.len());
            let member = trim_ows(&self.rest[..end]);
            self.rest = self.rest.get(end + 1..).unwrap_or_default();
            if !member.is_empty() {
                return Some(member);
            }
        }
        None
    }
}

/// The first `separator` outside a quoted string (RFC 9110 §5.6.4).
pub(crate) fn unquoted_position(text: &[u8], separator: u8) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, &byte) in text.iter().enumerate() {
        if escaped {
            escaped = false;
        } else if quoted && byte == b'\\' {
            escaped = true;
        } else if byte == b'"' {
            quoted = !quoted;
        } else if byte == separator && !quoted {
            return Some(at);
        }
    }
    None
}

/// `value` without white space and controls around it; controls count, as they would become spaces.
fn trim_value(mut value: &[u8]) -> &[u8] {
    let blank = |byte: u8| byte == b' ' || byte == b'\t' || !is_value_byte(byte);
    while let [first, rest @ ..] = value
        && blank(*first)
    {
        value = rest;
    }
    while let [rest @ .., last] = value
        && blank(*last)
    {
        value = rest;
    }
    value
}

fn replace_controls(value: &mut [u8]) {
    for byte in value {
        if !is_value_byte(*byte) {
            *byte = b' ';
        }
    }
}

fn is_hop_by_hop(name: &[u8]) -> bool {
    const KNOWN: [&[u8]; 6] =
        [b"connection", b"proxy-connection", b"keep-alive", b"te", b"transfer-encoding", b"upgrade"];
    KNOWN.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn is_for_every_recipient(name: &[u8]) -> bool {
    const EVERYONES: [&[u8]; 5] = [b"host", b"content-length", b"cache-control", b"via", b"cdn-loop"];
    EVERYONES.iter().any(|everyones| everyones.eq_ignore_ascii_case(name))
}
