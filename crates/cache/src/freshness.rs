//! Freshness of a stored response (RFC 9111 §4.2): a function of its fields, when it came, and `now`.
//!
//! Times are unix milliseconds, durations in the fields are seconds.

use thalweg_http::cache_control::CacheControl;
use thalweg_http::{Fields, date, number};

/// How long a response is fresh, and since when it ages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// Seconds from age 0 for which it is fresh; 0 where nothing explicit says so.
    pub lifetime_s: u64,
    /// When its age was 0, as far as can be told: never later than when it came.
    pub born_ms: u64,
}

impl Freshness {
    /// Of a response asked for at `requested_ms`, whose head came at `received_ms`.
    ///
    /// `s-maxage` goes before `max-age` before `Expires` (§5.2.2.10, §5.3). A response that says `no-cache` is
    /// never fresh.
    pub fn of(fields: &Fields, directives: &CacheControl, requested_ms: u64, received_ms: u64) -> Self {
        let date_s = fields.get("date").and_then(date::parse);
        let lifetime_s = lifetime_s(fields, directives, date_s.unwrap_or(received_ms / 1000));
        let age_ms = initial_age_ms(fields, date_s, requested_ms, received_ms);
        Self { lifetime_s, born_ms: received_ms.saturating_sub(age_ms) }
    }

    /// Its age (§4.2.3), in whole seconds.
    pub fn age_s(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.born_ms) / 1000
    }

    /// Seconds of freshness left; negative once stale.
    pub fn ttl_s(&self, now_ms: u64) -> i64 {
        let seconds = |s: u64| i64::try_from(s).unwrap_or(i64::MAX);
        seconds(self.lifetime_s).saturating_sub(seconds(self.age_s(now_ms)))
    }

    /// Whether it may be reused without asking (§4.2).
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        self.lifetime_s > self.age_s(now_ms)
    }
}

fn lifetime_s(fields: &Fields, directives: &CacheControl, date_s: u64) -> u64 {
    if directives.no_cache != thalweg_http::cache_control::Qualified::Absent {
        return 0;
    }
    if let Some(explicit) = directives.s_maxage.or(directives.max_age) {
        return u64::from(explicit);
    }
    // An Expires that cannot be read, such as "0", is in the past (§5.3).
    fields.get("expires").and_then(date::parse).map_or(0, |expires| expires.saturating_sub(date_s))
}

/// corrected_initial_age (§4.2.3), in milliseconds.
fn initial_age_ms(fields: &Fields, date_s: Option<u64>, requested_ms: u64, received_ms: u64) -> u64 {
    let apparent_ms = date_s.map_or(0, |date_s| (received_ms / 1000).saturating_sub(date_s) * 1000);
    let told_s = match fields.get("age").and_then(number::parse) {
        Some(number::Decimal::Value(age)) => age,
        Some(number::Decimal::Overflow) => u64::from(thalweg_http::cache_control::DELTA_S_MAX),
        None => 0,
    };
    let delay_ms = received_ms.saturating_sub(requested_ms);
    apparent_ms.max(told_s.saturating_mul(1000).saturating_add(delay_ms))
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
        let freshness = Freshness::of(&all, &directives, now_ms - 500, now_ms);
        let age = freshness.age_s(now_ms);
        expect.assert_eq(&format!(
            "lifetime {}, age {age}, ttl {}, {}",
            freshness.lifetime_s,
            freshness.ttl_s(now_ms),
            if freshness.is_fresh(now_ms) { "fresh" } else { "stale" }
        ));
    }

    #[test]
    fn s_maxage_goes_before_max_age_before_expires() {
        let expires = ("Expires", "Thu, 01 Jan 2026 00:01:40 GMT");
        check(
            &[("Cache-Control", "max-age=10, s-maxage=20"), expires],
            expect!["lifetime 20, age 0, ttl 20, fresh"],
        );
        check(&[("Cache-Control", "max-age=10"), expires], expect!["lifetime 10, age 0, ttl 10, fresh"]);
        check(&[expires], expect!["lifetime 100, age 0, ttl 100, fresh"]);
    }

    #[test]
    fn an_invalid_expires_is_in_the_past() {
        check(&[("Expires", "0")], expect!["lifetime 0, age 0, ttl 0, stale"]);
    }

    #[test]
    fn no_cache_is_never_fresh() {
        check(&[("Cache-Control", "no-cache, max-age=10")], expect!["lifetime 0, age 0, ttl 0, stale"]);
    }

    #[test]
    fn age_is_the_larger_of_apparent_and_told() {
        let directive = ("Cache-Control", "max-age=10");
        check(&[directive, ("Age", "4")], expect!["lifetime 10, age 4, ttl 6, fresh"]);
        check(
            &[directive, ("Age", "4"), ("Date", "Wed, 31 Dec 2025 23:59:53 GMT")],
            expect!["lifetime 10, age 7, ttl 3, fresh"],
        );
        check(&[directive, ("Age", "10")], expect!["lifetime 10, age 10, ttl 0, stale"]);
    }

    #[test]
    fn expires_counts_from_date() {
        check(
            &[("Expires", "Thu, 01 Jan 2026 00:00:10 GMT"), ("Date", "Wed, 31 Dec 2025 23:59:55 GMT")],
            expect!["lifetime 15, age 5, ttl 10, fresh"],
        );
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
            let freshness = Freshness::of(&fields, &directives, now_ms, now_ms);
            let expected = (age * 1000 + later_ms) / 1000;
            proptest::prop_assert_eq!(freshness.age_s(now_ms + later_ms), expected);
            proptest::prop_assert_eq!(freshness.is_fresh(now_ms + later_ms), expected < u64::from(max_age));
            proptest::prop_assert_eq!(freshness.ttl_s(now_ms + later_ms) > 0, expected < u64::from(max_age));
        }
    }
}
