//! Range targets: `Range` and its resolution (RFC 9110 §14.1.2), and `Content-Range` (§14.4).

use thalweg_http::range::{self, Answer, ByteRange, RANGES_MAX};

use crate::{lines, number};

/// Resolves ranges. `input` has one line each for the value of `Range`, the content length, and the
/// number of bytes that have arrived.
pub(crate) fn run(input: &[u8]) {
    let [value, length, arrived] = lines(input);
    let length = number(length);
    let arrived = number(arrived).min(length);
    let Some(set) = range::parse(value) else { return };
    let ranges = set.as_slice();
    assert!((1..=RANGES_MAX).contains(&ranges.len()));
    assert_eq!(set.single().is_some(), ranges.len() == 1);
    assert_eq!(
        range::parse(written(ranges).as_bytes()),
        Some(set),
        "formatted ranges must parse to the same ranges"
    );
    for range in ranges {
        let resolved = range::resolve(*range, length);
        if let Some(resolved) = &resolved {
            assert!(!resolved.is_empty() && resolved.end <= length);
            content_range(range::content_range(resolved, Some(length)).as_bytes());
        }
        // A decision before all content has arrived must equal the final one.
        match range::resolve_arriving(*range, arrived, None) {
            Answer::Range(early) => assert_eq!(Some(early), resolved),
            Answer::Unsatisfiable => assert_eq!(None, resolved),
            Answer::Undecided => {}
        }
        let known = resolved.map_or(Answer::Unsatisfiable, Answer::Range);
        assert_eq!(range::resolve_arriving(*range, arrived, Some(length)), known);
    }
}

/// Parses `value` as `Content-Range`.
pub(crate) fn content_range(value: &[u8]) {
    let Some(parsed) = range::parse_content_range(value) else { return };
    let written = match (&parsed.range, parsed.length) {
        (Some(range), length) => {
            assert!(!range.is_empty() && length.is_none_or(|length| range.end <= length));
            range::content_range(range, length)
        }
        (None, length) => {
            range::unsatisfied_range(length.expect("a value without a range must have a length"))
        }
    };
    assert_eq!(
        range::parse_content_range(written.as_bytes()),
        Some(parsed),
        "a formatted value must parse to the same range"
    );
}

fn written(ranges: &[ByteRange]) -> String {
    let each = ranges.iter().map(|range| match range {
        ByteRange::FromTo(first, last) => format!("{first}-{last}"),
        ByteRange::From(first) => format!("{first}-"),
        ByteRange::Suffix(bytes) => format!("-{bytes}"),
    });
    format!("bytes={}", each.collect::<Vec<_>>().join(","))
}
