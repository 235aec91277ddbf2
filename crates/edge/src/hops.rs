//! Message hops: `Via` (RFC 9110 §7.6.3) lists them, and `CDN-Loop` (RFC 8586) detects loops.

use std::hash::{BuildHasher, RandomState};

use thalweg_http::{Fields, Version, token};

use crate::CACHE_NAME;

/// A node's unique name, as a `cdn-id`.
#[derive(Debug)]
pub(crate) struct Node(String);

impl Node {
    /// Creates a unique name from 64 random bits.
    pub(crate) fn new() -> Self {
        Self(format!("{CACHE_NAME}-{:016x}", RandomState::new().hash_one(())))
    }

    /// Returns whether a request with `fields` has already passed through this node.
    pub(crate) fn has_seen(&self, fields: &Fields) -> bool {
        fields.list("cdn-loop").any(|member| {
            let id = member.split(|byte| *byte == b';').next().unwrap_or_default();
            token::trim_ows(id).eq_ignore_ascii_case(self.0.as_bytes())
        })
    }

    /// Adds this node's name to the `CDN-Loop` of a forwarded request.
    pub(crate) fn sign(&self, fields: &mut Fields) {
        fields.append("CDN-Loop", &self.0);
    }
}

/// Formats the `Via` member for a message received in `version`.
pub(crate) fn via(version: Version) -> String {
    let received = version.as_str().trim_start_matches("HTTP/");
    format!("{received} {CACHE_NAME}")
}
