//! Status codes (RFC 9110 §15): reason phrases, and whether a response has content or is final.

use std::sync::Arc;

/// Maximum stored length of a reason phrase, in bytes.
pub const REASON_BYTES_MAX: usize = 256;
/// Reason phrase for an unknown status, as in Varnish.
const REASON_UNKNOWN: &str = "Unknown HTTP Status";

/// Returns the part of `phrase` to store: up to [`REASON_BYTES_MAX`] bytes, with control characters
/// replaced with spaces. Returns `None` if the phrase is empty or the registered one for `status`.
/// Clients ignore phrases (RFC 9112 §4), but people read them.
pub fn unusual_reason(status: u16, phrase: &str) -> Option<Arc<str>> {
    if phrase.is_empty() || phrase == reason(status) {
        return None;
    }
    let stored = &phrase[..phrase.floor_char_boundary(REASON_BYTES_MAX)];
    Some(stored.replace(|c: char| c.is_ascii_control(), " ").into())
}

/// Returns the reason phrase for `status`: `stored` if present, otherwise the registered phrase.
/// `stored` is the result of [`unusual_reason`]. Never returns an empty string.
pub fn phrase(status: u16, stored: Option<&str>) -> &str {
    stored.unwrap_or_else(|| match reason(status) {
        "" => REASON_UNKNOWN,
        usual => usual,
    })
}

/// Returns the registered reason phrase of `status`; empty for codes missing from this table.
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "",
    }
}

/// Returns whether a response with `status` never has content, regardless of its fields (RFC 9112
/// §6.3, rule 1).
pub fn is_bodyless(status: u16) -> bool {
    is_informational(status) || matches!(status, 204 | 304)
}

/// Returns whether another response to the same request follows (RFC 9110 §15.2).
pub fn is_informational(status: u16) -> bool {
    (100..200).contains(&status)
}
