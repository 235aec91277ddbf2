//! Rule comparison: which rules of one bundle steer more than another bundle does.
//!
//! What matters is how many of a prefix's connections are steered, not which ones or when. A new
//! salt with the same share, or a switchback instead of a trial that holds out half of the clients,
//! therefore adds nothing.

use std::collections::HashMap;

use thalweg_bundle::Rule;

use crate::tenants::RuleKey;

/// Returns whether a rule steers more than `than`, the other bundle's rule with the same key, or
/// steers in a different way.
fn steers_more(rule: &Rule, than: Option<&Rule>) -> bool {
    than.is_none_or(|than| {
        rule.congestion_control != than.congestion_control
            || rule.size_bytes_min != than.size_bytes_min
            || rule.holdout < than.holdout
    })
}

/// Returns whether two rules for the same key steer the same connections in the same way.
pub(crate) fn steers_alike(one: &Rule, other: &Rule) -> bool {
    let draw = |rule: &Rule| (rule.salt.clone(), rule.period_s, rule.switchback_block_s);
    draw(one) == draw(other) && !steers_more(one, Some(other)) && !steers_more(other, Some(one))
}

/// Indexes rules by key.
pub(super) fn by_key(rules: &[Rule]) -> HashMap<RuleKey, &Rule> {
    rules.iter().map(|rule| (RuleKey::of(rule), rule)).collect()
}

/// Reduces `rules` to what `target` allows. Removes rules without a counterpart, and replaces a
/// rule with the target's if the target holds out more connections or different connections.
pub(super) fn reduced(rules: &[Rule], target: &[Rule]) -> Vec<Rule> {
    let target = by_key(target);
    let reduce = |rule: &Rule| {
        let wanted = *target.get(&RuleKey::of(rule))?;
        Some(if steers_more(wanted, Some(rule)) { rule.clone() } else { wanted.clone() })
    };
    rules.iter().filter_map(reduce).collect()
}

/// Returns the rules in `to` that steer more than those in `from`.
pub(super) fn added<'a>(from: &[Rule], to: &'a [Rule]) -> Vec<&'a Rule> {
    let from = by_key(from);
    to.iter().filter(|rule| steers_more(rule, from.get(&RuleKey::of(rule)).copied())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_map;
    use proptest::prelude::*;
    use thalweg_bundle::Share;

    use super::*;

    fn rule(prefix: &str) -> Rule {
        Rule {
            tenant: String::new(),
            prefix: prefix.parse().unwrap(),
            congestion_control: "bbr".into(),
            size_bytes_min: None,
            initcwnd: None,
            initrwnd: None,
            holdout: Share::default(),
            period_s: Some(300),
            switchback_block_s: None,
            salt: String::new(),
            reason: String::new(),
        }
    }

    prop_compose! {
        fn rules()(of in btree_map((0_u8..4, any::<bool>()), (0_u32..4, any::<bool>(), 0..3), 0..8)) -> Vec<Rule> {
            let of_rule = |((at, is_tenants), (holdout, is_bbr, salt)): ((u8, bool), (u32, bool, i32))| Rule {
                tenant: if is_tenants { "a.example" } else { "" }.into(),
                congestion_control: if is_bbr { "bbr" } else { "reno" }.into(),
                holdout: Share::from_millionths(holdout * 100_000).unwrap(),
                salt: salt.to_string(),
                ..rule(&format!("203.0.{at}.0/24"))
            };
            of.into_iter().map(of_rule).collect()
        }
    }

    #[test]
    fn switchback_replaces_a_trial_at_all_edges_at_once() {
        let half = |rule: &Rule| Rule { holdout: Share::from_millionths(500_000).unwrap(), ..rule.clone() };
        let trial = half(&rule("203.0.113.0/24"));
        let switchback = Rule { switchback_block_s: Some(900), ..trial.clone() };
        assert!(!steers_alike(&trial, &switchback));
        let (from, to) = ([trial.clone()], [switchback.clone()]);
        assert_eq!((added(&from, &to), reduced(&from, &to)), (Vec::new(), to.to_vec()));
        // A smaller held-out share after the proof is an addition.
        let helped = Rule { holdout: Share::from_millionths(100_000).unwrap(), ..trial };
        assert_eq!(added(&to, std::slice::from_ref(&helped)), [&helped]);
    }

    proptest! {
        #[test]
        fn reduction_adds_nothing(rules in rules(), target in rules()) {
            let reduced = reduced(&rules, &target);
            prop_assert!(added(&rules, &reduced).is_empty());
            let keys = by_key(&target);
            prop_assert!(reduced.iter().all(|rule| keys.contains_key(&RuleKey::of(rule))));
            // If the target adds nothing either, the reduction equals the target.
            prop_assert_eq!(reduced == target, added(&rules, &target).is_empty());
        }
    }
}
