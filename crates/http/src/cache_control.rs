//! `Cache-Control` of responses and requests (RFC 9111 §5.2, RFC 5861, RFC 8246), and targeted
//! fields such as `CDN-Cache-Control` (RFC 9213).
//!
//! **Invariant:** malformed input never extends caching. An invalid lifetime counts as 0, and the
//! shortest of several lifetimes applies (§4.2.1). A directive that permits more caching takes
//! effect only in its exact form; a restrictive directive takes effect in any form.

use crate::Fields;
use crate::fields::{members, unquoted_position};
use crate::number::{self, Decimal};
use crate::token::trim_ows;

/// Maximum delta-seconds value (RFC 9111 §1.2.2); larger numbers are clamped to 2^31.
pub const DELTA_S_MAX: u32 = 1 << 31;

/// A directive that can be limited to named fields: `no-cache` or `private`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Qualified {
    /// The directive is absent.
    #[default]
    Absent,
    /// The directive applies only to the fields in this quoted list; see [`names`](Self::names).
    Fields(Box<[u8]>),
    /// The directive applies to the whole response.
    Whole,
}

impl Qualified {
    /// Returns whether the directive applies to the whole response. An empty list does not limit
    /// it.
    pub fn is_whole(&self) -> bool {
        match self {
            Qualified::Absent => false,
            Qualified::Fields(_) => self.names().next().is_none(),
            Qualified::Whole => true,
        }
    }

    /// Returns the field names to which the directive is limited.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        members(match self {
            Qualified::Fields(names) => names,
            _ => &[],
        })
    }

    /// Merges another occurrence of the directive. The broader one wins, and two lists are
    /// concatenated.
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

/// Response directives. Lifetimes are in seconds.
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
    /// Parses all `Cache-Control` lines of a response.
    pub fn from_fields(fields: &Fields) -> CacheControl {
        CacheControl::from_values(fields.get_all("cache-control"))
    }

    /// Parses the values of `Cache-Control` lines.
    pub fn from_values<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> CacheControl {
        let mut directives = CacheControl::default();
        for member in lines.into_iter().flat_map(members) {
            let (name, argument) = split_directive(member);
            directives.add(name, argument);
        }
        directives
    }

    /// Parses all lines of a targeted field, a Structured Fields dictionary (RFC 9213 §2.1).
    /// Returns `None` if the field is absent, empty or malformed. A lifetime that is not an Integer
    /// counts as 0.
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
            // The value `false` disables a directive.
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

/// Request directives. Times are in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCacheControl {
    /// `max-age`: maximum acceptable age.
    pub max_age: Option<u32>,
    /// `max-stale`: maximum acceptable staleness; [`DELTA_S_MAX`] means no limit.
    pub max_stale: Option<u32>,
    /// `min-fresh`: minimum remaining freshness lifetime.
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
    /// Parses all `Cache-Control` lines of a request. Without any, `Pragma: no-cache` is treated as
    /// `no-cache` (RFC 9111 §5.4).
    pub fn from_fields(fields: &Fields) -> RequestCacheControl {
        let mut directives = RequestCacheControl::from_values(fields.get_all("cache-control"));
        if !fields.contains("cache-control") {
            directives.no_cache =
                fields.list("pragma").any(|member| member.eq_ignore_ascii_case(b"no-cache"));
        }
        directives
    }

    /// Parses the values of `Cache-Control` lines.
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

/// A directive's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Argument<'a> {
    None,
    Token(&'a [u8]),
    /// The string between the quotes.
    Quoted(&'a [u8]),
    /// Any other argument, such as one with white space around `=`, an unterminated quote or an
    /// escape. Numbers and field names never need escapes.
    Malformed,
}

impl Argument<'_> {
    /// Parses the argument as delta-seconds. Accepts both the token and the quoted form, as RFC
    /// 9111 §5.2 recommends.
    fn seconds(self) -> Option<u32> {
        let (Argument::Token(digits) | Argument::Quoted(digits)) = self else { return None };
        let seconds = match number::parse(digits)? {
            Decimal::Value(value) => u32::try_from(value).unwrap_or(DELTA_S_MAX),
            Decimal::Overflow => DELTA_S_MAX,
        };
        Some(seconds.min(DELTA_S_MAX))
    }
}

/// Returns whether the directive `name` can be limited to named fields.
fn is_qualified(name: &str) -> bool {
    matches!(name, "no-cache" | "private")
}

/// Splits a directive into name and argument.
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

/// Calls `then` with the lower-cased `name`, because directive names are case-insensitive. Ignores
/// names longer than the longest known directive.
fn match_name(name: &[u8], then: impl FnOnce(&[u8])) {
    const LONGEST: usize = b"stale-while-revalidate".len();
    let mut lower = [0; LONGEST];
    if let Some(lower) = lower.get_mut(..name.len()) {
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        then(lower);
    }
}

/// Reduces `lifetime` to the argument's value if that is shorter. An invalid argument counts as 0.
fn shorten(lifetime: &mut Option<u32>, argument: Argument<'_>) {
    let seconds = argument.seconds().unwrap_or(0);
    *lifetime = Some(lifetime.map_or(seconds, |shortest| shortest.min(seconds)));
}
