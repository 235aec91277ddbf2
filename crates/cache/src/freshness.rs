//! Freshness of a stored response (RFC 9111 §4.2) and its use once stale (§4.2.4, RFC 5861): a pure
//! function of the response's fields and time of arrival, the request's directives, and `now`.
//!
//! Times are in Unix milliseconds. Durations are also in milliseconds, because policies may set
//! them that precisely; response fields have whole seconds.

use thalweg_http::cache_control::{CacheControl, RequestCacheControl};
use thalweg_http::{Fields, date, number};

use crate::rules::Rules;

/// Freshness of a response: its lifetime, the time from which it ages, and how long it may be used
/// stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Freshness {
    /// Freshness lifetime, counted from age 0, in milliseconds; 0 if unspecified.
    pub lifetime_ms: u64,
    /// Time at which the response's age was 0, as far as known; never later than its arrival.
    pub born_ms: u64,
    /// How long after its lifetime the response may be served while it is revalidated in the
    /// background (RFC 5861 §3, and grace), in milliseconds.
    pub while_revalidate_ms: u64,
    /// How long after its lifetime the response may be served when the backend fails (RFC 5861 §4),
    /// in milliseconds.
    pub if_error_ms: u64,
    /// Whether a client's `max-stale` has no effect on the response (`must-revalidate`,
    /// `proxy-revalidate`, `s-maxage`, unqualified `no-cache`).
    pub must_revalidate: bool,
    /// Whether the content never changes while fresh (RFC 8246), so that a reload needs no
    /// validation.
    pub immutable: bool,
}

/// How a stored response may be used now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// Serve it.
    Now,
    /// Serve the response although it is stale, and revalidate it in the background.
    NowAndRefresh,
    /// Serve the response only after the backend has validated it.
    AfterValidation,
}

impl Freshness {
    /// Computes the freshness of a response requested at `requested_ms` whose head arrived at
    /// `received_ms`.
    ///
    /// `s-maxage` takes precedence over `max-age`, which takes precedence over `Expires`
    /// (§5.2.2.10, §5.3) and then heuristics (§4.2.2). A `no-cache` response is never fresh.
    /// `expires` states whether the `Expires` field counts. It does not if a targeted field is
    /// present.
    pub fn of(
        status: u16,
        fields: &Fields,
        directives: &CacheControl,
        expires: bool,
        rules: &Rules,
        (requested_ms, received_ms): (u64, u64),
    ) -> Self {
        let date_s = fields.get("date").and_then(date::parse);
        let now_s = date_s.unwrap_or(received_ms / 1000);
        let lifetime_s = if directives.no_cache.is_whole() {
            0
        } else {
            explicit_s(fields, directives, expires, now_s)
                .unwrap_or_else(|| heuristic_s(status, fields, directives, rules, now_s))
        };
        let age_ms = initial_age_ms(fields, date_s, requested_ms, received_ms);
        let stale = Stale::of(directives, rules);
        let lifetime_s = if status >= 400 { lifetime_s.min(rules.negative_max_s) } else { lifetime_s };
        let ms = |seconds: u64| seconds.saturating_mul(1000);
        Self {
            lifetime_ms: ms(lifetime_s),
            born_ms: received_ms.saturating_sub(age_ms),
            // Error responses are never used beyond their lifetime.
            while_revalidate_ms: if status >= 400 { 0 } else { ms(stale.while_revalidate_s) },
            if_error_ms: if status >= 400 { 0 } else { ms(stale.if_error_s) },
            must_revalidate: stale.forbidden || directives.s_maxage.is_some(),
            immutable: directives.immutable,
        }
    }

    /// Returns the response's age (§4.2.3) in milliseconds.
    pub fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.born_ms)
    }

    /// Returns the response's age in whole seconds.
    pub fn age_s(&self, now_ms: u64) -> u64 {
        self.age_ms(now_ms) / 1000
    }

    /// Returns the milliseconds of freshness left; negative once stale.
    pub fn ttl_ms(&self, now_ms: u64) -> i64 {
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        signed(self.lifetime_ms).saturating_sub(signed(self.age_ms(now_ms)))
    }

    /// Returns the seconds of freshness left, rounded up; above 0 while fresh. For a lifetime in
    /// whole seconds, this is the lifetime minus the age in whole seconds.
    pub fn ttl_s(&self, now_ms: u64) -> i64 {
        let ttl_ms = self.ttl_ms(now_ms);
        ttl_ms.div_euclid(1000) + i64::from(ttl_ms.rem_euclid(1000) > 0)
    }

    /// Returns whether the response may be reused without validation (§4.2).
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        self.lifetime_ms > self.age_ms(now_ms)
    }

    /// Returns the milliseconds since the response became stale.
    pub fn stale_ms(&self, now_ms: u64) -> u64 {
        self.age_ms(now_ms).saturating_sub(self.lifetime_ms)
    }

    /// Returns this freshness with its lifetime shortened, so that the response is stale from
    /// `since_ms`.
    pub fn stale_from(self, since_ms: u64) -> Self {
        Self { lifetime_ms: self.lifetime_ms.min(self.age_ms(since_ms)), ..self }
    }

    /// Returns how the response may be used for a request with the directives `asked` (§5.2.1).
    pub fn reuse(&self, asked: &RequestCacheControl, now_ms: u64) -> Reuse {
        let (age_s, fresh) = (self.age_s(now_ms), self.is_fresh(now_ms));
        // A reload sends max-age=0; only a forced reload, with no-cache, overrides `immutable`.
        let too_old = asked.max_age.is_some_and(|most| age_s > u64::from(most)) && !(fresh && self.immutable);
        if asked.no_cache || too_old {
            return Reuse::AfterValidation;
        }
        if fresh && self.ttl_s(now_ms) >= asked.min_fresh.map_or(0, i64::from) {
            return Reuse::Now;
        }
        if asked.min_fresh.is_some() {
            return Reuse::AfterValidation;
        }
        let stale_ms = self.stale_ms(now_ms);
        if stale_ms < self.while_revalidate_ms {
            return Reuse::NowAndRefresh;
        }
        match asked.max_stale {
            Some(most) if !self.must_revalidate && stale_ms / 1000 <= u64::from(most) => Reuse::Now,
            _ => Reuse::AfterValidation,
        }
    }

    /// Returns whether the response may be served when the backend failed to validate it.
    pub fn serves_on_error(&self, now_ms: u64) -> bool {
        self.stale_ms(now_ms) < self.if_error_ms
    }
}

/// How a stale response may be used.
struct Stale {
    while_revalidate_s: u64,
    if_error_s: u64,
    forbidden: bool,
}

impl Stale {
    /// Combines directives and settings. The response's own directives about stale use take
    /// precedence over the settings. `s-maxage` forbids stale use allowed only by a setting (RFC
    /// 9111 §5.2.2.10), but not stale use allowed by an explicit RFC 5861 directive in the same
    /// response.
    fn of(directives: &CacheControl, rules: &Rules) -> Self {
        let forbidden =
            directives.must_revalidate || directives.proxy_revalidate || directives.no_cache.is_whole();
        let seconds = |explicit: Option<u32>, set: u64| match explicit {
            _ if forbidden => 0,
            Some(explicit) => u64::from(explicit),
            None if directives.s_maxage.is_some() => 0,
            None => set,
        };
        Self {
            while_revalidate_s: seconds(directives.stale_while_revalidate, rules.grace_s),
            if_error_s: seconds(directives.stale_if_error, rules.stale_if_error_s),
            forbidden,
        }
    }
}

fn explicit_s(fields: &Fields, directives: &CacheControl, expires: bool, date_s: u64) -> Option<u64> {
    if let Some(explicit) = directives.s_maxage.or(directives.max_age) {
        return Some(u64::from(explicit));
    }
    // An invalid Expires, such as "0", is in the past (§5.3). Of several lines, the earliest
    // counts, because any may be the intended one.
    let mut all = fields.get_all("expires").filter(|_| expires).map(|value| date::parse(value).unwrap_or(0));
    let first = all.next()?;
    let earliest = all.fold(first, u64::min);
    Some(earliest.saturating_sub(date_s))
}

/// Returns whether a response with this status may be reused without an explicit lifetime (RFC 9110
/// §15.1).
pub(crate) fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Computes the heuristic lifetime, a share of the time since the last modification (§4.2.2), if
/// the status or `public` allows it.
fn heuristic_s(status: u16, fields: &Fields, directives: &CacheControl, rules: &Rules, date_s: u64) -> u64 {
    if !(directives.public || is_heuristically_cacheable(status)) {
        return 0;
    }
    let Some(modified_s) = fields.get("last-modified").and_then(date::parse) else {
        return if status == 404 || status == 410 { rules.negative_s } else { 0 };
    };
    let unchanged_s = date_s.saturating_sub(modified_s);
    (unchanged_s / 100).saturating_mul(rules.heuristic_percent).min(rules.heuristic_max_s)
}

/// Computes corrected_initial_age (§4.2.3) in milliseconds.
fn initial_age_ms(fields: &Fields, date_s: Option<u64>, requested_ms: u64, received_ms: u64) -> u64 {
    let apparent_ms = date_s.map_or(0, |date_s| (received_ms / 1000).saturating_sub(date_s) * 1000);
    // The first of several members counts (§5.1).
    let age_s = match fields.list("age").next().and_then(number::parse) {
        Some(number::Decimal::Value(age)) => age,
        Some(number::Decimal::Overflow) => u64::from(thalweg_http::cache_control::DELTA_S_MAX),
        None => 0,
    };
    let delay_ms = received_ms.saturating_sub(requested_ms);
    apparent_ms.max(age_s.saturating_mul(1000).saturating_add(delay_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// 2026-01-01T00:00:00Z.
    const NOW_S: u64 = 1_767_225_600;

    fn check(fields: &[(&str, &str)], expect: Expect) {
        let mut all = Fields::new();
        for (name, value) in fields {
            all.push(name, value);
        }
        let directives = CacheControl::from_fields(&all);
        let now_ms = NOW_S * 1000;
        let freshness =
            Freshness::of(200, &all, &directives, true, &Rules::default(), (now_ms - 500, now_ms));
        let age = freshness.age_s(now_ms);
        expect.assert_eq(&format!(
            "lifetime {}, age {age}, ttl {}, {}",
            freshness.lifetime_ms / 1000,
            freshness.ttl_s(now_ms),
            if freshness.is_fresh(now_ms) { "fresh" } else { "stale" }
        ));
    }

    #[test]
    fn s_maxage_overrides_max_age_overrides_expires() {
        let expires = ("Expires", "Thu, 01 Jan 2026 00:01:40 GMT");
        check(
            &[("Cache-Control", "max-age=10, s-maxage=20"), expires],
            expect!["lifetime 20, age 0, ttl 20, fresh"],
        );
        check(&[("Cache-Control", "max-age=10"), expires], expect!["lifetime 10, age 0, ttl 10, fresh"]);
        check(&[expires], expect!["lifetime 100, age 0, ttl 100, fresh"]);
    }

    #[test]
    fn invalid_expires_is_in_the_past() {
        check(&[("Expires", "0")], expect!["lifetime 0, age 0, ttl 0, stale"]);
    }

    #[test]
    fn no_cache_is_never_fresh() {
        check(&[("Cache-Control", "no-cache, max-age=10")], expect!["lifetime 0, age 0, ttl 0, stale"]);
    }

    #[test]
    fn age_is_the_larger_of_apparent_age_and_age_field() {
        let directive = ("Cache-Control", "max-age=10");
        check(&[directive, ("Age", "4")], expect!["lifetime 10, age 4, ttl 6, fresh"]);
        check(
            &[directive, ("Age", "4"), ("Date", "Wed, 31 Dec 2025 23:59:53 GMT")],
            expect!["lifetime 10, age 7, ttl 3, fresh"],
        );
        check(&[directive, ("Age", "10")], expect!["lifetime 10, age 10, ttl 0, stale"]);
    }

    #[test]
    fn rfc9111_5_1_first_of_several_ages_counts() {
        let directive = ("Cache-Control", "max-age=10");
        check(&[directive, ("Age", "7200, 0")], expect!["lifetime 10, age 7200, ttl -7190, stale"]);
        check(&[directive, ("Age", "4, x"), ("Age", "9")], expect!["lifetime 10, age 4, ttl 6, fresh"]);
        check(&[directive, ("Age", "x, 4")], expect!["lifetime 10, age 0, ttl 10, fresh"]);
    }

    #[test]
    fn rfc9111_4_2_3_response_delay_counts_towards_age() {
        let of = |age: &str, requested_ms: u64| {
            let fields: Fields = [("Age", age), ("Cache-Control", "max-age=60")].into_iter().collect();
            let directives = CacheControl::from_fields(&fields);
            let now_ms = NOW_S * 1000;
            let times = (requested_ms, now_ms);
            Freshness::of(200, &fields, &directives, true, &Rules::default(), times).age_ms(now_ms)
        };
        assert_eq!(of("4", NOW_S * 1000 - 2500), 6500);
        assert_eq!(of("0", NOW_S * 1000 - 2500), 2500);
        assert_eq!(of("4", NOW_S * 1000 + 1), 4000, "clock set back during the request");
    }

    #[test]
    fn earliest_of_several_expires_counts() {
        let (early, late) = ("Thu, 01 Jan 2026 00:00:10 GMT", "Thu, 01 Jan 2026 00:01:40 GMT");
        for lines in [[early, late], [late, early]] {
            let lines = lines.map(|date| ("Expires", date));
            check(&lines, expect!["lifetime 10, age 0, ttl 10, fresh"]);
        }
        check(&[("Expires", late), ("Expires", "0")], expect!["lifetime 0, age 0, ttl 0, stale"]);
    }

    #[test]
    fn expires_counts_from_date() {
        check(
            &[("Expires", "Thu, 01 Jan 2026 00:00:10 GMT"), ("Date", "Wed, 31 Dec 2025 23:59:55 GMT")],
            expect!["lifetime 15, age 5, ttl 10, fresh"],
        );
    }

    /// Returns how a response with these directives may be reused when it is `age` seconds old.
    fn reuse(directives: &str, request: &str, age: u64) -> Reuse {
        let mut fields = Fields::new();
        fields.push("Cache-Control", directives);
        let directives = CacheControl::from_fields(&fields);
        let freshness = Freshness::of(200, &fields, &directives, true, &Rules::default(), (0, 0));
        let asked = RequestCacheControl::from_values([request.as_bytes()]);
        freshness.reuse(&asked, age * 1000)
    }

    #[test]
    fn rfc9111_5_2_1_request_directives_tighten_or_relax_reuse() {
        use Reuse::{AfterValidation, Now};
        for (response, request, age, expected) in [
            ("max-age=10", "", 9, Now),
            ("max-age=10", "", 10, AfterValidation),
            ("max-age=10", "no-cache", 0, AfterValidation),
            ("max-age=10", "max-age=5", 5, Now),
            ("max-age=10", "max-age=5", 6, AfterValidation),
            ("max-age=10", "min-fresh=5", 5, Now),
            ("max-age=10", "min-fresh=5", 6, AfterValidation),
            ("max-age=10", "max-stale", 99, Now),
            ("max-age=10", "max-stale=5", 15, Now),
            ("max-age=10", "max-stale=5", 16, AfterValidation),
            ("max-age=10, must-revalidate", "max-stale", 11, AfterValidation),
            ("max-age=10, proxy-revalidate", "max-stale", 11, AfterValidation),
            ("s-maxage=10", "max-stale", 11, AfterValidation),
            ("max-age=10, no-cache", "max-stale", 0, AfterValidation),
            // RFC 8246: a reload of an immutable response is a hit; a forced reload is not.
            ("max-age=10, immutable", "max-age=0", 5, Now),
            ("max-age=10, immutable", "no-cache", 5, AfterValidation),
            ("max-age=10, immutable", "max-age=0", 11, AfterValidation),
            // A reload of a stale immutable response is not a hit, even if other directives would
            // allow one.
            ("max-age=10, immutable", "max-age=0, max-stale", 11, AfterValidation),
            ("max-age=10, immutable, stale-while-revalidate=60", "max-age=0", 11, AfterValidation),
        ] {
            assert_eq!(reuse(response, request, age), expected, "{response} / {request} at {age}");
        }
    }

    #[test]
    fn rfc5861_stale_is_served_as_the_response_allows() {
        use Reuse::{AfterValidation, NowAndRefresh};
        for (response, age, expected) in [
            ("max-age=10, stale-while-revalidate=5", 14, NowAndRefresh),
            ("max-age=10, stale-while-revalidate=5", 15, AfterValidation),
            ("s-maxage=10, stale-while-revalidate=5", 14, NowAndRefresh),
            ("max-age=10, stale-while-revalidate=5, must-revalidate", 14, AfterValidation),
            ("max-age=10, stale-while-revalidate=5, no-cache", 14, AfterValidation),
        ] {
            assert_eq!(reuse(response, "", age), expected, "{response} at {age}");
        }
        assert_eq!(reuse("max-age=10, stale-while-revalidate=5", "min-fresh=1", 12), AfterValidation);
    }

    #[test]
    fn millisecond_settings_have_millisecond_effect() {
        let (lifetime_ms, while_revalidate_ms) = (500, 250);
        let freshness =
            Freshness { lifetime_ms, while_revalidate_ms, born_ms: 1_000, ..Freshness::default() };
        let at = |age_ms: u64| freshness.reuse(&RequestCacheControl::default(), 1_000 + age_ms);
        assert_eq!([at(499), at(500)], [Reuse::Now, Reuse::NowAndRefresh]);
        assert_eq!([at(749), at(750)], [Reuse::NowAndRefresh, Reuse::AfterValidation]);
        assert_eq!([0, 1, 499, 500, 501].map(|age_ms| freshness.ttl_s(1_000 + age_ms)), [1, 1, 1, 0, 0]);
        assert_eq!(freshness.stale_from(1_200).ttl_ms(1_200), 0);
    }

    #[test]
    fn settings_apply_where_the_response_has_no_directive() {
        let rules = Rules { grace_s: 5, stale_if_error_s: 9, ..Rules::default() };
        let of = |directives: &str| {
            let mut fields = Fields::new();
            fields.push("Cache-Control", directives);
            let directives = CacheControl::from_fields(&fields);
            let freshness = Freshness::of(200, &fields, &directives, true, &rules, (0, 0));
            (freshness.while_revalidate_ms / 1000, freshness.if_error_ms / 1000)
        };
        assert_eq!(Rules::default().stale_if_error_s, 60);
        assert_eq!(of("max-age=1"), (5, 9));
        assert_eq!(of("max-age=1, stale-while-revalidate=1, stale-if-error=2"), (1, 2));
        assert_eq!(of("max-age=1, must-revalidate"), (0, 0));
        assert_eq!(of("s-maxage=1"), (0, 0));
    }

    #[test]
    fn errors_are_never_served_stale() {
        let rules = Rules { grace_s: 5, stale_if_error_s: 9, ..Rules::default() };
        let directives = "max-age=1, stale-while-revalidate=100, stale-if-error=100";
        let fields: Fields = [("Cache-Control", directives)].into_iter().collect();
        let directives = CacheControl::from_fields(&fields);
        for status in [400, 404, 500, 503] {
            let freshness = Freshness::of(status, &fields, &directives, true, &rules, (0, 0));
            assert!(freshness.is_fresh(999) && !freshness.serves_on_error(1000), "{status}");
            assert_eq!(freshness.reuse(&RequestCacheControl::default(), 1000), Reuse::AfterValidation);
        }
        let fine = Freshness::of(399, &fields, &directives, true, &rules, (0, 0));
        assert!(
            fine.serves_on_error(1000) && fine.serves_on_error(100_999) && !fine.serves_on_error(101_000)
        );
    }

    #[test]
    fn rfc9111_4_2_2_heuristics_have_limits() {
        let rules = Rules { heuristic_max_s: 3000, negative_s: 2, negative_max_s: 30, ..Rules::default() };
        let of = |status: u16, lines: &[(&str, &str)]| {
            let mut fields = Fields::new();
            fields.push("Date", "Thu, 01 Jan 2026 01:00:00 GMT");
            for (name, value) in lines {
                fields.push(name, value);
            }
            let directives = CacheControl::from_fields(&fields);
            Freshness::of(status, &fields, &directives, true, &rules, (0, 0)).lifetime_ms / 1000
        };
        let hour = ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT");
        assert_eq!(of(200, &[hour]), 360);
        assert_eq!(of(200, &[("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")]), 3000);
        assert_eq!(of(200, &[hour, ("Cache-Control", "max-age=1")]), 1);
        assert_eq!(of(200, &[hour, ("Expires", "0")]), 0);
        assert_eq!(of(200, &[hour, ("Cache-Control", "no-cache")]), 0);
        assert_eq!(of(302, &[hour]), 0);
        assert_eq!(of(302, &[hour, ("Cache-Control", "public")]), 360);
        assert_eq!((of(404, &[]), of(410, &[]), of(405, &[]), of(200, &[])), (2, 2, 0, 0));
        assert_eq!(of(404, &[("Cache-Control", "max-age=600")]), 30);
        assert_eq!(of(503, &[("Cache-Control", "max-age=600")]), 30);
    }

    proptest::proptest! {
        #[test]
        fn freshness_ends_when_the_age_reaches_the_lifetime(
            max_age in 0..100_000u32,
            age in 0..200_000u64,
            later_ms in 0..200_000_000u64,
        ) {
            let mut fields = Fields::new();
            fields.push("Cache-Control", format!("max-age={max_age}"));
            fields.push("Age", age.to_string());
            let directives = CacheControl::from_fields(&fields);
            let now_ms = NOW_S * 1000;
            let freshness =
                Freshness::of(200, &fields, &directives, true, &Rules::default(), (now_ms, now_ms));
            let expected = (age * 1000 + later_ms) / 1000;
            proptest::prop_assert_eq!(freshness.age_s(now_ms + later_ms), expected);
            proptest::prop_assert_eq!(freshness.is_fresh(now_ms + later_ms), expected < u64::from(max_age));
            proptest::prop_assert_eq!(freshness.ttl_s(now_ms + later_ms) > 0, expected < u64::from(max_age));
        }

        #[test]
        fn reuse_never_improves_with_age_or_stricter_requests(
            response in response_directives(),
            request in request_directives(),
            age in 0..40u64,
            later in 0..40u64,
        ) {
            let usable = |request: &str, age| reuse(&response, request, age) != Reuse::AfterValidation;
            proptest::prop_assert!(usable(&request, age) || !usable(&request, age + later));
            for more in ["no-cache", "max-age=5", "min-fresh=5"] {
                proptest::prop_assert!(usable(&request, age) || !usable(&format!("{request},{more}"), age), "{}", more);
            }
            let may_be_stale = request.contains("max-stale") || response.contains("stale-while");
            let is_fresh = reuse(&response, "", age) == Reuse::Now;
            proptest::prop_assert!(is_fresh || may_be_stale || !usable(&request, age));
            if response.contains("must-revalidate") {
                proptest::prop_assert!(is_fresh || !usable(&request, age), "served stale despite must-revalidate");
            }
        }
    }

    /// Generates directives that affect reuse, with small numbers.
    fn response_directives() -> impl proptest::strategy::Strategy<Value = String> {
        directives(&[
            "max-age=",
            "s-maxage=",
            "stale-while-revalidate=",
            "must-revalidate",
            "immutable",
            "no-cache",
        ])
    }

    fn request_directives() -> impl proptest::strategy::Strategy<Value = String> {
        directives(&["max-age=", "min-fresh=", "max-stale=", "max-stale", "no-cache"])
    }

    fn directives(names: &'static [&str]) -> impl proptest::strategy::Strategy<Value = String> {
        use proptest::prelude::*;
        let one = (prop::sample::select(names), 0..30u32).prop_map(|(name, seconds)| {
            if name.ends_with('=') { format!("{name}{seconds}") } else { name.to_owned() }
        });
        prop::collection::vec(one, 0..4).prop_map(|all| all.join(","))
    }
}
