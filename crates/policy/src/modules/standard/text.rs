//! String functions of `std` (vmod_std(3), "String functions").
//!
//! There are two differences from Varnish. `querysort` compares complete parameters, so `?ab&a` and
//! `?a&ab` give the same result. Varnish treats two parameters as equal if one is a prefix of the
//! other, and keeps their order. Unlike in Varnish, `collect` moves the joined line to the end.

use thalweg_http::Fields;

/// Converts `text` to upper case. Non-ASCII bytes are unchanged, as in varnishd's C locale.
pub fn to_upper(text: &[u8]) -> Vec<u8> {
    text.to_ascii_uppercase()
}

/// Converts `text` to lower case, like [`to_upper`].
pub fn to_lower(text: &[u8]) -> Vec<u8> {
    text.to_ascii_lowercase()
}

/// `std.strlen`: returns the length of `text` in bytes.
pub fn length_bytes(text: &[u8]) -> usize {
    text.len()
}

/// Returns the part of `text` that starts at the first `needle`; `None` if `text` does not contain
/// `needle`. An empty `needle` matches at the start.
pub fn find<'a>(text: &'a [u8], needle: &[u8]) -> Option<&'a [u8]> {
    if needle.is_empty() {
        return Some(text);
    }
    let at = text.windows(needle.len()).position(|window| window == needle)?;
    Some(&text[at..])
}

/// `std.querysort`: sorts the query parameters of `url` bytewise. Drops empty parameters, and keeps
/// the `?` even if nothing follows it.
pub fn query_sort(url: &[u8]) -> Vec<u8> {
    let Some(mark) = url.iter().position(|&byte| byte == b'?') else {
        return url.to_vec();
    };
    let query = &url[mark + 1..];
    let mut parameters: Vec<&[u8]> =
        query.split(|&byte| byte == b'&').filter(|parameter| !parameter.is_empty()).collect();
    parameters.sort_unstable();
    let mut sorted = Vec::with_capacity(url.len());
    sorted.extend_from_slice(&url[..=mark]);
    for (index, parameter) in parameters.iter().enumerate() {
        if index > 0 {
            sorted.push(b'&');
        }
        sorted.extend_from_slice(parameter);
    }
    sorted
}

/// Joins the lines called `name` into one, with `separator` between the values. Leaves a single
/// line unchanged.
pub fn collect(fields: &mut Fields, name: &str, separator: &[u8]) {
    let values: Vec<&[u8]> = fields.get_all(name).collect();
    if values.len() > 1 {
        let joined = values.join(separator);
        fields.set(name, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn case_conversion_is_ascii_only() {
        assert_eq!(to_upper("yes! é".as_bytes()), "YES! é".as_bytes());
        assert_eq!(to_lower("VerY É".as_bytes()), "very É".as_bytes());
        assert_eq!(length_bytes("é".as_bytes()), 2);
    }

    #[test]
    fn find_returns_the_rest_from_the_needle() {
        for (text, needle, found) in [
            ("abcabc", "bc", Some("bcabc")),
            ("abc", "", Some("abc")),
            ("abc", "x", None),
            ("", "", Some("")),
            ("", "a", None),
            ("ab", "abc", None),
        ] {
            assert_eq!(find(text.as_bytes(), needle.as_bytes()), found.map(str::as_bytes), "{text} {needle}");
        }
    }

    #[test]
    fn query_sort_orders_parameters() {
        for (url, sorted) in [
            ("/", "/"),
            ("/?", "/?"),
            ("/?a", "/?a"),
            ("/foo?b=2&a=1&c", "/foo?a=1&b=2&c"),
            ("/?a=2&a=1", "/?a=1&a=2"),
            ("/?&&b&&a&&", "/?a&b"),
            ("/?&&", "/?"),
            ("/?z?b&a", "/?a&z?b"),
            ("/?a=1&A=1", "/?A=1&a=1"),
            ("/?b=%41&a=1", "/?a=1&b=%41"),
            ("/?b=1&b=10&b=2", "/?b=1&b=10&b=2"),
            ("/?aa=&a=1&a-=2", "/?a-=2&a=1&aa="),
            ("/?ab&a", "/?a&ab"),
            ("b&a", "b&a"),
        ] {
            assert_eq!(query_sort(url.as_bytes()), sorted.as_bytes(), "{url}");
        }
    }

    #[test]
    fn collect_joins_lines() {
        let mut fields: Fields =
            [("Accept", "a"), ("Host", "h"), ("accept", "b"), ("Accept", "")].into_iter().collect();
        collect(&mut fields, "host", b"; ");
        collect(&mut fields, "accept", b"; ");
        collect(&mut fields, "missing", b"; ");
        assert_eq!(fields.text(), b"Host: h\r\naccept: a; b;\r\n");
    }

    proptest! {
        #[test]
        fn parameter_order_does_not_matter(
            mut parameters in proptest::collection::vec("[ab=]{0,3}", 0..8), rotation in 0usize..8
        ) {
            let before = query_sort(format!("/?{}", parameters.join("&")).as_bytes());
            let middle = rotation.min(parameters.len());
            parameters.rotate_left(middle);
            prop_assert_eq!(&query_sort(format!("/?{}", parameters.join("&")).as_bytes()), &before);
            prop_assert_eq!(&query_sort(&before), &before);
        }
    }
}
