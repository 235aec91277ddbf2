//! What an operator may set about caching, beside what responses say of themselves.

use thalweg_http::Fields;
use thalweg_http::cache_control::CacheControl;

/// The settings. Durations are seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// A response without an explicit lifetime is fresh for this part of the time since it was last modified
    /// (RFC 9111 §4.2.2).
    pub heuristic_percent: u64,
    /// And for no longer than this.
    pub heuristic_max_s: u64,
    /// Lifetime of a 404 or 410 that says nothing of it.
    pub negative_s: u64,
    /// The longest lifetime of any response of status 400 and above, whatever it says: an error is over some day.
    pub negative_max_s: u64,
    /// For so long a stale response is served while it is refreshed behind, where the response neither forbids it nor
    /// has a `stale-while-revalidate` of its own.
    pub grace_s: u64,
    /// For so long a stale response is served when the backend fails, under the same conditions.
    pub stale_if_error_s: u64,
    /// Whether `Surrogate-Control` is read.
    pub surrogate_control: bool,
    /// Whether directives of requests are followed (RFC 9111 §5.2.1), which lets clients ask past the cache.
    pub request_directives: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            heuristic_percent: 10,
            heuristic_max_s: 24 * 60 * 60,
            negative_s: 1,
            negative_max_s: 60,
            grace_s: 0,
            stale_if_error_s: 0,
            surrogate_control: false,
            request_directives: true,
        }
    }
}

/// Fields that speak to caches like this one, before all others (RFC 9213 §2.2). The first that is there counts alone.
const TARGETED: [&str; 1] = ["cdn-cache-control"];
const SURROGATE_CONTROL: &str = "surrogate-control";

/// What a response says of its caching, and whether its `Expires` counts beside it.
pub fn directives(fields: &Fields, rules: &Rules) -> (CacheControl, bool) {
    if let Some(targeted) = TARGETED.iter().find_map(|name| CacheControl::from_targeted(fields, name)) {
        return (targeted, false);
    }
    if rules.surrogate_control && fields.contains(SURROGATE_CONTROL) {
        return (CacheControl::from_values(fields.get_all(SURROGATE_CONTROL)), false);
    }
    (CacheControl::from_fields(fields), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(lines: &[(&str, &str)], rules: &Rules) -> (Option<u32>, bool, bool) {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.push(name, value);
        }
        let (directives, expires) = directives(&fields, rules);
        (directives.max_age, directives.no_store, expires)
    }

    #[test]
    fn rfc9213_2_2_a_targeted_field_counts_alone() {
        let plain = ("Cache-Control", "no-store");
        let rules = Rules::default();
        assert_eq!(lifetime(&[plain, ("CDN-Cache-Control", "max-age=5")], &rules), (Some(5), false, false));
        assert_eq!(
            lifetime(&[plain, ("CDN-Cache-Control", "max-age=5;x=1")], &rules),
            (Some(5), false, false)
        );
        assert_eq!(
            lifetime(&[plain, ("CDN-Cache-Control", "max-age=\"5\"")], &rules),
            (Some(0), false, false)
        );
        // Empty or malformed is absent.
        assert_eq!(lifetime(&[plain, ("CDN-Cache-Control", "")], &rules), (None, true, true));
        assert_eq!(lifetime(&[plain, ("CDN-Cache-Control", "max-age=5, &")], &rules), (None, true, true));
    }

    #[test]
    fn surrogate_control_is_read_if_so_set() {
        let lines = [("Cache-Control", "max-age=1"), ("Surrogate-Control", "max-age=9")];
        assert_eq!(lifetime(&lines, &Rules::default()), (Some(1), false, true));
        let rules = Rules { surrogate_control: true, ..Rules::default() };
        assert_eq!(lifetime(&lines, &rules), (Some(9), false, false));
    }
}
