//! `cookie`: parses, filters and formats a request's cookies (vmod_cookie(3)).
//!
//! Cookies are `name=value` pairs separated by semicolons (RFC 6265 §4.2.1). White space before a
//! name is skipped. A pair without a name, a value or a `=` is ignored. If a name is repeated, the
//! last value replaces the first.
//!
//! There are three differences from varnishd. A pair without `=` also ends at its semicolon, as in
//! backends, whereas varnishd reads `a;b=2` as one cookie called `a;b`. Names in a list may be
//! surrounded by white space. Parsing an empty string removes all cookies.

use std::fmt;

use thalweg_http::date;

/// Maximum number of cookies stored per request. RFC 6265 §6.1 asks browsers to support at least 50
/// per domain.
pub const COOKIES_MAX: usize = 256;

/// The error for more than [`COOKIES_MAX`] cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {COOKIES_MAX} cookies")
    }
}

impl std::error::Error for TooMany {}

/// The cookies of a request, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cookies {
    list: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Cookies {
    /// Replaces all cookies with those in a `Cookie` field. On error, the first [`COOKIES_MAX`]
    /// cookies remain.
    pub fn parse(&mut self, text: &[u8]) -> Result<(), TooMany> {
        self.clean();
        for pair in text.split(|&byte| byte == b';') {
            if let Some(equals) = pair.iter().position(|&byte| byte == b'=') {
                self.set(pair[..equals].trim_ascii_start(), &pair[equals + 1..])?;
            }
        }
        Ok(())
    }

    /// Removes all cookies.
    pub fn clean(&mut self) {
        self.list.clear();
    }

    /// Returns the value of the cookie called `name`.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.get_where(|other| other == name)
    }

    /// `cookie.get_re`: returns the value of the first cookie with a name accepted by `matches`.
    pub fn get_where(&self, mut matches: impl FnMut(&[u8]) -> bool) -> Option<&[u8]> {
        self.list.iter().find(|(name, _)| matches(name)).map(|(_, value)| value.as_slice())
    }

    /// `cookie.isset`: returns whether a cookie called `name` exists.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.get(name).is_some()
    }

    /// Replaces a cookie's value in place, or appends a new cookie. Ignores an empty name or value.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), TooMany> {
        if name.is_empty() || value.is_empty() {
            return Ok(());
        }
        if let Some((_, old)) = self.list.iter_mut().find(|(other, _)| other == name) {
            *old = value.to_vec();
        } else if self.list.len() == COOKIES_MAX {
            return Err(TooMany);
        } else {
            self.list.push((name.to_vec(), value.to_vec()));
        }
        Ok(())
    }

    /// Removes the cookie called `name`.
    pub fn delete(&mut self, name: &[u8]) {
        self.filter_where(|other| other == name);
    }

    /// Removes the cookies in `names`, a comma-separated list.
    pub fn filter(&mut self, names: &[u8]) {
        self.filter_where(|name| list_has(names, name));
    }

    /// Removes the cookies not in `names`, a comma-separated list.
    pub fn keep(&mut self, names: &[u8]) {
        self.filter_where(|name| !list_has(names, name));
    }

    /// `cookie.filter_re`: removes the cookies with a name accepted by `matches`. `cookie.keep_re`
    /// passes a negated `matches`.
    pub fn filter_where(&mut self, mut matches: impl FnMut(&[u8]) -> bool) {
        self.list.retain(|(name, _)| !matches(name));
    }

    /// `cookie.get_string`: formats the cookies as the value of a `Cookie` field, each followed by
    /// a semicolon.
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (name, value) in &self.list {
            if !text.is_empty() {
                text.push(b' ');
            }
            text.extend_from_slice(name);
            text.push(b'=');
            text.extend_from_slice(value);
            text.push(b';');
        }
        text
    }
}

/// `cookie.format_date`: formats the time `after_s` seconds after `now_s` as an IMF-fixdate,
/// clamped to the range of the format.
pub fn format_date(now_s: f64, after_s: f64) -> String {
    // The cast saturates, and maps NaN to 0.
    let text = date::format((now_s + after_s) as u64);
    String::from_utf8_lossy(&text).into_owned()
}

fn list_has(names: &[u8], name: &[u8]) -> bool {
    names.split(|&byte| byte == b',').any(|other| other.trim_ascii() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cookies(text: &str) -> Cookies {
        let mut cookies = Cookies::default();
        cookies.parse(text.as_bytes()).unwrap();
        cookies
    }

    fn text(cookies: &Cookies) -> String {
        String::from_utf8(cookies.text()).unwrap()
    }

    #[test]
    fn cookies_are_parsed_and_formatted() {
        for (field, written) in [
            ("a=1; b=2", "a=1; b=2;"),
            ("a=1;b=2;a=3", "a=3; b=2;"),
            ("=1;b=2", "b=2;"),
            ("a=;b=2", "b=2;"),
            (" a =1; b= 2 ", "a =1; b= 2 ;"),
            ("a=b=c", "a=b=c;"),
            ("a=1; b", "a=1;"),
            ("a=1;\tb=2", "a=1; b=2;"),
            ("a=1,b=2; c=3", "a=1,b=2; c=3;"),
            ("a;b=2", "b=2;"),
            (";;a=1;;", "a=1;"),
            ("a=\"x;y\"; b=1", "a=\"x; b=1;"),
            ("", ""),
        ] {
            assert_eq!(text(&cookies(field)), written, "{field}");
        }
    }

    #[test]
    fn cookies_are_found_by_name_or_predicate() {
        let cookies = cookies("cookie1=value1; cookie2=value2;");
        assert_eq!(cookies.get(b"cookie1"), Some(&b"value1"[..]));
        assert_eq!(cookies.get(b"Cookie1"), None);
        assert_eq!(cookies.get(b""), None);
        assert!(cookies.contains(b"cookie2") && !cookies.contains(b"cookie"));
        assert_eq!(cookies.get_where(|name| name.ends_with(b"2")), Some(&b"value2"[..]));
    }

    #[test]
    fn filter_and_keep_select_cookies() {
        let after = |change: fn(&mut Cookies)| {
            let mut cookies = cookies("cookie1=value1; cookie2=value2; cookie3=value3");
            change(&mut cookies);
            text(&cookies)
        };
        assert_eq!(after(|cookies| cookies.filter(b"cookie1,cookie2")), "cookie3=value3;");
        assert_eq!(after(|cookies| cookies.keep(b" cookie1, cookie2,,")), "cookie1=value1; cookie2=value2;");
        assert_eq!(after(|cookies| cookies.keep(b"")), "");
        assert_eq!(after(|cookies| cookies.filter_where(|name| name != b"cookie3")), "cookie3=value3;");
        assert_eq!(after(|cookies| cookies.delete(b"cookie2")), "cookie1=value1; cookie3=value3;");
        assert_eq!(after(Cookies::clean), "");
        assert_eq!(after(|cookies| cookies.parse(b"a=1").unwrap()), "a=1;");
    }

    #[test]
    fn set_replaces_a_cookie_in_place() {
        let mut cookies = cookies("a=1; b=2");
        for (name, value) in [("a", "9"), ("", "9"), ("b", ""), ("d", ""), ("e", "5")] {
            cookies.set(name.as_bytes(), value.as_bytes()).unwrap();
        }
        assert_eq!(text(&cookies), "a=9; b=2; e=5;");
    }

    #[test]
    fn cookies_are_bounded() {
        let many: String = (0..=COOKIES_MAX).map(|index| format!("c{index}=1;")).collect();
        let mut cookies = Cookies::default();
        assert_eq!(cookies.parse(many.as_bytes()), Err(TooMany));
        assert_eq!(cookies.set(b"c0", b"2"), Ok(()));
        assert_eq!(cookies.get(b"c0"), Some(&b"2"[..]));
    }

    #[test]
    fn format_date_matches_expires() {
        assert_eq!(format_date(784_111_777.0, 300.0), "Sun, 06 Nov 1994 08:54:37 GMT");
        assert_eq!(format_date(0.0, -1.0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(format_date(f64::NAN, 0.0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(format_date(1e300, 0.0), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    proptest! {
        #[test]
        fn formatted_output_parses_back(field in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut cookies = Cookies::default();
            cookies.parse(&field).unwrap();
            let mut again = Cookies::default();
            again.parse(&cookies.text()).unwrap();
            prop_assert_eq!(again, cookies);
        }
    }
}
