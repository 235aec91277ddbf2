//! Request head for a backend, for fetches and pipes: `Host`, exactly one length, and the hops so
//! far (`X-Forwarded-For`, `Via`, `CDN-Loop`).
//!
//! **Invariant:** no forwarded field can be mistaken for a field that frames the request or
//! identifies the client. Backends that map field names to variables, as CGI does (RFC 3875
//! §4.1.18), do not distinguish hyphens from underscores: `Content_Length` and `Content-Length`
//! both become `HTTP_CONTENT_LENGTH`.

use std::net::IpAddr;

use thalweg_http::{Fields, Framing, RequestHead, framing, write};

use super::request::{Request, Validation, Want};
use crate::hops::{Node, via};

/// Fields that depend on the client's own cache or range, and must not affect the response to be
/// stored (RFC 9111 §4.3.1).
const CONDITIONAL: [&str; 6] =
    ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range"];
/// Fields that only this node may set, even if the request does not have them. Only names with a
/// hyphen can be shadowed.
const SHADOWED: [&str; 11] = [
    "content-length",
    "transfer-encoding",
    "proxy-connection",
    "keep-alive",
    "cdn-loop",
    "x-forwarded-for",
    "if-match",
    "if-none-match",
    "if-range",
    "if-modified-since",
    "if-unmodified-since",
];

/// Writes the head of `request`, sent to `host` on behalf of `client`, with `fields` and the fields
/// added to every forwarded request. Repeated equal lengths become one (RFC 9110 §8.6).
pub(crate) fn write_head(
    request: &RequestHead,
    host: &str,
    fields: &Fields,
    client: IpAddr,
    node: &Node,
) -> Vec<u8> {
    let mut forwarded = Fields::new();
    forwarded.push("Host", host);
    let length = framing::content_length(fields).ok().flatten();
    for (name, value) in fields.iter() {
        if name.eq_ignore_ascii_case("host") || shadows(name, fields) {
            continue;
        }
        match length.filter(|_| name.eq_ignore_ascii_case("content-length")) {
            Some(_) if forwarded.contains("content-length") => {}
            Some(length) => forwarded.push_number("Content-Length", length),
            None => forwarded.push(name, value),
        }
    }
    forwarded.append("X-Forwarded-For", client.to_string());
    forwarded.append("Via", via(request.version));
    node.sign(&mut forwarded);
    let mut out = Vec::new();
    write::write_request_head(&mut out, request.method_str(), request.target.as_str(), &forwarded);
    out
}

/// Returns whether a backend could mistake this field for one of `fields` or for a field that only
/// this node may set.
fn shadows(name: &str, fields: &Fields) -> bool {
    if !name.contains('_') {
        return false;
    }
    let shadowed = name.replace('_', "-");
    SHADOWED.iter().any(|known| shadowed.eq_ignore_ascii_case(known)) || fields.contains(&shadowed)
}

impl Request {
    /// Writes the head to send to the backend. With `rest`, an offset and an entity tag, requests
    /// only the content from the offset on, provided that the tag still matches.
    pub(super) fn write(&self, client: IpAddr, node: &Node, rest: Option<(u64, &[u8])>) -> Vec<u8> {
        let mut fields = self.head.fields.clone();
        fields.remove_hop_by_hop();
        // `Content-Length` is set below. `Expect` is handled by this edge before it reads the
        // content. Request trailers are not forwarded.
        fields.remove_where(|name, _| is_one_of(name, &["content-length", "expect", "trailer"]));
        if !self.is_passed() {
            fields.remove_where(|name, _| is_one_of(name, &CONDITIONAL));
        }
        match (rest, &self.want) {
            (Some((from, etag)), _) => {
                fields.push("Range", format!("bytes={from}-"));
                fields.push("If-Range", etag);
            }
            (None, Want::Validation(Validation { stale, .. })) if stale.has_validator() => {
                let conditions = [("If-None-Match", "etag"), ("If-Modified-Since", "last-modified")];
                for (condition, validator) in conditions {
                    if let Some(value) = stale.head.fields.get(validator) {
                        fields.push(condition, value);
                    }
                }
            }
            (None, Want::Slice(slice)) => slice.write(&mut fields),
            _ => {}
        }
        match self.framing() {
            Framing::Length(length) => fields.push_number("Content-Length", length),
            Framing::Chunked => fields.push("Transfer-Encoding", "chunked"),
            Framing::None | Framing::UntilClose => {}
        }
        fields.push("TE", "trailers");
        fields.push("Connection", "TE");
        let host = self.route.host(self.head.authority.as_str());
        write_head(&self.head, host, &fields, client, node)
    }
}

fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}
