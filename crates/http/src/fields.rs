//! A field section (RFC 9110 §5): ordered field lines, stored as the text sent on the wire.
//!
//! `text` holds `Name: value CRLF` for each line and nothing else; `spans` records the position of
//! each line. Writing a section thus takes one copy, cloning it takes two, and no field has an
//! allocation of its own.
//!
//! **Invariant:** every name is a token, every value is trimmed and free of CR, LF, NUL and other
//! control characters, and `text` has no byte outside a line. So no value can start a new line
//! (response splitting). **Invariant:** spans are in the order of `text` and contiguous.
//! **Invariant:** the bit of each name in the section is set in `present`.

use std::borrow::Cow;
use std::fmt;

use crate::name::{self, Name, NameKey, SEPARATOR};
use crate::number;
use crate::token::{is_token, is_value_byte, trim_ows};

pub use crate::name::NAME_BYTES_MAX;

const LINE_END: &[u8] = b"\r\n";

/// An ordered list of field lines. Names are compared ignoring ASCII case.
#[derive(Default)]
pub struct Fields {
    text: Vec<u8>,
    spans: Vec<Span>,
    /// One bit per name hash. Most look-ups are for absent names, and a clear bit resolves them
    /// without searching the lines. A bit stays set after its line is removed.
    present: u64,
}

/// Position of one line in the text.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u32,
    value_bytes: u32,
    key: NameKey,
}

impl Fields {
    /// Creates an empty section without allocating.
    pub fn new() -> Fields {
        Fields::default()
    }

    /// Returns the number of field lines.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns whether the section is empty.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the length of the section on the wire, without the empty line that ends it.
    pub fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Returns the section as sent on the wire, without the empty line that ends it. Each line ends
    /// in CRLF.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Removes all lines but keeps the allocations.
    pub fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
        self.present = 0;
    }

    /// Appends a line. Trims white space around `value` and replaces control bytes with spaces (RFC
    /// 9110 §5.5).
    ///
    /// # Panics
    ///
    /// Panics if `name` is not a token. Check untrusted names with [`is_token`] first.
    pub fn push(&mut self, name: &str, value: impl AsRef<[u8]>) {
        assert!(is_token(name.as_bytes()), "field name must be a token: {name:?}");
        let value = trim_value(value.as_ref());
        self.push_line(name.as_bytes(), value);
        self.replace_controls(value);
    }

    /// Replaces control characters with spaces in `value`, the value of the last line.
    fn replace_controls(&mut self, value: &[u8]) {
        // Control characters are rare, so check all bytes in one vectorised loop.
        if !value.iter().fold(true, |clean, byte| clean & is_value_byte(*byte)) {
            let value_end = self.text.len() - LINE_END.len();
            replace_controls(&mut self.text[value_end - value.len()..value_end]);
        }
    }

    /// Appends a line with a number as its value.
    ///
    /// # Panics
    ///
    /// See [`push`](Self::push).
    pub fn push_number(&mut self, name: &str, value: u64) {
        self.push(name, number::format(value, &mut [0; number::DECIMAL_BYTES_MAX]));
    }

    /// Appends a line that a parser has validated: the name is a token, and the value is trimmed
    /// and free of control characters.
    pub(crate) fn push_line(&mut self, name: &[u8], value: &[u8]) {
        assert!(name.len() <= NAME_BYTES_MAX, "field name must be at most {NAME_BYTES_MAX} bytes long");
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

    /// Reserves space for `lines` more lines with `bytes` bytes in total.
    pub(crate) fn reserve(&mut self, lines: usize, bytes: usize) {
        self.spans.reserve(lines);
        self.text.reserve(bytes);
    }

    /// Replaces all lines called `name` with one at the end of the section.
    ///
    /// # Panics
    ///
    /// See [`push`](Self::push).
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.remove(name);
        self.push(name, value);
    }

    /// Like [`set`](Self::set), for a validated name.
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

    /// Appends `member` to the last line of the list field `name` (RFC 9110 §5.3), or adds a line
    /// if the field is absent.
    ///
    /// # Panics
    ///
    /// See [`push`](Self::push).
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

    /// Inserts `addition` at the end of the value of line `index`.
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

    /// Removes all lines called `name` and returns the number removed.
    pub fn remove(&mut self, name: &str) -> usize {
        self.remove_called(name, NameKey::of(name.as_bytes()))
    }

    /// Like [`remove`](Self::remove), for a validated name.
    pub fn remove_named(&mut self, name: &Name) -> usize {
        self.remove_called(name.as_str(), name.key())
    }

    fn remove_called(&mut self, name: &str, key: NameKey) -> usize {
        // Most names passed here are absent or occur once.
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

    /// Removes every line for which `unwanted(name, value)` is true and returns the number removed.
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

    /// Removes the hop-by-hop fields: `Connection`, the fields that it nominates, and those listed
    /// in RFC 9110 §7.6.1 (`Proxy-Connection`, `Keep-Alive`, `TE`, `Transfer-Encoding`, `Upgrade`).
    ///
    /// Keeps `Trailer`, `Proxy-Authenticate` and `Proxy-Authorization`, which that section does not
    /// list. Keeps `Host`, `Content-Length`, `Cache-Control`, `Via` and `CDN-Loop` even if
    /// nominated. These fields are for every recipient, so senders must not nominate them (same
    /// section), and a client must not be able to strip them (RFC 8586 §2).
    pub fn remove_hop_by_hop(&mut self) {
        let nominated = self.nominated();
        self.remove_where(|name, _| {
            is_hop_by_hop(name)
                || (!nominated.is_empty()
                    && members(&nominated).any(|option| option.eq_ignore_ascii_case(name))
                    && !is_for_every_recipient(name))
        });
    }

    /// Removes the fields that `Connection` nominates, except those that are always hop-by-hop. A
    /// nominated field is not forwarded, so it must not affect the choice of a response either.
    pub fn remove_nominated(&mut self) {
        let nominated = self.nominated();
        if !nominated.is_empty() {
            self.remove_where(|name, _| {
                members(&nominated).any(|option| option.eq_ignore_ascii_case(name))
                    && !is_for_every_recipient(name)
            });
        }
    }

    /// Returns the connection options that may name fields, joined by commas. Omits `close` and
    /// names that are removed anyway. Usually no option remains, and nothing is allocated.
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

    /// Returns whether there is a line called `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.position(name, NameKey::of(name.as_bytes()), 0).is_some()
    }

    /// Returns the index of the first line called `name` at or after line `from`. `key` is the key
    /// of `name`.
    fn position(&self, name: &str, key: NameKey, from: usize) -> Option<usize> {
        if self.present & key.bit() == 0 {
            return None;
        }
        let lines = &self.spans[from..];
        lines.iter().position(|span| span.is_called(&self.text, name, key)).map(|index| from + index)
    }

    /// Returns the value of the first line called `name`, without surrounding white space.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        Some(self.spans[self.position(name, NameKey::of(name.as_bytes()), 0)?].value(&self.text))
    }

    /// Returns the value of a field that may have several lines, joined into one (RFC 9110 §5.3;
    /// for `Cookie`, RFC 9113 §8.2.3). `Set-Cookie` is not a list, so its first line is returned.
    pub fn get_joined(&self, name: &Name) -> Option<Cow<'_, [u8]>> {
        let first = self.position(name.as_str(), name.key(), 0)?;
        let value = self.spans[first].value(&self.text);
        let is = |known: &str| name.as_str().eq_ignore_ascii_case(known);
        if self.position(name.as_str(), name.key(), first + 1).is_none() || is("set-cookie") {
            return Some(Cow::Borrowed(value));
        }
        let separator: &[u8] = if is("cookie") { b"; " } else { b", " };
        // An empty line has no members.
        let lines: Vec<_> = self.get_all(name.as_str()).filter(|line| !line.is_empty()).collect();
        Some(Cow::Owned(lines.join(separator)))
    }

    /// Like [`get`](Self::get), but `None` unless the value is UTF-8.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        str::from_utf8(self.get(name)?).ok()
    }

    /// Returns the values of all lines called `name`, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + Clone {
        let key = NameKey::of(name.as_bytes());
        self.spans
            .iter()
            .filter(move |span| span.is_called(&self.text, name, key))
            .map(|span| span.value(&self.text))
    }

    /// Returns the members of the list field `name` across all its lines (RFC 9110 §5.6.1); see
    /// [`members`].
    pub fn list<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.get_all(name).flat_map(members)
    }

    /// Iterates over all lines as names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        self.spans.iter().map(|span| {
            let name = str::from_utf8(span.name(&self.text)).expect("a field name is an ASCII token");
            (name, span.value(&self.text))
        })
    }
}

impl PartialEq for Fields {
    /// Not derived, because `present` may still have the bits of removed lines.
    fn eq(&self, other: &Fields) -> bool {
        self.text == other.text && self.spans == other.spans
    }
}

impl Eq for Fields {}

impl Clone for Fields {
    fn clone(&self) -> Fields {
        Fields { text: self.text.clone(), spans: self.spans.clone(), present: self.present }
    }

    /// Keeps the allocations, unlike the derived implementation.
    fn clone_from(&mut self, source: &Fields) {
        self.text.clone_from(&source.text);
        self.spans.clone_from(&source.spans);
        self.present = source.present;
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> FromIterator<(N, V)> for Fields {
    /// # Panics
    ///
    /// See [`Fields::push`].
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
    /// Creates a span. Panics if the section exceeds 4 GiB, which the head limits rule out.
    fn new(start: usize, key: NameKey, value_bytes: usize) -> Span {
        Span {
            start: u32::try_from(start).expect("head limits keep field sections below 4 GiB"),
            value_bytes: u32::try_from(value_bytes).expect("head limits keep field values below 4 GiB"),
            key,
        }
    }

    /// Moves the span to `start`.
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

    /// Returns whether the line is called `name`. `key` is the key of `name`.
    #[inline]
    fn is_called(self, text: &[u8], name: &str, key: NameKey) -> bool {
        self.key == key && name::is_same(self.name(text), name.as_bytes())
    }
}

/// Splits one list value (RFC 9110 §5.6.1) into members at commas outside quoted strings. Trims
/// surrounding white space and skips empty members.
///
/// An unterminated quoted string runs to the end of the value, so a comma in it never splits.
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

/// Finds the first `separator` outside a quoted string (RFC 9110 §5.6.4).
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

/// Trims white space around `value`, and control characters, which would become spaces.
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
