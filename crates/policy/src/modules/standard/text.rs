//! Text functions of `std` (vmod_std(3), "String functions").
//!
//! Two differences: `querysort` orders by bytes to the end, where Varnish takes a parameter that begins another for its
//! equal and leaves both as they came, so `?ab&a` and `?a&ab` are one here; `collect` puts the line that remains last.

use thalweg_http::Fields;

/// `text` with a–z as A–Z. Bytes beyond ASCII stay, as in the C locale that varnishd runs in.
pub fn to_upper(text: &[u8]) -> Vec<u8> {
    text.to_ascii_uppercase()
}

/// `text` with A–Z as a–z; see [`to_upper`].
pub fn to_lower(text: &[u8]) -> Vec<u8> {
    text.to_ascii_lowercase()
}

/// The bytes of `text`, `std.strlen`.
pub fn length_bytes(text: &[u8]) -> usize {
    text.len()
}

/// `text` from the first `needle` on; `None` if it is not there. An empty needle is found at once.
pub fn find<'a>(text: &'a [u8], needle: &[u8]) -> Option<&'a [u8]> {
    if needle.is_empty() {
        return Some(text);
    }
    let at = text.windows(needle.len()).position(|window| window == needle)?;
    Some(&text[at..])
}

/// `url` with the parameters of its query in the order of their bytes, `std.querysort`. Empty ones are dropped; the `?`
/// stays even if nothing follows it.
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

/// Joins the lines called `name` to one, with `separator` between their values. A single line stays as and where it is.
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
    fn case_is_that_of_ascii() {
        assert_eq!(to_upper("yes! é".as_bytes()), "YES! é".as_bytes());
        assert_eq!(to_lower("VerY É".as_bytes()), "very É".as_bytes());
        assert_eq!(length_bytes("é".as_bytes()), 2);
    }

    #[test]
    fn a_needle_is_found() {
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
    fn queries_are_sorted() {
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
    fn lines_are_collected() {
        let mut fields: Fields =
            [("Accept", "a"), ("Host", "h"), ("accept", "b"), ("Accept", "")].into_iter().collect();
        collect(&mut fields, "host", b"; ");
        collect(&mut fields, "accept", b"; ");
        collect(&mut fields, "missing", b"; ");
        assert_eq!(fields.text(), b"Host: h\r\naccept: a; b;\r\n");
    }

    proptest! {
        #[test]
        fn the_order_of_parameters_does_not_matter(
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
