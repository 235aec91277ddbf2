//! Fetches that break off, and fetches that the client abandons (RFC 9110 §14.2, RFC 9111 §3.3).

use crate::sequence::{Sequence, sequence};

/// Content length far above the amount that the edge still fetches after the client has
/// disconnected.
const LARGE_BYTES: usize = 8 << 20;
/// Content length above the amount that any proxy buffers before it sends.
const FIRST_BYTES: usize = 1 << 20;

pub(crate) fn all() -> Vec<Sequence> {
    let content: &str = Box::leak("x".repeat(LARGE_BYTES).into_boxed_str());
    let broken =
        |name, fields| sequence(name, "RFC 9110 §14.2").ok(fields, content).breaks_off(FIRST_BYTES).begin();
    vec![
        broken("broken", "Cache-Control: max-age=60\nETag: \"a\"").begin(),
        broken("broken-weak", "Cache-Control: max-age=60\nETag: W/\"a\""),
        broken("broken-without-ranges", "Cache-Control: max-age=60\nETag: \"a\"\nAccept-Ranges: none"),
        sequence("left", "RFC 9111 §3.3")
            .ok("Cache-Control: max-age=60", content)
            .halts(FIRST_BYTES)
            .leave()
            .get(""),
    ]
}
