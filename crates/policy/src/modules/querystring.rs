//! `querystring`: filters and sorts a URL's query parameters (vmod_querystring(3) of
//! libvmod-querystring).
//!
//! The query follows the first `?`. Its parameters are separated by `&`, and a parameter's name
//! ends at the first `=`. Nothing is decoded. All functions drop parameters without a name, and
//! drop the `?` if the query is empty.
//!
//! An object of the module's version 2 is a [`Filter`] with a closure for its criteria. The
//! functions of version 1 (`filter`, `regfilter`, `globfilter` and their `_except` variants) are
//! [`Filter::apply`] with a single criterion.

use super::standard::glob;

/// The part of a parameter used for matching, sorting and comparing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The parameter's name.
    #[default]
    Name,
    /// The parameter's name and value.
    Parameter,
}

/// The action on matching parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Drop matching parameters and keep all others.
    #[default]
    Drop,
    /// Keep matching parameters and drop all others.
    Keep,
}

/// Options for processing the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Whether to sort the parameters; the sort is stable.
    pub sort: bool,
    /// Whether to keep only the first of adjacent duplicates.
    pub unique: bool,
    /// The part of each parameter that is compared.
    pub by: By,
}

impl Filter {
    /// Drops or keeps, as `mode` specifies, the parameters of `url` accepted by `matches`, and
    /// sorts the rest if requested.
    pub fn apply(self, url: &[u8], mode: Mode, matches: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
        let (path, query) = split(url);
        let kept = self.extract_from(query, mode, matches);
        let mut changed = path.to_vec();
        if !kept.is_empty() {
            changed.push(b'?');
            changed.extend_from_slice(&kept);
        }
        changed
    }

    /// Like [`apply`](Self::apply), but returns only the query without the `?`; empty if no
    /// parameter is left.
    pub fn extract(self, url: &[u8], mode: Mode, matches: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
        self.extract_from(split(url).1, mode, matches)
    }

    fn extract_from(self, query: &[u8], mode: Mode, mut matches: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
        let mut kept: Vec<&[u8]> = query
            .split(|&byte| byte == b'&')
            .filter(|parameter| !name_of(parameter).is_empty())
            .filter(|parameter| matches(self.key_of(parameter)) == (mode == Mode::Keep))
            .collect();
        if self.sort {
            kept.sort_by_key(|parameter| self.key_of(parameter));
        }
        if self.unique {
            kept.dedup_by_key(|parameter| self.key_of(parameter));
        }
        kept.join(&b'&')
    }

    fn key_of(self, parameter: &[u8]) -> &[u8] {
        match self.by {
            By::Name => name_of(parameter),
            By::Parameter => parameter,
        }
    }
}

/// Removes parameters without a name from `url`.
pub fn clean(url: &[u8]) -> Vec<u8> {
    Filter::default().apply(url, Mode::Drop, |_| false)
}

/// Sorts the parameters of `url` bytewise and removes duplicates if `unique` is set.
pub fn sort(url: &[u8], unique: bool) -> Vec<u8> {
    Filter { sort: true, unique, by: By::Parameter }.apply(url, Mode::Drop, |_| false)
}

/// Removes the query from `url`.
pub fn remove(url: &[u8]) -> &[u8] {
    split(url).0
}

/// Returns whether `text` matches a shell pattern in which `/` is an ordinary character, as in
/// `add_glob` and `globfilter`.
pub fn matches_glob(pattern: &[u8], text: &[u8]) -> bool {
    glob::matches(pattern, text, glob::Flags { pathname: false, ..glob::Flags::default() })
}

fn split(url: &[u8]) -> (&[u8], &[u8]) {
    match url.iter().position(|&byte| byte == b'?') {
        Some(mark) => (&url[..mark], &url[mark + 1..]),
        None => (url, b""),
    }
}

fn name_of(parameter: &[u8]) -> &[u8] {
    let end = parameter.iter().position(|&byte| byte == b'=').unwrap_or(parameter.len());
    &parameter[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn urls_are_cleaned() {
        for (url, cleaned) in [
            ("/", "/"),
            ("/?", "/"),
            ("/?&&", "/"),
            ("/?=", "/"),
            ("/?next=empty&&previous=empty&=no-name&no-value", "/?next=empty&previous=empty&no-value"),
            ("/?a?b&c=d=e", "/?a?b&c=d=e"),
            ("", ""),
        ] {
            assert_eq!(text(clean(url.as_bytes())), cleaned, "{url}");
        }
        assert_eq!(remove(b"/a?b?c"), b"/a");
        assert_eq!(remove(b"/a"), b"/a");
    }

    #[test]
    fn urls_are_sorted() {
        for (url, sorted, unique) in [
            ("/?b&a", "/?a&b", "/?a&b"),
            ("/?b=2&a=1&b=2&b=1&", "/?a=1&b=1&b=2&b=2", "/?a=1&b=1&b=2"),
            ("/?ab&a", "/?a&ab", "/?a&ab"),
        ] {
            assert_eq!(text(sort(url.as_bytes(), false)), sorted, "{url}");
            assert_eq!(text(sort(url.as_bytes(), true)), unique, "{url}");
        }
    }

    #[test]
    fn parameters_are_filtered_by_name_glob_or_whole() {
        let url = b"/p?utm_source=x&a=1&utm_medium&_=7&lang=fr-ca&a=2";
        let is_tracking = |name: &[u8]| name == b"_" || matches_glob(b"utm_*", name);
        let filter = Filter::default();
        assert_eq!(text(filter.apply(url, Mode::Drop, is_tracking)), "/p?a=1&lang=fr-ca&a=2");
        assert_eq!(text(filter.apply(url, Mode::Keep, is_tracking)), "/p?utm_source=x&utm_medium&_=7");
        assert_eq!(text(filter.extract(url, Mode::Keep, is_tracking)), "utm_source=x&utm_medium&_=7");
        assert_eq!(text(filter.apply(url, Mode::Keep, |_| false)), "/p");
        assert_eq!(text(filter.extract(b"/p", Mode::Drop, |_| false)), "");
        let whole = Filter { by: By::Parameter, ..filter };
        assert_eq!(text(whole.extract(url, Mode::Keep, |all| all.starts_with(b"lang=fr"))), "lang=fr-ca");
        let by_name = Filter { sort: true, unique: true, by: By::Name };
        assert_eq!(text(by_name.extract(b"?b=2&a=2&b=1&a=1", Mode::Drop, |_| false)), "a=2&b=2");
        assert!(matches_glob(b"a*", b"a/b"));
    }

    proptest! {
        #[test]
        fn clean_url_is_unchanged(url in r"/[ab?&=/]{0,24}", sorted: bool) {
            let change = |url: &[u8]| if sorted { sort(url, true) } else { clean(url) };
            let once = change(url.as_bytes());
            prop_assert_eq!(change(&once), once);
        }
    }
}
