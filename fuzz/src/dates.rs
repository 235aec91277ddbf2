//! Dates in fields (RFC 9110 §5.6.7).

use thalweg_http::date::{self, DATE_BYTES, DATE_S_MAX};

/// A date in any of the three forms.
pub(crate) fn run(value: &[u8]) {
    let Some(unix_s) = date::parse(value) else { return };
    assert!(unix_s <= DATE_S_MAX);
    let written = date::format(unix_s);
    assert_eq!(date::parse(&written), Some(unix_s), "reads back as itself");
    // Only the fixed form has its length.
    if value.len() == DATE_BYTES {
        assert_eq!(written, value, "there is one way to write it");
    }
}
