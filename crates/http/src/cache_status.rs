//! `Cache-Status` (RFC 9211): how a cache handled a request, as one member of a structured list
//! (RFC 8941).

use crate::token::is_token;
use crate::{Fields, number};

/// Name of the `Cache-Status` field.
pub const CACHE_STATUS: &str = "Cache-Status";

/// Reason for forwarding a request (RFC 9211 §2.2). Use the most specific one that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The cache was configured not to handle this request.
    Bypass,
    /// The semantics of the method require forwarding.
    Method,
    /// Nothing is stored under the URI.
    UriMiss,
    /// Responses are stored under the URI, but the request selects none of them.
    VaryMiss,
    /// No suitable response is stored, and the cache cannot distinguish `UriMiss` from `VaryMiss`.
    Miss,
    /// A fresh response was selected, but the request's directives did not allow it.
    Request,
    /// The selected response was stale.
    Stale,
    /// The selected response lacks part of the requested range.
    Partial,
}

impl Forward {
    /// Returns the value of the `fwd` parameter.
    pub fn as_str(self) -> &'static str {
        match self {
            Forward::Bypass => "bypass",
            Forward::Method => "method",
            Forward::UriMiss => "uri-miss",
            Forward::VaryMiss => "vary-miss",
            Forward::Miss => "miss",
            Forward::Request => "request",
            Forward::Stale => "stale",
            Forward::Partial => "partial",
        }
    }
}

/// How one cache handled one request. A hit has no `forward` (RFC 9211 §2.1); a response generated
/// by the cache itself, such as an error, is neither a hit nor forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// Whether the response was served from the cache without forwarding the request.
    pub hit: bool,
    /// Why the request was forwarded.
    pub forward: Option<Forward>,
    /// Status of the next hop's response, if it differs from this response's status or aids
    /// debugging.
    pub forward_status: Option<u16>,
    /// Remaining freshness lifetime, in seconds; negative once stale.
    pub ttl_s: Option<i64>,
    /// Whether the response was stored.
    pub stored: bool,
    /// Whether the request was collapsed with another (RFC 9211 §2.6).
    pub collapsed: bool,
    /// The cache key, for debugging.
    pub key: Option<&'a str>,
    /// Further details, as free text.
    pub detail: Option<&'a str>,
}

impl CacheStatus<'_> {
    /// Appends the list member for the cache named `cache` to `out`.
    pub fn write(&self, cache: &str, out: &mut Vec<u8>) {
        debug_assert!(!(self.hit && self.forward.is_some()), "a hit is not forwarded");
        write_token_or_string(out, cache);
        write_flag(out, "hit", self.hit);
        if let Some(forward) = self.forward {
            write_key(out, "fwd");
            out.extend_from_slice(forward.as_str().as_bytes());
        }
        if let Some(status) = self.forward_status {
            write_key(out, "fwd-status");
            number::write(out, u64::from(status));
        }
        if let Some(ttl) = self.ttl_s {
            write_key(out, "ttl");
            write_integer(out, ttl);
        }
        write_flag(out, "stored", self.stored);
        write_flag(out, "collapsed", self.collapsed);
        if let Some(key) = self.key {
            write_key(out, "key");
            write_string(out, key);
        }
        if let Some(detail) = self.detail {
            write_key(out, "detail");
            write_token_or_string(out, detail);
        }
    }

    /// Appends the list member to `Cache-Status` in `fields`, after the members of caches nearer
    /// the origin server (RFC 9211 §2).
    pub fn append_to(&self, cache: &str, fields: &mut Fields) {
        let mut member = Vec::with_capacity(128);
        self.write(cache, &mut member);
        fields.append(CACHE_STATUS, &member);
    }
}

fn write_flag(out: &mut Vec<u8>, name: &str, set: bool) {
    if set {
        out.extend_from_slice(b"; ");
        out.extend_from_slice(name.as_bytes());
    }
}

fn write_key(out: &mut Vec<u8>, name: &str) {
    write_flag(out, name, true);
    out.push(b'=');
}

/// Writes an sf-integer, which has at most 15 digits (RFC 8941 §3.3.1).
fn write_integer(out: &mut Vec<u8>, value: i64) {
    const SF_INTEGER_MAX: u64 = 999_999_999_999_999;
    if value < 0 {
        out.push(b'-');
    }
    number::write(out, value.unsigned_abs().min(SF_INTEGER_MAX));
}

/// Writes `text` as an sf-token (RFC 8941 §3.3.4) if it is a token that starts with a letter,
/// otherwise as an sf-string.
fn write_token_or_string(out: &mut Vec<u8>, text: &str) {
    if text.starts_with(|c: char| c.is_ascii_alphabetic()) && is_token(text.as_bytes()) {
        out.extend_from_slice(text.as_bytes());
    } else {
        write_string(out, text);
    }
}

/// Writes an sf-string (RFC 8941 §3.3.3), which allows only printable ASCII. Replaces any other
/// character with `?`.
fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
            ' '..='~' => out.push(c as u8),
            _ => out.push(b'?'),
        }
    }
    out.push(b'"');
}
