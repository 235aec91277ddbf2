//! Routes that a bundle requires at a given time. Prefixes that are held out as a whole get no
//! route.
//!
//! A switchback steers its prefix in one block of time and holds it out in another. Blocks are
//! computed from the clock exactly as in an edge, so all servers switch together.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use thalweg_bundle::{Bundle, Rule};
use thalweg_tcp::routes::{Steering, Wanted};

use super::{Target, rules};

/// Routes required at a given time.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) wanted: Wanted,
    /// Number of prefixes held out as a whole.
    pub(super) held_out: usize,
    /// Range of Unix seconds in which the required routes stay the same, because no switchback's
    /// block ends.
    pub(super) span: Range<u64>,
    /// Number of switchbacks.
    switchbacks: usize,
}

impl Due {
    /// Returns the routes that a bundle requires in a routing table at this time.
    ///
    /// # Errors
    ///
    /// Returns an error if a rule's congestion control is not a valid kernel name.
    pub(super) fn at(bundle: &Bundle, target: &Target, unix_s: u64) -> anyhow::Result<Self> {
        let rules = rules(bundle, target.tenant.as_deref());
        let steered = rules.iter().filter(|rule| !rule.holds_out_prefix(unix_s));
        let prefixes = steered.map(|rule| Ok((rule.prefix.network(), steering(rule, target)?)));
        let wanted = Wanted { table: target.table, prefixes: prefixes.collect::<anyhow::Result<_>>()? };
        let blocks: Vec<_> = rules.iter().filter_map(|rule| rule.block(unix_s)).collect();
        let start = blocks.iter().map(|block| block.start).max().unwrap_or(0);
        let end = blocks.iter().map(|block| block.end).min().unwrap_or(u64::MAX);
        let held_out = rules.len() - wanted.prefixes.len();
        Ok(Self { wanted, held_out, span: start..end, switchbacks: blocks.len() })
    }

    /// Returns a warning for a command that sets routes once.
    pub(super) fn warning(&self) -> Option<String> {
        (self.switchbacks > 0).then(|| {
            let count = self.switchbacks;
            format!("{count} rules switch their prefix on and off: only --follow changes routes in time")
        })
    }
}

/// Returns the congestion control and initial windows that a rule's route sets.
fn steering(rule: &Rule, target: &Target) -> anyhow::Result<Steering> {
    let algorithm =
        rule.congestion_control.parse().context("congestion control must be a valid kernel name")?;
    Ok(Steering {
        congestion_control: algorithm,
        initcwnd: rule.initcwnd.or(target.initcwnd).map(u32::from),
        initrwnd: rule.initrwnd.or(target.initrwnd).map(u32::from),
    })
}

/// Returns the time since the Unix epoch, or zero if the clock is set to an earlier time.
pub(super) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use thalweg_bundle::{Content, Share};
    use thalweg_tcp::routes::TABLE_MAIN;

    use super::*;

    /// Returns a switchback with blocks of `block_s`, or a rule without blocks that holds out
    /// `holdout`.
    fn rule(prefix: &str, block_s: Option<u32>, holdout: f64) -> Rule {
        Rule {
            tenant: String::new(),
            prefix: prefix.parse().unwrap(),
            congestion_control: "reno".to_owned(),
            size_bytes_min: None,
            initcwnd: None,
            initrwnd: None,
            holdout: Share::from_number(holdout).unwrap(),
            period_s: block_s.map(|_| 300),
            switchback_block_s: block_s,
            salt: "7".to_owned(),
            reason: "a test".to_owned(),
        }
    }

    fn due(rules: &[Rule], unix_s: u64) -> Due {
        let content =
            Content { number: 1, reason: "a test".to_owned(), rules: rules.to_vec(), ..Content::default() };
        let target = Target { table: TABLE_MAIN, tenant: None, initcwnd: None, initrwnd: None };
        Due::at(&Bundle::new(content).unwrap(), &target, unix_s).unwrap()
    }

    #[test]
    fn routes_stay_until_the_next_block_of_any_switchback() {
        let rules = [
            rule("192.0.2.0/24", Some(900), 0.5),
            rule("2001:db8:77::/56", Some(1_200), 0.5),
            rule("198.51.100.0/24", None, 0.0),
            rule("203.0.113.0/24", None, 1.0),
        ];
        let mut unix_s = 3_600 * 450_000;
        let mut seen = [0; 4];
        while unix_s < 3_600 * 450_024 {
            let due = due(&rules, unix_s);
            assert_eq!((due.span.start, due.held_out), (unix_s, rules.len() - due.wanted.prefixes.len()));
            assert!(unix_s.is_multiple_of(900) || unix_s.is_multiple_of(1_200), "{unix_s}");
            let next = [unix_s / 900 * 900 + 900, unix_s / 1_200 * 1_200 + 1_200];
            assert_eq!(due.span.end, *next.iter().min().unwrap());
            for (rule, seen) in rules.iter().zip(&mut seen) {
                let has_route = due.wanted.prefixes.contains_key(&rule.prefix.network());
                // An edge's decision for a client of the prefix.
                assert_eq!(has_route, !rule.holds_out(rule.prefix.first(), due.span.end - 1), "{rule:?}");
                *seen += u64::from(has_route) * (due.span.end - unix_s);
            }
            unix_s = due.span.end;
        }
        assert_eq!(seen, [43_200, 43_200, 86_400, 0], "seconds with a route, of a day");
    }

    #[test]
    fn routes_without_switchbacks_never_change() {
        let due = due(&[rule("192.0.2.0/24", None, 0.1)], 1_800_000_000);
        assert_eq!((due.span.clone(), due.held_out, due.warning()), (0..u64::MAX, 0, None));
    }
}
