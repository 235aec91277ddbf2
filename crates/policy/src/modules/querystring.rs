//! `querystring`: the parameters of a URL's query (vmod_querystring(3) of libvmod-querystring).
//!
//! The query is what follows the first `?`, its parameters are what stands between `&`, a parameter's name ends at its
//! first `=`. Nothing is decoded. A parameter without a name is dropped by everything here, and so is a `?` that nothing
//! follows. The objects of version 2 of that module are a [`Filter`] and a closure for the criteria, its functions of
//! version 1 (`filter`, `regfilter`, `globfilter` and their `_except`) are [`Filter::apply`] with one criterion.

use super::standard::glob;

/// What a parameter is matched, sorted and compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Its name.
    #[default]
    Name,
    /// All of it.
    Parameter,
}

/// What becomes of the parameters that match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They go.
    #[default]
    Drop,
    /// They stay, all others go.
    Keep,
}

/// How to go over the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Sort them; equal ones stay in order.
    pub sort: bool,
    /// Of equal ones that follow each other, keep the first.
    pub unique: bool,
    /// What they are told apart by.
    pub by: By,
}

impl Filter {
    /// `url` with those of its parameters that `mode` leaves of the ones of which `matches` is true.
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

    /// The query of what [`apply`](Self::apply) makes, without the `?`; empty if nothing is left.
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

/// `url` without the parameters that have no name.
pub fn clean(url: &[u8]) -> Vec<u8> {
    Filter::default().apply(url, Mode::Drop, |_| false)
}

/// `url` with its parameters in the order of their bytes; if `unique`, without duplicates.
pub fn sort(url: &[u8], unique: bool) -> Vec<u8> {
    Filter { sort: true, unique, by: By::Parameter }.apply(url, Mode::Drop, |_| false)
}

/// `url` without its query.
pub fn remove(url: &[u8]) -> &[u8] {
    split(url).0
}

/// The criterion of `add_glob` and `globfilter`: a shell pattern, where `/` is nothing special.
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
        fn a_clean_url_stays_as_it_is(url in r"/[ab?&=/]{0,24}", sorted: bool) {
            let change = |url: &[u8]| if sorted { sort(url, true) } else { clean(url) };
            let once = change(url.as_bytes());
            prop_assert_eq!(change(&once), once);
        }
    }
}
