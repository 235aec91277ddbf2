//! Directive target: `Cache-Control` (RFC 9111 §5.2), targeted fields (RFC 9213) and
//! `Surrogate-Control`.

use thalweg_cache::rules::{self, Rules};
use thalweg_http::Fields;
use thalweg_http::cache_control::{CacheControl, DELTA_S_MAX, RequestCacheControl};

use crate::lines;

/// Parses `input` as the values of two lines of the same field.
pub(crate) fn run(input: &[u8]) {
    let [first, second] = lines(input);
    let both = CacheControl::from_values([first, second]);
    lifetimes(&both).into_iter().flatten().for_each(|seconds| assert!(seconds <= DELTA_S_MAX));
    // Joining lines with commas does not change their meaning (RFC 9110 §5.3), unless the first has
    // a quote: a quoted string cannot continue on the next line.
    if !first.contains(&b'"') {
        assert_eq!(CacheControl::from_values([&[first, second].join(&b","[..])[..]]), both);
    }
    more_says_no_more(first, second, &both);
    request(first, second);
    targeted(first, second);
}

fn lifetimes(directives: &CacheControl) -> [Option<u32>; 4] {
    [directives.max_age, directives.s_maxage, directives.stale_while_revalidate, directives.stale_if_error]
}

/// Checks that additional directives can only shorten a lifetime and cannot lift a prohibition.
fn more_says_no_more(first: &[u8], second: &[u8], both: &CacheControl) {
    for one in [CacheControl::from_values([first]), CacheControl::from_values([second])] {
        for (alone, both) in lifetimes(&one).into_iter().zip(lifetimes(both)) {
            assert!(alone.is_none() || both.is_some_and(|both| Some(both) <= alone));
        }
        let forbids = |directives: &CacheControl| {
            [
                directives.no_store,
                directives.must_revalidate,
                directives.proxy_revalidate,
                directives.no_transform,
            ]
        };
        assert!(forbids(&one).into_iter().zip(forbids(both)).all(|(alone, both)| both || !alone));
        for (alone, both) in [(&one.no_cache, &both.no_cache), (&one.private, &both.private)] {
            let is_kept = |name: &[u8]| both.is_whole() || both.names().any(|kept| kept == name);
            assert!(both.is_whole() || !alone.is_whole() || alone.names().next().is_some());
            assert!(alone.names().all(is_kept));
        }
    }
}

fn request(first: &[u8], second: &[u8]) {
    let (one, both) =
        (RequestCacheControl::from_values([first]), RequestCacheControl::from_values([first, second]));
    assert!(one.max_age.is_none() || both.max_age.is_some_and(|both| Some(both) <= one.max_age));
    assert!(one.min_fresh <= both.min_fresh && both.min_fresh <= Some(DELTA_S_MAX));
    assert!((both.no_cache || !one.no_cache) && (both.no_store || !one.no_store));
}

/// Checks that a valid targeted field overrides `Cache-Control`, and that an invalid targeted field
/// counts as absent.
fn targeted(first: &[u8], second: &[u8]) {
    let rules = Rules { surrogate_control: true, ..Rules::default() };
    for name in ["CDN-Cache-Control", "Surrogate-Control"] {
        let with = |beside: &[u8]| {
            let mut fields = Fields::new();
            fields.push("Cache-Control", beside);
            fields.push(name, first);
            fields.push(name, second);
            rules::directives(&fields, &rules)
        };
        let (of_none, of_another) = (with(b"max-age=1"), with(b"no-store, max-age=2"));
        if of_none.1 {
            assert_eq!(of_none.0, CacheControl::from_values([&b"max-age=1"[..]]));
            assert_eq!(of_another.0, CacheControl::from_values([&b"no-store, max-age=2"[..]]));
        } else {
            assert_eq!(of_none, of_another);
        }
    }
}
