//! From a response's head and a request to what goes out: status, range, fields (RFC 9110 §13, §14, §15).

use std::ops::Range;

use thalweg_cache::Head;
use thalweg_cache::fill::Progress;
use thalweg_http::cache_status::CacheStatus;
use thalweg_http::range::{self, Answer, ByteRange, Selected};
use thalweg_http::validators::{Outcome, Preconditions, range_applies};
use thalweg_http::{Fields, Method, RequestHead, Version, date, number, status};

use crate::CACHE_NAME;

/// What of a response's content answers a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// These bytes, as a 206.
    Range(Range<u64>),
    /// Several stretches of them, as a 206 in parts.
    Ranges(Vec<Range<u64>>),
    /// Nothing: 304.
    NotModified,
    /// Nothing: 412.
    PreconditionFailed,
    /// Nothing: 416, for content of this length.
    Unsatisfiable(u64),
    /// Not known before the byte at this offset, or the end, has arrived.
    After(u64),
}

/// Which part of a response with `head` answers `request`.
///
/// `Range` counts for GET and complete 200 responses (RFC 9110 §14.2).
pub(crate) fn part(request: &RequestHead, head: &Head, progress: Progress) -> Part {
    if head.status != 200 {
        return Part::Whole;
    }
    let preconditions = Preconditions::from_fields(&request.fields);
    let asked = request.fields.get("range").filter(|_| request.method == Method::Get);
    if preconditions.is_empty() && asked.is_none() {
        return Part::Whole;
    }
    let etag = head.fields.get("etag");
    let last_modified = head.fields.get("last-modified").and_then(date::parse);
    let date = head.fields.get("date").and_then(date::parse);
    // Without Last-Modified, If-Modified-Since is about when the response was made (RFC 9111 §4.3.2).
    let modified = last_modified.or(date.filter(|_| !request.fields.contains("if-unmodified-since")));
    match preconditions.evaluate(etag, modified, request.method) {
        Outcome::Proceed => {}
        Outcome::NotModified => return Part::NotModified,
        Outcome::Failed => return Part::PreconditionFailed,
    }
    let applies = range_applies(request.fields.get("if-range"), etag, last_modified, date);
    let asked = asked.filter(|_| applies).and_then(range::parse);
    let Some(ranges) = asked else { return Part::Whole };
    let (arrived, length) = match progress {
        Progress::Complete(length) => (length, Some(length)),
        Progress::Filling(arrived) | Progress::Failed(arrived) => (arrived, head.length),
        Progress::AwaitingHead => (0, head.length),
    };
    let Some(byte_range) = ranges.single() else {
        return match length.map(|length| (range::select(&ranges, length), length)) {
            Some((Selected::Several(ranges), _)) => Part::Ranges(ranges),
            Some((Selected::One(range), _)) => Part::Range(range),
            Some((Selected::Unsatisfiable, length)) => Part::Unsatisfiable(length),
            // How long the answer will be is not known before.
            None => Part::After(u64::MAX),
        };
    };
    match range::resolve_arriving(byte_range, arrived, length) {
        Answer::Range(range) => Part::Range(range),
        Answer::Unsatisfiable => Part::Unsatisfiable(length.unwrap_or(arrived)),
        Answer::Undecided => match byte_range {
            // All that comes, at once, is a better answer than all of it at the end.
            ByteRange::From(0) => Part::Whole,
            ByteRange::FromTo(_, last) => Part::After(last),
            ByteRange::From(_) | ByteRange::Suffix(_) => Part::After(u64::MAX),
        },
    }
}

/// How the content of a reply is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delimited {
    /// There is none, and no field says how much there would be.
    None,
    /// By `Content-Length`; with HEAD it says how much there would be.
    Length(u64),
    /// By the chunked coding.
    Chunked,
    /// By the end of the connection: for HTTP/1.0.
    Close,
}

/// A reply's head, to be written.
#[derive(Debug)]
pub(crate) struct ReplyHead<'a> {
    pub(crate) status: u16,
    /// If it is not that of the status.
    pub(crate) reason: Option<&'a str>,
    pub(crate) fields: &'a Fields,
    /// A policy has made them: a 304 has them all, as on Varnish.
    pub(crate) is_told: bool,
    /// For this client alone.
    pub(crate) own: Option<&'a Fields>,
    pub(crate) age_s: Option<u64>,
    pub(crate) delimited: Delimited,
    pub(crate) content_range: Option<&'a str>,
    /// Unless the fields have it.
    pub(crate) cache_status: Option<CacheStatus<'a>>,
    pub(crate) version: Version,
    pub(crate) keep_alive: bool,
}

impl ReplyHead<'_> {
    /// Writes the head to `out`, which is cleared before.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(b"HTTP/1.1 ");
        number::write(out, u64::from(self.status));
        out.push(b' ');
        // What was kept has no control characters: no line ends in it.
        out.extend_from_slice(status::phrase(self.status, self.reason).as_bytes());
        out.extend_from_slice(b"\r\n");
        if self.status == 304 && !self.is_told {
            self.write_fields_of_304(out);
        } else {
            out.extend_from_slice(self.fields.text());
            out.extend_from_slice(self.own.map_or(&[], Fields::text));
        }
        if let Some(age) = self.age_s {
            line(out, b"Age: ", |out| number::write(out, age));
        }
        match self.delimited {
            Delimited::Length(length) => line(out, b"Content-Length: ", |out| number::write(out, length)),
            Delimited::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Delimited::None | Delimited::Close => {}
        }
        if let Some(content_range) = self.content_range {
            line(out, b"Content-Range: ", |out| out.extend_from_slice(content_range.as_bytes()));
        }
        if let Some(cache_status) = &self.cache_status {
            line(out, b"Cache-Status: ", |out| cache_status.write(CACHE_NAME, out));
        }
        match (self.keep_alive, self.version) {
            (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
            (true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
            (true, Version::Http11) => {}
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Only what brings a stored response up to date (RFC 9110 §15.4.5), and by which nodes it came.
    fn write_fields_of_304(&self, out: &mut Vec<u8>) {
        const KEPT: [&str; 8] =
            ["cache-control", "content-location", "date", "etag", "expires", "last-modified", "vary", "via"];
        // Without these a page of another origin could not read the rest.
        const FOR_PAGES: &str = "access-control-";
        for (name, value) in self.fields.iter() {
            let for_pages =
                name.get(..FOR_PAGES.len()).is_some_and(|start| start.eq_ignore_ascii_case(FOR_PAGES));
            if for_pages || KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(name)) {
                out.extend_from_slice(name.as_bytes());
                line(out, b": ", |out| out.extend_from_slice(value));
            }
        }
    }
}

fn line(out: &mut Vec<u8>, start: &[u8], value: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(start);
    value(out);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
