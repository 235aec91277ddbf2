//! Date target: dates in fields (RFC 9110 §5.6.7).

use thalweg_http::date::{self, DATE_BYTES, DATE_S_MAX};

/// Parses `value` as a date in any of the three forms.
pub(crate) fn run(value: &[u8]) {
    let Some(unix_s) = date::parse(value) else { return };
    assert!(unix_s <= DATE_S_MAX);
    let written = date::format(unix_s);
    assert_eq!(date::parse(&written), Some(unix_s), "a formatted date must parse to the same time");
    // Only the preferred format has this length. Case and weekday may differ.
    if value.len() == DATE_BYTES {
        assert!(written[3..].eq_ignore_ascii_case(&value[3..]), "a date must have only one preferred form");
    }
}
