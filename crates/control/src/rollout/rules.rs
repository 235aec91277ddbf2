//! Rules beside rules: what one bundle steers that another does not.
//!
//! What counts is how many connections of a prefix are steered, not which: a new toss with the same share is nothing more.

use std::collections::HashMap;

use thalweg_bundle::Rule;

use crate::tenants::Whom;

/// Whether a rule steers more than another about the same, or otherwise.
fn steers_more(rule: &Rule, than: Option<&Rule>) -> bool {
    than.is_none_or(|than| {
        rule.congestion_control != than.congestion_control
            || rule.size_bytes_min != than.size_bytes_min
            || rule.holdout < than.holdout
    })
}

/// Whether two rules about the same steer the same connections, in the same way.
pub(crate) fn steers_alike(one: &Rule, other: &Rule) -> bool {
    one.salt == other.salt && !steers_more(one, Some(other)) && !steers_more(other, Some(one))
}

/// Rules by whom they are about.
pub(super) fn by_whom(rules: &[Rule]) -> HashMap<Whom, &Rule> {
    rules.iter().map(|rule| (Whom::of(rule), rule)).collect()
}

/// Rules without what `target` has taken back of them: those about whom it has none any more, and those of which it holds out more, or others.
pub(super) fn reduced(rules: &[Rule], target: &[Rule]) -> Vec<Rule> {
    let target = by_whom(target);
    let reduce = |rule: &Rule| {
        let wanted = *target.get(&Whom::of(rule))?;
        Some(if steers_more(wanted, Some(rule)) { rule.clone() } else { wanted.clone() })
    };
    rules.iter().filter_map(reduce).collect()
}

/// The rules of `to` that steer more than those of `from`.
pub(super) fn added<'a>(from: &[Rule], to: &'a [Rule]) -> Vec<&'a Rule> {
    let from = by_whom(from);
    to.iter().filter(|rule| steers_more(rule, from.get(&Whom::of(rule)).copied())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_map;
    use proptest::prelude::*;
    use thalweg_bundle::Share;

    use super::*;

    prop_compose! {
        fn rules()(of in btree_map((0_u8..4, any::<bool>()), (0_u32..4, any::<bool>(), 0..3), 0..8)) -> Vec<Rule> {
            let rule = |((at, is_tenants), (holdout, is_bbr, salt)): ((u8, bool), (u32, bool, i32))| Rule {
                tenant: if is_tenants { "a.example" } else { "" }.into(),
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
            let whom = by_whom(&target);
            prop_assert!(reduced.iter().all(|rule| whom.contains_key(&Whom::of(rule))));
            // Where the target steers nobody else either, the target is what is left.
            prop_assert_eq!(reduced == target, added(&rules, &target).is_empty());
        }
    }
}
