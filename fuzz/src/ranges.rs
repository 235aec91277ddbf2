//! `Range` and its arithmetic (RFC 9110 §14.1.2), `Content-Range` (§14.4).

use thalweg_http::range::{self, Answer, ByteRange, RANGES_MAX};

use crate::{lines, number};

/// The value of `Range`, the content's length, and how much of it has arrived.
pub(crate) fn run(input: &[u8]) {
    let [value, length, arrived] = lines(input);
    let length = number(length);
    let arrived = number(arrived).min(length);
    let Some(set) = range::parse(value) else { return };
    let ranges = set.as_slice();
    assert!((1..=RANGES_MAX).contains(&ranges.len()));
    assert_eq!(set.single().is_some(), ranges.len() == 1);
    assert_eq!(range::parse(written(ranges).as_bytes()), Some(set), "reads back as itself");
    for range in ranges {
        let resolved = range::resolve(*range, length);
        if let Some(resolved) = &resolved {
            assert!(!resolved.is_empty() && resolved.end <= length);
            content_range(range::content_range(resolved, Some(length)).as_bytes());
        }
        // What is decided before all has come is what it comes to in the end.
        match range::resolve_arriving(*range, arrived, None) {
            Answer::Range(early) => assert_eq!(Some(early), resolved),
            Answer::Unsatisfiable => assert_eq!(None, resolved),
            Answer::Undecided => {}
        }
        let known = resolved.map_or(Answer::Unsatisfiable, Answer::Range);
        assert_eq!(range::resolve_arriving(*range, arrived, Some(length)), known);
    }
}

/// The value of `Content-Range`.
pub(crate) fn content_range(value: &[u8]) {
    let Some(parsed) = range::parse_content_range(value) else { return };
    let written = match (&parsed.range, parsed.length) {
        (Some(range), length) => {
            assert!(!range.is_empty() && length.is_none_or(|length| range.end <= length));
            range::content_range(range, length)
        }
        (None, length) => range::unsatisfied_range(length.expect("one of both is told")),
    };
    assert_eq!(range::parse_content_range(written.as_bytes()), Some(parsed), "reads back as itself");
}

fn written(ranges: &[ByteRange]) -> String {
    let each = ranges.iter().map(|range| match range {
        ByteRange::FromTo(first, last) => format!("{first}-{last}"),
        ByteRange::From(first) => format!("{first}-"),
        ByteRange::Suffix(bytes) => format!("-{bytes}"),
    });
    format!("bytes={}", each.collect::<Vec<_>>().join(","))
}
