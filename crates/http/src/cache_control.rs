//! `Cache-Control` of responses and requests (RFC 9111 §5.2, RFC 5861, RFC 8246), and fields that are targeted at some
//! caches, such as `CDN-Cache-Control` (RFC 9213).
//!
//! **Invariant:** what is malformed is read the safe way, the one that stores and serves less: an invalid
//! lifetime is 0, of duplicates the smallest counts (§4.2.1), a directive that loosens counts only in its
//! exact form, one that tightens in any.

use crate::Fields;
use crate::fields::{members, unquoted_position};
use crate::number::{self, Decimal};
use crate::token::trim_ows;

/// The most that a delta-seconds comes to (RFC 9111 §1.2.2): larger numbers are held to 2^31.
pub const DELTA_S_MAX: u32 = 1 << 31;

/// A directive that may be qualified by field names: `no-cache` and `private`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Qualified {
    /// The directive is absent.
    #[default]
    Absent,
    /// It concerns these fields only: the text of the quoted list. See [`names`](Self::names).
    Fields(Box<[u8]>),
    /// It concerns the whole response.
    Whole,
}

impl Qualified {
    /// Whether the directive concerns the whole response; so does one whose list names nothing.
    pub fn is_whole(&self) -> bool {
        match self {
            Qualified::Absent => false,
            Qualified::Fields(_) => self.names().next().is_none(),
            Qualified::Whole => true,
        }
    }

    /// The field names that it is limited to.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        members(match self {
            Qualified::Fields(names) => names,
            _ => &[],
        })
    }

    /// Adds what another occurrence says; the wider one wins, and two lists become one.
    fn widen(&mut self, argument: Argument<'_>) {
        *self = match (std::mem::take(self), argument) {
            (Qualified::Absent, Argument::Quoted(names)) => Qualified::Fields(names.into()),
            (Qualified::Fields(old), Argument::Quoted(names)) => {
                Qualified::Fields([&old, &b","[..], names].concat().into())
            }
            _ => Qualified::Whole,
        };
    }
}

/// The directives of a response; lifetimes in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// `max-age`.
    pub max_age: Option<u32>,
    /// `s-maxage`.
    pub s_maxage: Option<u32>,
    /// `stale-while-revalidate` (RFC 5861 §3).
    pub stale_while_revalidate: Option<u32>,
    /// `stale-if-error` (RFC 5861 §4).
    pub stale_if_error: Option<u32>,
    /// `no-store`.
    pub no_store: bool,
    /// `no-cache`.
    pub no_cache: Qualified,
    /// `private`.
    pub private: Qualified,
    /// `public`.
    pub public: bool,
    /// `must-revalidate`.
    pub must_revalidate: bool,
    /// `proxy-revalidate`.
    pub proxy_revalidate: bool,
    /// `must-understand`.
    pub must_understand: bool,
    /// `no-transform`.
    pub no_transform: bool,
    /// `immutable` (RFC 8246).
    pub immutable: bool,
}

impl CacheControl {
    /// Of all `Cache-Control` lines of a response.
    pub fn from_fields(fields: &Fields) -> CacheControl {
        CacheControl::from_values(fields.get_all("cache-control"))
    }

    /// Of the values of the lines.
    pub fn from_values<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> CacheControl {
        let mut directives = CacheControl::default();
        for member in lines.into_iter().flat_map(members) {
            let (name, argument) = split_directive(member);
            directives.add(name, argument);
        }
        directives
    }

    /// Of all lines of a targeted field, a dictionary of Structured Fields (RFC 9213 §2.1); `None` where it is absent,
    /// empty or malformed, which is the same as absent. A lifetime of another type than Integer is 0.
    pub fn from_targeted(fields: &Fields, name: &str) -> Option<CacheControl> {
        let lines: Vec<&[u8]> = fields.get_all(name).collect();
        let text = lines.join(&b", "[..]);
        let dictionary = sfv::Parser::new(&text).parse::<sfv::Dictionary>().ok()?;
        if dictionary.is_empty() {
            return None;
        }
        let mut directives = CacheControl::default();
        for (name, value) in &dictionary {
            let sfv::ListEntry::Item(item) = value else { continue };
            // A directive that is there with the value "false" is not there.
            if item.bare_item.as_boolean() == Some(false) {
                continue;
            }
            let text = if let Some(number) = item.bare_item.as_integer() {
                number.to_string()
            } else if let Some(text) = item.bare_item.as_string() {
                text.as_str().to_owned()
            } else {
                String::new()
            };
            let argument = match &item.bare_item {
                sfv::BareItem::Boolean(_) => Argument::None,
                sfv::BareItem::Integer(_) => Argument::Token(text.as_bytes()),
                sfv::BareItem::String(_) if is_qualified(name.as_str()) => Argument::Quoted(text.as_bytes()),
                _ => Argument::Malformed,
            };
            directives.add(name.as_str().as_bytes(), argument);
        }
        Some(directives)
    }

    fn add(&mut self, name: &[u8], argument: Argument<'_>) {
        let bare = argument == Argument::None;
        match_name(name, |name| match name {
            b"max-age" => shorten(&mut self.max_age, argument),
            b"s-maxage" => shorten(&mut self.s_maxage, argument),
            b"stale-while-revalidate" => shorten(&mut self.stale_while_revalidate, argument),
            b"stale-if-error" => shorten(&mut self.stale_if_error, argument),
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache.widen(argument),
            b"private" => self.private.widen(argument),
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"no-transform" => self.no_transform = true,
            b"public" => self.public |= bare,
            b"must-understand" => self.must_understand |= bare,
            b"immutable" => self.immutable |= bare,
            _ => {}
        });
    }
}

/// The directives of a request; times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCacheControl {
    /// `max-age`: no older than this.
    pub max_age: Option<u32>,
    /// `max-stale`: stale by no more than this; [`DELTA_S_MAX`] if by any time.
    pub max_stale: Option<u32>,
    /// `min-fresh`: fresh for at least this long.
    pub min_fresh: Option<u32>,
    /// `no-cache`.
    pub no_cache: bool,
    /// `no-store`.
    pub no_store: bool,
    /// `no-transform`.
    pub no_transform: bool,
    /// `only-if-cached`.
    pub only_if_cached: bool,
}

impl RequestCacheControl {
    /// Of all `Cache-Control` lines of a request; without one, `Pragma: no-cache` says `no-cache` (RFC 9111 §5.4).
    pub fn from_fields(fields: &Fields) -> RequestCacheControl {
        let mut directives = RequestCacheControl::from_values(fields.get_all("cache-control"));
        if !fields.contains("cache-control") {
            directives.no_cache =
                fields.list("pragma").any(|member| member.eq_ignore_ascii_case(b"no-cache"));
        }
        directives
    }

    /// Of the values of the lines.
    pub fn from_values<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> RequestCacheControl {
        let mut directives = RequestCacheControl::default();
        for member in lines.into_iter().flat_map(members) {
            let (name, argument) = split_directive(member);
            directives.add(name, argument);
        }
        directives
    }

    fn add(&mut self, name: &[u8], argument: Argument<'_>) {
        match_name(name, |name| match name {
            b"max-age" => shorten(&mut self.max_age, argument),
            b"max-stale" if argument == Argument::None => {
                self.max_stale = Some(self.max_stale.unwrap_or(DELTA_S_MAX));
            }
            b"max-stale" => shorten(&mut self.max_stale, argument),
            b"min-fresh" => {
                let seconds = argument.seconds().unwrap_or(0);
                self.min_fresh = Some(self.min_fresh.map_or(seconds, |longest| longest.max(seconds)));
            }
            b"no-cache" => self.no_cache = true,
            b"no-store" => self.no_store = true,
            b"no-transform" => self.no_transform = true,
            b"only-if-cached" => self.only_if_cached = true,
            _ => {}
        });
    }
}

/// What follows the name of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Argument<'a> {
    None,
    Token(&'a [u8]),
    /// What is between the quotes.
    Quoted(&'a [u8]),
    /// Something else: white space around `=`, a quote that never ends, or an escape, which neither a number
    /// nor a field name needs.
    Malformed,
}

impl Argument<'_> {
    /// As delta-seconds in token or quoted form (RFC 9111 §5.2 asks for both to be read).
    fn seconds(self) -> Option<u32> {
        let (Argument::Token(digits) | Argument::Quoted(digits)) = self else { return None };
        let seconds = match number::parse(digits)? {
            Decimal::Value(value) => u32::try_from(value).unwrap_or(DELTA_S_MAX),
            Decimal::Overflow => DELTA_S_MAX,
        };
        Some(seconds.min(DELTA_S_MAX))
    }
}

/// Whether a directive may be limited to fields.
fn is_qualified(name: &str) -> bool {
    matches!(name, "no-cache" | "private")
}

/// Name and argument of one directive.
fn split_directive(member: &[u8]) -> (&[u8], Argument<'_>) {
    let Some(equals) = unquoted_position(member, b'=') else { return (member, Argument::None) };
    let name = trim_ows(&member[..equals]);
    let argument = match &member[equals + 1..] {
        _ if name.len() != equals => Argument::Malformed,
        [b'"', quoted @ .., b'"'] if !quoted.iter().any(|byte| matches!(byte, b'"' | b'\\')) => {
            Argument::Quoted(quoted)
        }
        token if crate::token::is_token(token) => Argument::Token(token),
        _ => Argument::Malformed,
    };
    (name, argument)
}

/// Directive names have any case; calls `then` with `name` in lower case unless it is longer than any known.
fn match_name(name: &[u8], then: impl FnOnce(&[u8])) {
    const LONGEST: usize = b"stale-while-revalidate".len();
    let mut lower = [0; LONGEST];
    if let Some(lower) = lower.get_mut(..name.len()) {
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        then(lower);
    }
}

/// Keeps the shortest of several lifetimes; what cannot be read is 0.
fn shorten(lifetime: &mut Option<u32>, argument: Argument<'_>) {
    let seconds = argument.seconds().unwrap_or(0);
    *lifetime = Some(lifetime.map_or(seconds, |shortest| shortest.min(seconds)));
}
