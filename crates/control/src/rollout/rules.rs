//! Rules beside rules: what one bundle steers that another does not.
//!
//! What counts is how many connections of a prefix are steered, not which: a new toss with the same share is nothing more.

use std::collections::HashMap;

use thalweg_bundle::Rule;
use thalweg_record::Prefix;

/// Whether a rule steers more than another of its prefix, or otherwise.
fn steers_more(rule: &Rule, than: Option<&Rule>) -> bool {
    than.is_none_or(|than| {
        rule.congestion_control != than.congestion_control
            || rule.size_bytes_min != than.size_bytes_min
            || rule.holdout < than.holdout
    })
}

/// Whether two rules of a prefix steer the same connections, in the same way.
pub(crate) fn steers_alike(one: &Rule, other: &Rule) -> bool {
    one.salt == other.salt && !steers_more(one, Some(other)) && !steers_more(other, Some(one))
}

/// Rules by their prefixes.
pub(super) fn by_prefix(rules: &[Rule]) -> HashMap<Prefix, &Rule> {
    rules.iter().map(|rule| (rule.prefix, rule)).collect()
}

/// Rules without what `target` has taken back of them: prefixes that it has no more, and those of which it holds out more, or others.
pub(super) fn reduced(rules: &[Rule], target: &[Rule]) -> Vec<Rule> {
    let target = by_prefix(target);
    let reduce = |rule: &Rule| {
        let wanted = *target.get(&rule.prefix)?;
        Some(if steers_more(wanted, Some(rule)) { rule.clone() } else { wanted.clone() })
    };
    rules.iter().filter_map(reduce).collect()
}

/// The rules of `to` that steer more than those of `from`.
pub(super) fn added<'a>(from: &[Rule], to: &'a [Rule]) -> Vec<&'a Rule> {
    let from = by_prefix(from);
    to.iter().filter(|rule| steers_more(rule, from.get(&rule.prefix).copied())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_map;
    use proptest::prelude::*;
    use thalweg_bundle::Share;

    use super::*;

    prop_compose! {
        fn rules()(of in btree_map(0_u8..8, (0_u32..4, any::<bool>(), 0..3), 0..8)) -> Vec<Rule> {
            let rule = |(at, (holdout, is_bbr, salt)): (u8, (u32, bool, i32))| Rule {
                prefix: format!("203.0.{at}.0/24").parse().unwrap(),
                congestion_control: if is_bbr { "bbr" } else { "reno" }.into(),
                size_bytes_min: None,
                holdout: Share::from_millionths(holdout * 100_000).unwrap(),
                salt: salt.to_string(),
                reason: String::new(),
            };
            of.into_iter().map(rule).collect()
        }
    }

    proptest! {
        #[test]
        fn what_is_reduced_steers_nobody_else(rules in rules(), target in rules()) {
            let reduced = reduced(&rules, &target);
            prop_assert!(added(&rules, &reduced).is_empty());
            let prefixes = by_prefix(&target);
            prop_assert!(reduced.iter().all(|rule| prefixes.contains_key(&rule.prefix)));
            // Where the target steers nobody else either, the target is what is left.
            prop_assert_eq!(reduced == target, added(&rules, &target).is_empty());
        }
    }
}
