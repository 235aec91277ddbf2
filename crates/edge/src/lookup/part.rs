//! Part selection: determines the part of a response to send from the request's conditions and
//! ranges (RFC 9110 §13, §14).

use std::ops::Range;

use thalweg_cache::Head;
use thalweg_cache::fill::Progress;
use thalweg_http::range::{self, Answer, ByteRange, Selected};
use thalweg_http::validators::{Outcome, Preconditions, range_applies};
use thalweg_http::{Method, RequestHead, date};

/// The part of a response to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All content.
    Whole,
    /// One range, as a 206.
    Range(Range<u64>),
    /// Several ranges, as a multipart 206.
    Ranges(Vec<Range<u64>>),
    /// No content: 304.
    NotModified,
    /// No content: 412.
    PreconditionFailed,
    /// No content: 416, for content of this length in bytes.
    Unsatisfiable(u64),
    /// Undecided until the byte at this offset, or the end of the content, has arrived.
    After(u64),
}

/// Selects the part of a response to send, given its `head`. `method` is the client's method, even
/// if a policy has changed it in `request`.
///
/// `Range` applies only to GET requests and 200 responses (RFC 9110 §14.2).
pub(crate) fn part(request: &RequestHead, method: Method, head: &Head, progress: Progress) -> Part {
    if head.status != 200 {
        return Part::Whole;
    }
    let preconditions = Preconditions::from_fields(&request.fields);
    let requested = request.fields.get("range").filter(|_| method == Method::Get);
    if preconditions.is_empty() && requested.is_none() {
        return Part::Whole;
    }
    let etag = head.fields.get("etag");
    let last_modified = head.fields.get("last-modified").and_then(date::parse);
    let date = head.fields.get("date").and_then(date::parse);
    // Without Last-Modified, compare If-Modified-Since with Date (RFC 9111 §4.3.2).
    let modified = last_modified.or(date.filter(|_| !request.fields.contains("if-unmodified-since")));
    match preconditions.evaluate(etag, modified, method) {
        Outcome::Proceed => {}
        Outcome::NotModified => return Part::NotModified,
        Outcome::Failed => return Part::PreconditionFailed,
    }
    let applies = range_applies(request.fields.get("if-range"), etag, last_modified, date);
    let requested = requested.filter(|_| applies).and_then(range::parse);
    let Some(ranges) = requested else { return Part::Whole };
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
            // A multipart response needs the total length, which is unknown until the content ends.
            None => Part::After(u64::MAX),
        };
    };
    match range::resolve_arriving(byte_range, arrived, length) {
        Answer::Range(range) => Part::Range(range),
        Answer::Unsatisfiable => Part::Unsatisfiable(length.unwrap_or(arrived)),
        Answer::Undecided => match byte_range {
            // Send all content as it arrives rather than wait for its length.
            ByteRange::From(0) => Part::Whole,
            ByteRange::FromTo(_, last) => Part::After(last),
            ByteRange::From(_) | ByteRange::Suffix(_) => Part::After(u64::MAX),
        },
    }
}

#[cfg(test)]
mod tests;
