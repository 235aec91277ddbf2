//! Serialisation of message heads into a caller-provided buffer.
//!
//! The version written is always HTTP/1.1, because a version states what the sender supports (RFC
//! 9110 §2.5).

use crate::{Fields, Method, number, status};

const LINE_END: &[u8] = b"\r\n";

/// Appends a status line, `fields` and an empty line.
pub fn write_response_head(out: &mut Vec<u8>, status: u16, fields: &Fields) {
    const START: &[u8] = b"HTTP/1.1 ";
    let reason = status::reason(status);
    out.reserve(START.len() + 4 + reason.len() + fields.text_len() + 2 * LINE_END.len());
    out.extend_from_slice(START);
    number::write(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(LINE_END);
    write_fields(out, fields);
}

/// Appends a request line, `fields` and an empty line.
///
/// `method` is the result of [`RequestHead::method_str`](crate::RequestHead::method_str) or
/// [`Method::as_str`]; `target` is in origin-form, as [`Target::as_str`](crate::Target::as_str)
/// returns it. `Host` is an ordinary field and should come first.
pub fn write_request_head(out: &mut Vec<u8>, method: &str, target: &str, fields: &Fields) {
    const END: &[u8] = b" HTTP/1.1\r\n";
    debug_assert!(method != Method::Other.as_str() && target.bytes().all(|byte| byte.is_ascii_graphic()));
    out.reserve(method.len() + 1 + target.len() + END.len() + fields.text_len() + LINE_END.len());
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(END);
    write_fields(out, fields);
}

/// Appends `fields` and an empty line, which form the end of a head or a trailer section.
pub fn write_fields(out: &mut Vec<u8>, fields: &Fields) {
    out.extend_from_slice(fields.text());
    out.extend_from_slice(LINE_END);
}
