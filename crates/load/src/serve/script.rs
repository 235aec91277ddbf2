//! Response settings in a request's query.
//!
//! `?bytes=N` sets the content length, `?chunk=16KiB&every=100ms` selects the chunked coding,
//! `?wait=50ms` delays the head, `?status=503` sets the status, `?cut=N` closes after N bytes of
//! content, `?corrupt=N` flips byte N. With `?stamp`, each chunk starts with its send time: Unix
//! time in microseconds, eight bytes, big-endian.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use thalweg_http::range::{self, Selected, content_range, select, unsatisfied_range};
use thalweg_http::validators::range_applies;
use thalweg_http::{Method, RequestHead, status};
use thalweg_units::{Size, Span};

use super::Content;

/// Default content length.
pub const LENGTH_BYTES_DEFAULT: u64 = 1000;
/// Freshness lifetime of successful responses.
const MAX_AGE_S: u32 = 3600;

/// Settings in a request's query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Content length.
    pub length: u64,
    /// Size of every chunk except the last; if `None`, the chunked coding is not used.
    pub chunk_bytes: Option<u64>,
    /// Interval between the starts of chunks.
    pub every: Duration,
    /// Delay before the head.
    pub wait: Duration,
    /// Status instead of 200 or 206.
    pub status: Option<u16>,
    /// Number of content bytes after which to close the connection.
    pub cut: Option<u64>,
    /// Offset of the content byte to corrupt.
    pub corrupt: Option<u64>,
    /// Whether each chunk starts with its send time.
    pub is_stamped: bool,
}

/// A response to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The complete head.
    pub head: String,
    /// Range of the content to send.
    pub range: Range<u64>,
    /// Text to send instead of the content.
    pub text: Option<String>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            length: LENGTH_BYTES_DEFAULT,
            chunk_bytes: None,
            every: Duration::ZERO,
            wait: Duration::ZERO,
            status: None,
            cut: None,
            corrupt: None,
            is_stamped: false,
        }
    }
}

impl Script {
    /// Parses a request's query. An invalid query selects status 400.
    pub fn of(head: &RequestHead) -> Self {
        let mut script = Self::default();
        for pair in head.target.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            if script.apply(pair).is_none() {
                return Self { status: Some(400), ..Self::default() };
            }
        }
        script
    }

    fn apply(&mut self, pair: &str) -> Option<()> {
        if pair == "stamp" {
            self.is_stamped = true;
            return Some(());
        }
        let (name, value) = pair.split_once('=')?;
        let number = || value.parse::<u64>().ok();
        let span = || value.parse::<Span>().ok().map(|span| span.duration);
        match name {
            "bytes" => self.length = number()?,
            "chunk" => {
                self.chunk_bytes = Some(value.parse::<Size>().ok().filter(|size| size.bytes > 0)?.bytes);
            }
            "every" => self.every = span()?,
            "wait" => self.wait = span()?,
            "status" => self.status = Some(value.parse().ok().filter(|status| (200..600).contains(status))?),
            "cut" => self.cut = Some(number()?),
            "corrupt" => self.corrupt = Some(number()?),
            // Ignore other parameters; they only make URLs distinct.
            _ => {}
        }
        Some(())
    }

    /// Builds the response to a request.
    pub fn reply(&self, head: &RequestHead, content: Content) -> Reply {
        let is_get = head.method == Method::Get;
        if let Some(status) = self.status.or((!is_get && head.method != Method::Head).then_some(405)) {
            return error(status, is_get);
        }
        // The entity tag includes the length, because the same path can have content of any length.
        let etag = format!("\"{:x}-{}\"", content.key(), self.length);
        let may_range = range_applies(head.fields.get("if-range"), Some(etag.as_bytes()), None, None);
        let ranges = head.fields.get("range").filter(|_| is_get && may_range).and_then(range::parse);
        let selected = ranges.map(|ranges| select(&ranges, self.length));
        let (status, range) = match &selected {
            Some(Selected::One(range)) => (206, range.clone()),
            Some(Selected::Unsatisfiable) => (416, 0..0),
            // A server may respond to several ranges with the complete content.
            None | Some(Selected::Several(_)) => (200, 0..self.length),
        };
        let mut text = start(status);
        text += "Content-Type: application/octet-stream\r\nAccept-Ranges: bytes\r\n";
        // Stamped content differs in every response, so it has no entity tag.
        if !self.is_stamped {
            let _ = write!(text, "ETag: {etag}\r\n");
        }
        let _ = write!(text, "Cache-Control: max-age={MAX_AGE_S}\r\n");
        match status {
            206 => drop(write!(text, "Content-Range: {}\r\n", content_range(&range, Some(self.length)))),
            416 => drop(write!(text, "Content-Range: {}\r\n", unsatisfied_range(self.length))),
            _ => {}
        }
        match self.chunk_bytes.filter(|_| status != 416) {
            Some(_) => text += "Transfer-Encoding: chunked\r\n",
            None => drop(write!(text, "Content-Length: {}\r\n", range.end - range.start)),
        }
        text += "\r\n";
        let instead = (!is_get || status == 416).then(String::new);
        Reply { head: text, range, text: instead }
    }

    /// Corrupts the selected byte if it is in `bytes`, which start at `offset`.
    pub fn corrupt_in(&self, offset: u64, bytes: &mut [u8]) {
        let at = self.corrupt.and_then(|corrupt| corrupt.checked_sub(offset));
        if let Some(byte) = at.and_then(|at| bytes.get_mut(usize::try_from(at).ok()?)) {
            *byte = !*byte;
        }
    }

    /// Overwrites the start of a chunk with the time, if requested.
    pub fn stamp(&self, beginning: &mut [u8], now_us: u64) {
        if self.is_stamped {
            for (byte, of_time) in beginning.iter_mut().zip(now_us.to_be_bytes()) {
                *byte = of_time;
            }
        }
    }
}

fn start(code: u16) -> String {
    format!("HTTP/1.1 {code} {}\r\n", status::phrase(code, None))
}

/// Builds a response with this status and a line of text.
fn error(code: u16, has_content: bool) -> Reply {
    let text = if status::is_bodyless(code) { String::new() } else { format!("{code}\n") };
    let mut head = start(code);
    head += "Cache-Control: no-store\r\n";
    if !status::is_bodyless(code) {
        let _ = write!(head, "Content-Type: text/plain\r\nContent-Length: {}\r\n", text.len());
    }
    head += "\r\n";
    Reply { head, range: 0..0, text: Some(if has_content { text } else { String::new() }) }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use thalweg_http::Limits;
    use thalweg_http::head::parse_request;

    use super::*;

    fn check(target: &str, fields: &str, expected: Expect) -> (Script, Reply) {
        let mut head = RequestHead::default();
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        parse_request(text.as_bytes(), &mut head, &Limits::default()).unwrap();
        let script = Script::of(&head);
        let reply = script.reply(&head, Content::of(target));
        expected.assert_eq(&reply.head.replace("\r\n", "\n"));
        (script, reply)
    }

    #[test]
    fn whole_content_and_ranges_are_served() {
        let (_, reply) = check(
            "/a?bytes=50",
            "",
            expect![[r#"
                HTTP/1.1 200 OK
                Content-Type: application/octet-stream
                Accept-Ranges: bytes
                ETag: "e292ab48a6b06805-50"
                Cache-Control: max-age=3600
                Content-Length: 50

            "#]],
        );
        assert_eq!((reply.range, reply.text), (0..50, None));
        let (script, reply) = check(
            "/a?bytes=50&chunk=8B&every=5ms&wait=1s&cut=3&corrupt=12&x",
            "Range: bytes=10-\r\n",
            expect![[r#"
                HTTP/1.1 400 Bad Request
                Cache-Control: no-store
                Content-Type: text/plain
                Content-Length: 4

            "#]],
        );
        assert_eq!((script.status, reply.text.as_deref()), (Some(400), Some("400\n")));
        let (script, reply) = check(
            "/a?bytes=50&chunk=8B&every=5ms&wait=1s&cut=3&corrupt=12&x=",
            "Range: bytes=10-\r\n",
            expect![[r#"
                HTTP/1.1 206 Partial Content
                Content-Type: application/octet-stream
                Accept-Ranges: bytes
                ETag: "e292ab48a6b06805-50"
                Cache-Control: max-age=3600
                Content-Range: bytes 10-49/50
                Transfer-Encoding: chunked

            "#]],
        );
        assert_eq!((script.chunk_bytes, script.cut, reply.range), (Some(8), Some(3), 10..50));
        assert_eq!((script.every.as_millis(), script.wait.as_millis()), (5, 1000));
        let mut bytes = [0; 4];
        script.corrupt_in(10, &mut bytes);
        script.corrupt_in(13, &mut bytes);
        assert_eq!(bytes, [0, 0, 255, 0]);
    }

    #[test]
    fn stamped_content_has_no_etag() {
        let (script, _) = check(
            "/a?bytes=50&chunk=10B&stamp",
            "",
            expect![[r#"
                HTTP/1.1 200 OK
                Content-Type: application/octet-stream
                Accept-Ranges: bytes
                Cache-Control: max-age=3600
                Transfer-Encoding: chunked

            "#]],
        );
        let mut chunk = [9; 10];
        script.stamp(&mut chunk, 0x0102_0304);
        assert_eq!(chunk, [0, 0, 0, 0, 1, 2, 3, 4, 9, 9]);
        script.stamp(&mut chunk[..2], u64::MAX);
        assert_eq!(chunk[..3], [255, 255, 0], "a shorter chunk gets the first bytes of the time");
        Script::default().stamp(&mut chunk, 0);
        assert_eq!(chunk[0], 255);
    }

    #[test]
    fn unsatisfiable_and_mismatched_ranges_are_handled() {
        let (_, reply) = check(
            "/a?bytes=50",
            "Range: bytes=50-\r\n",
            expect![[r#"
                HTTP/1.1 416 Range Not Satisfiable
                Content-Type: application/octet-stream
                Accept-Ranges: bytes
                ETag: "e292ab48a6b06805-50"
                Cache-Control: max-age=3600
                Content-Range: bytes */50
                Content-Length: 0

            "#]],
        );
        assert_eq!(reply.text.as_deref(), Some(""));
        let (_, reply) = check(
            "/a?bytes=50",
            "Range: bytes=5-\r\nIf-Range: \"other\"\r\n",
            expect![[r#"
                HTTP/1.1 200 OK
                Content-Type: application/octet-stream
                Accept-Ranges: bytes
                ETag: "e292ab48a6b06805-50"
                Cache-Control: max-age=3600
                Content-Length: 50

            "#]],
        );
        assert_eq!(reply.range, 0..50);
    }
}
