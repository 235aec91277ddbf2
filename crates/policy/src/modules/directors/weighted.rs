//! Weighted directors: `random` and `hash` (vmod_directors(3)).
//!
//! Both map a number in [0, 1) to a healthy member, with a probability proportional to the member's
//! weight. For `random`, the number is random. For `hash`, [`unit_of`] computes it from a string in
//! the same way as varnishd, so both choose the same member. When a member's health changes, keys
//! of other members may be remapped too, which `shard` avoids.

use super::{Error, push, shard};

/// A director whose members have weights.
#[derive(Debug)]
pub struct Weighted<M> {
    members: Vec<(M, f64)>,
}

impl<M> Default for Weighted<M> {
    fn default() -> Weighted<M> {
        Weighted { members: Vec::new() }
    }
}

impl<M: PartialEq> Weighted<M> {
    /// Adds `member`. A member with weight 0 is never chosen.
    pub fn add(&mut self, member: M, weight: f64) -> Result<(), Error> {
        if !(weight.is_finite() && weight >= 0.0) {
            return Err(Error::Weight(weight));
        }
        push(&mut self.members, (member, weight))
    }

    /// Removes the first occurrence of `member` and returns whether it was found.
    pub fn remove(&mut self, member: &M) -> bool {
        let index = self.members.iter().position(|(other, _)| other == member);
        index.map(|index| self.members.remove(index)).is_some()
    }

    /// Returns the members, in order.
    pub fn members(&self) -> impl Iterator<Item = &M> {
        self.members.iter().map(|(member, _)| member)
    }

    /// Selects a healthy member by `unit`, a number in [0, 1); `None` if no member is healthy.
    /// Calls `is_healthy` twice per member and tolerates results that differ.
    pub fn pick(&self, unit: f64, mut is_healthy: impl FnMut(&M) -> bool) -> Option<&M> {
        let mut healthy = |(member, weight): &(M, f64)| *weight > 0.0 && is_healthy(member);
        let total: f64 = self.members.iter().filter(|entry| healthy(entry)).map(|(_, weight)| weight).sum();
        let mut left = unit * total;
        let mut last = None;
        for entry in self.members.iter().filter(|entry| healthy(entry)) {
            last = Some(&entry.0);
            if left < entry.1 {
                break;
            }
            left -= entry.1;
        }
        last
    }
}

/// Maps `text` to a number in [0, 1), for the hash director.
pub fn unit_of(text: &[u8]) -> f64 {
    f64::from(shard::key_of(text)) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn director(members: &[(char, f64)]) -> Weighted<char> {
        let mut director = Weighted::default();
        for (member, weight) in members {
            director.add(*member, *weight).unwrap();
        }
        director
    }

    #[test]
    fn choice_is_proportional_to_weight() {
        let director = director(&[('a', 1.0), ('b', 2.0), ('c', 0.0), ('d', 1.0)]);
        for (unit, picked) in [(0.0, 'a'), (0.249, 'a'), (0.25, 'b'), (0.749, 'b'), (0.75, 'd'), (0.999, 'd')]
        {
            assert_eq!(director.pick(unit, |_| true), Some(&picked), "{unit}");
        }
        assert_eq!(director.pick(0.49, |member| *member != 'b'), Some(&'a'));
        assert_eq!(director.pick(0.5, |member| *member != 'b'), Some(&'d'));
        assert_eq!(director.pick(0.5, |_| false), None);
        assert_eq!(director.pick(0.5, |member| *member == 'c'), None);
        assert_eq!(director.members().collect::<String>(), "abcd");
    }

    #[test]
    fn invalid_weights_are_rejected() {
        for weight in [-1.0, f64::INFINITY, f64::NAN] {
            assert!(matches!(Weighted::default().add('a', weight), Err(Error::Weight(_))), "{weight}");
        }
        let mut director = director(&[('a', 1.0), ('a', 2.0)]);
        assert!(director.remove(&'a') && director.remove(&'a') && !director.remove(&'a'));
    }

    /// Choices for `k0` to `k39`, with weights 1 for a, 2 for b and 1 for c, must match varnishd
    /// 7.1.1.
    #[test]
    fn hash_choices_match_varnishd() {
        let director = director(&[('a', 1.0), ('b', 2.0), ('c', 1.0)]);
        let picked: String = (0..40)
            .map(|index| *director.pick(unit_of(format!("k{index}").as_bytes()), |_| true).unwrap())
            .collect();
        assert_eq!(picked, "bcbcbbcccacbbcbbbacbbacccbbcbcbbaabbbccc");
    }

    proptest! {
        #[test]
        fn healthy_member_is_found(
            weights in proptest::collection::vec(0.001f64..1e12, 1..20), unit in 0.0f64..1.0, sick: u32
        ) {
            let mut director = Weighted::default();
            for (index, weight) in weights.iter().enumerate() {
                director.add(index, *weight).unwrap();
            }
            let is_healthy = |index: &usize| sick >> index & 1 == 0;
            let picked = director.pick(unit, is_healthy);
            prop_assert_eq!(picked.is_some(), (0..weights.len()).any(|index| is_healthy(&index)));
            prop_assert!(picked.is_none_or(is_healthy));
        }
    }
}
