//! Hash ring of a shard director: 32-bit points, each of which belongs to an instance.
//!
//! An instance's points are the keys of its name with 0, 1, 2 … appended. A key belongs to the
//! first point at or after it, and a key after the last point belongs to the last point. Both rules
//! follow varnishd 7.1.1, so that choices are equal. Varnish's manual differs: it counts from 1 and
//! wraps around.

use super::{MEMBERS_MAX, shard::key_of};

/// The ring's points, in ascending order.
#[derive(Debug, Default)]
pub(super) struct Ring {
    points: Vec<Point>,
    instances: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    at: u32,
    instance: u32,
}

impl Ring {
    /// Builds a ring from each instance's name and number of points.
    pub(super) fn new<'a>(instances: impl ExactSizeIterator<Item = (&'a str, u32)>) -> Ring {
        let count = instances.len();
        let mut points = Vec::new();
        for ((name, replicas), instance) in instances.zip(0..) {
            points.extend(
                (0..replicas)
                    .map(|replica| Point { at: key_of(format!("{name}{replica}").as_bytes()), instance }),
            );
        }
        points.sort_unstable();
        Ring { points, instances: count }
    }

    /// Iterates over all instances once, in ring order from `key`.
    pub(super) fn walk(&self, key: u32) -> Walk<'_> {
        let at = self.points.partition_point(|point| point.at < key);
        let at = at.min(self.points.len().saturating_sub(1));
        Walk { ring: self, at, left: self.instances, seen: [0; MEMBERS_MAX / 64] }
    }
}

/// The iterator of [`Ring::walk`].
pub(super) struct Walk<'a> {
    ring: &'a Ring,
    at: usize,
    /// Number of instances not yet visited. Each has at least one point, so the walk reaches all of
    /// them.
    left: usize,
    seen: [u64; MEMBERS_MAX / 64],
}

impl Iterator for Walk<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.left == 0 {
            return None;
        }
        loop {
            let instance = self.ring.points[self.at].instance as usize;
            self.at = (self.at + 1) % self.ring.points.len();
            let (word, bit) = (&mut self.seen[instance / 64], 1 << (instance % 64));
            if *word & bit == 0 {
                *word |= bit;
                self.left -= 1;
                return Some(instance);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_visits_every_instance_once() {
        let names: Vec<String> = (0..MEMBERS_MAX).map(|index| format!("backend{index}")).collect();
        let ring = Ring::new(names.iter().map(|name| (name.as_str(), 3)));
        for key in [0, 1, u32::MAX / 2, u32::MAX] {
            let mut walked: Vec<usize> = ring.walk(key).collect();
            walked.sort_unstable();
            assert!(walked.iter().copied().eq(0..MEMBERS_MAX), "{key}");
        }
        assert_eq!(Ring::default().walk(7).next(), None);
    }

    /// On a ring with one point each for a, b and c, results must match varnishd 7.1.1.
    #[test]
    fn key_belongs_to_the_point_at_or_after_it() {
        let ring = Ring::new([("a", 1), ("b", 1), ("c", 1)].into_iter());
        let first = |key| ring.walk(key).next();
        let (low, middle, high) = (ring.points[0], ring.points[1], ring.points[2]);
        assert_eq!(first(low.at), Some(low.instance as usize));
        assert_eq!(first(low.at + 1), Some(middle.instance as usize));
        assert_eq!(first(high.at), Some(high.instance as usize));
        assert_eq!(first(high.at + 1), Some(high.instance as usize));
        assert_eq!(ring.walk(high.at + 1).nth(1), Some(low.instance as usize));
    }
}
