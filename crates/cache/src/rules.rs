//! The operator's caching settings, which complement the responses' own directives.

use thalweg_http::Fields;
use thalweg_http::cache_control::CacheControl;

/// Caching settings. Durations are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Heuristic lifetime of a response without an explicit lifetime, as a percentage of the time
    /// since its last modification (RFC 9111 §4.2.2).
    pub heuristic_percent: u64,
    /// Upper limit of the heuristic lifetime.
    pub heuristic_max_s: u64,
    /// Lifetime of a 404 or 410 response with neither an explicit lifetime nor `Last-Modified`.
    pub negative_s: u64,
    /// Maximum lifetime of any response with status 400 or above, even if the response specifies a
    /// longer one, because most errors are temporary.
    pub negative_max_s: u64,
    /// How long a stale response is served while it is revalidated in the background, if the
    /// response neither forbids it nor has its own `stale-while-revalidate`.
    pub grace_s: u64,
    /// How long a stale response is served when the backend fails, if the response neither forbids
    /// it nor has its own `stale-if-error`.
    pub stale_if_error_s: u64,
    /// Whether `Surrogate-Control` is honoured.
    pub surrogate_control: bool,
    /// Whether request directives are honoured (RFC 9111 §5.2.1), which lets clients bypass the
    /// cache.
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
            stale_if_error_s: 60,
            surrogate_control: false,
            request_directives: true,
        }
    }
}

/// Targeted fields for caches like this one, in order of precedence (RFC 9213 §2.2). Only the first
/// one present counts, and it overrides all other fields.
const TARGETED: [&str; 1] = ["cdn-cache-control"];
const SURROGATE_CONTROL: &str = "surrogate-control";

/// Returns a response's caching directives, and whether its `Expires` counts in addition to them.
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
    fn rfc9213_2_2_targeted_field_overrides_all_others() {
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
        // An empty or malformed field counts as absent.
        assert_eq!(lifetime(&[plain, ("CDN-Cache-Control", "")], &rules), (None, true, true));
        assert_eq!(lifetime(&[plain, ("CDN-Cache-Control", "max-age=5, &")], &rules), (None, true, true));
    }

    #[test]
    fn surrogate_control_is_read_if_enabled() {
        let lines = [("Cache-Control", "max-age=1"), ("Surrogate-Control", "max-age=9")];
        assert_eq!(lifetime(&lines, &Rules::default()), (Some(1), false, true));
        let rules = Rules { surrogate_control: true, ..Rules::default() };
        assert_eq!(lifetime(&lines, &rules), (Some(9), false, false));
    }
}
