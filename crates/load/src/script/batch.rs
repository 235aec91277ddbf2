//! Requests returned by a script in one string. wrk pipelines them, but here each is sent after the
//! previous response.

use std::collections::VecDeque;
use std::ops::Range;

use thalweg_http::framing::request_framing;
use thalweg_http::head::parse_request;
use thalweg_http::{Framing, Limits, RequestHead};

/// Maximum requests in one string.
const REQUESTS_MAX: usize = 1000;

/// Requests still to be sent.
#[derive(Debug, Default, Clone)]
pub(super) struct Batch {
    text: Vec<u8>,
    requests: VecDeque<Range<usize>>,
}

impl Batch {
    /// Replaces the batch with the complete requests in `text`.
    pub(super) fn fill(&mut self, text: &[u8]) -> Result<(), String> {
        self.requests.clear();
        let mut begin = 0;
        while begin < text.len() || self.requests.is_empty() {
            let end = begin + first(&text[begin..])?;
            if self.requests.len() == REQUESTS_MAX {
                return Err(format!("more than {REQUESTS_MAX} requests"));
            }
            self.requests.push_back(begin..end);
            begin = end;
        }
        self.text.clear();
        self.text.extend_from_slice(text);
        Ok(())
    }

    /// Returns whether no requests are left.
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Removes and returns the next request.
    pub(super) fn next(&mut self) -> &[u8] {
        let range = self.requests.pop_front().unwrap_or_default();
        &self.text[range]
    }
}

/// Returns the length of the first request, including its content.
fn first(text: &[u8]) -> Result<usize, String> {
    let mut head = RequestHead::default();
    let head_bytes = parse_request(text, &mut head, &Limits::default())
        .map_err(|error| format!("not a request: {error}"))?
        .ok_or("a request with an incomplete head")?;
    let content_bytes = (text.len() - head_bytes) as u64;
    match request_framing(&head).map_err(|error| format!("not a request: {error}"))? {
        // Chunked content is not parsed and extends to the end of the string.
        Framing::Chunked => Ok(text.len()),
        Framing::Length(length) if content_bytes < length => {
            Err(format!("{content_bytes} bytes of content, but Content-Length is {length}"))
        }
        // The cast is safe: the arm above checks that `text` contains all content.
        Framing::Length(length) => Ok(head_bytes + length as usize),
        _ => Ok(head_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_split() {
        let (get, post) = (
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        );
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        for all in [vec![get], vec![post, get, get], vec![get, post], vec![post, chunked]] {
            let mut batch = Batch::default();
            batch.fill(all.concat().as_bytes()).unwrap();
            for one in &all {
                assert_eq!(batch.next(), one.as_bytes());
            }
            assert!(batch.is_empty());
        }
    }

    #[test]
    fn invalid_requests_are_rejected() {
        let many = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(REQUESTS_MAX + 1);
        for (text, part) in [
            ("", "incomplete head"),
            ("GET / HTTP/1.1\r\nHost: a\r\n", "incomplete head"),
            ("hello\r\n\r\n", "not a request: "),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\nhello\r\n\r\n", "not a request: "),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab",
                "2 bytes of content, but Content-Length is 3",
            ),
            (&many, "more than 1000 requests"),
        ] {
            let found = Batch::default().fill(text.as_bytes()).unwrap_err();
            assert!(found.contains(part), "{text}: {found}");
        }
    }
}
