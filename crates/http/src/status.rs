//! Status codes (RFC 9110 §15): reason phrases and what a code says about its message.

use std::sync::Arc;

/// The bytes of a reason phrase that are kept.
pub const REASON_BYTES_MAX: usize = 256;
/// The reason phrase of a status that has none, as Varnish has it.
const REASON_UNKNOWN: &str = "Unknown HTTP Status";

/// What is kept of a reason phrase: `None` if it is empty or that of the status, else the phrase up to [`REASON_BYTES_MAX`], with
/// spaces in place of control characters. It has no meaning to a client (RFC 9112 §4); people read it.
pub fn unusual_reason(status: u16, phrase: &str) -> Option<Arc<str>> {
    if phrase.is_empty() || phrase == reason(status) {
        return None;
    }
    let kept = &phrase[..phrase.floor_char_boundary(REASON_BYTES_MAX)];
    Some(kept.replace(|c: char| c.is_ascii_control(), " ").into())
}

/// The phrase that goes with `status` and what [`unusual_reason`] has kept: never missing.
pub fn phrase(status: u16, kept: Option<&str>) -> &str {
    kept.unwrap_or_else(|| match reason(status) {
        "" => REASON_UNKNOWN,
        usual => usual,
    })
}

/// The reason phrase that the registry gives `status`; empty for codes this table lacks.
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

/// Whether a response with `status` may be stored on a heuristic lifetime alone (RFC 9110 §15.1).
pub fn is_cacheable_by_default(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Whether a response with `status` never has content, whatever its fields say (RFC 9112 §6.3, rule 1).
pub fn is_bodyless(status: u16) -> bool {
    is_informational(status) || matches!(status, 204 | 304)
}

/// Whether another response to the same request follows (RFC 9110 §15.2).
pub fn is_informational(status: u16) -> bool {
    (100..200).contains(&status)
}
