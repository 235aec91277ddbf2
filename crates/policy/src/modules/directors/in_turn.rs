//! Directors that try their members in order: `round_robin` and `fallback` (vmod_directors(3)).
//!
//! Workers that select concurrently may select the same member or skip one. The counters use
//! relaxed ordering, because no other data depends on them.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::{Error, push};

/// A director with an ordered list of members.
pub trait InTurn<M> {
    /// Appends `member`. The same member may be added several times.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Members`] if the list is full.
    fn add(&mut self, member: M) -> Result<(), Error>;

    /// Removes the first occurrence of `member` and returns whether it was found.
    fn remove(&mut self, member: &M) -> bool;

    /// Returns the members, in order.
    fn members(&self) -> &[M];

    /// Selects a healthy member; `None` if no member is healthy.
    fn pick(&self, is_healthy: impl FnMut(&M) -> bool) -> Option<&M>;
}

/// A director that cycles through its healthy members.
#[derive(Debug)]
pub struct RoundRobin<M> {
    members: Vec<M>,
    next: AtomicUsize,
}

impl<M> Default for RoundRobin<M> {
    fn default() -> RoundRobin<M> {
        RoundRobin { members: Vec::new(), next: AtomicUsize::new(0) }
    }
}

impl<M: PartialEq> InTurn<M> for RoundRobin<M> {
    fn add(&mut self, member: M) -> Result<(), Error> {
        push(&mut self.members, member)
    }

    fn remove(&mut self, member: &M) -> bool {
        let index = self.members.iter().position(|other| other == member);
        index.map(|index| self.members.remove(index)).is_some()
    }

    fn members(&self) -> &[M] {
        &self.members
    }

    fn pick(&self, mut is_healthy: impl FnMut(&M) -> bool) -> Option<&M> {
        let first = self.next.fetch_add(1, Relaxed);
        for skipped in 0..self.members.len() {
            let member = &self.members[first.wrapping_add(skipped) % self.members.len()];
            if is_healthy(member) {
                // Continue after the selected member. Otherwise, the member after an unhealthy one
                // would receive twice its share.
                self.next.fetch_add(skipped, Relaxed);
                return Some(member);
            }
        }
        None
    }
}

/// A director that selects the first healthy member. A sticky director keeps its previous choice as
/// long as that member is healthy.
#[derive(Debug)]
pub struct Fallback<M> {
    members: Vec<M>,
    sticky: bool,
    current: AtomicUsize,
}

impl<M> Fallback<M> {
    /// Creates a director without members.
    pub fn new(sticky: bool) -> Fallback<M> {
        Fallback { members: Vec::new(), sticky, current: AtomicUsize::new(0) }
    }
}

impl<M: PartialEq> InTurn<M> for Fallback<M> {
    fn add(&mut self, member: M) -> Result<(), Error> {
        push(&mut self.members, member)
    }

    /// Removes a member; the sticky choice stays on the same member.
    fn remove(&mut self, member: &M) -> bool {
        let Some(index) = self.members.iter().position(|other| other == member) else { return false };
        self.members.remove(index);
        let current = self.current.get_mut();
        if *current > index {
            *current -= 1;
        }
        true
    }

    fn members(&self) -> &[M] {
        &self.members
    }

    /// Selects the first healthy member, starting at the previous choice if sticky, and wraps
    /// around.
    fn pick(&self, mut is_healthy: impl FnMut(&M) -> bool) -> Option<&M> {
        let first = if self.sticky { self.current.load(Relaxed) } else { 0 };
        let indexes = (0..self.members.len()).map(|skipped| (first + skipped) % self.members.len());
        for index in indexes {
            if is_healthy(&self.members[index]) {
                self.current.store(index, Relaxed);
                return Some(&self.members[index]);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picks<'a>(count: usize, mut pick: impl FnMut() -> Option<&'a char>) -> String {
        (0..count).map(|_| pick().copied().unwrap_or('-')).collect()
    }

    #[test]
    fn round_robin_rotates_and_skips_unhealthy_members() {
        let mut director = RoundRobin::default();
        assert_eq!(director.pick(|_| true), None);
        "abc".chars().for_each(|member| director.add(member).unwrap());
        director.next = AtomicUsize::new(0);
        assert_eq!(picks(4, || director.pick(|_| true)), "abca");
        assert_eq!(picks(4, || director.pick(|member| *member != 'b')), "caca");
        assert_eq!(picks(2, || director.pick(|_| false)), "--");
        assert!(director.remove(&'a') && !director.remove(&'a'));
        assert_eq!(director.members(), ['b', 'c']);
        assert_eq!(director.add('b').map(|()| director.members().len()), Ok(3));
    }

    #[test]
    fn round_robin_survives_counter_overflow() {
        let mut director = RoundRobin { members: vec!['a', 'b'], next: AtomicUsize::new(usize::MAX) };
        assert_eq!(picks(3, || director.pick(|_| true)), "bab");
        assert!(director.remove(&'b'));
        assert_eq!(picks(2, || director.pick(|_| true)), "aa");
    }

    #[test]
    fn fallback_prefers_the_first_healthy_member() {
        let mut director = Fallback::new(false);
        "abc".chars().for_each(|member| director.add(member).unwrap());
        assert_eq!(director.pick(|_| true), Some(&'a'));
        assert_eq!(director.pick(|member| *member != 'a'), Some(&'b'));
        assert_eq!(director.pick(|_| true), Some(&'a'));
        assert_eq!(director.pick(|_| false), None);
    }

    #[test]
    fn sticky_fallback_stays_and_wraps_around() {
        let mut director = Fallback::new(true);
        "abc".chars().for_each(|member| director.add(member).unwrap());
        assert_eq!(director.pick(|member| *member != 'a'), Some(&'b'));
        assert_eq!(director.pick(|_| true), Some(&'b'));
        assert!(director.remove(&'a'));
        assert_eq!(director.pick(|_| true), Some(&'b'));
        assert_eq!(director.pick(|member| *member != 'b'), Some(&'c'));
        assert!(director.remove(&'c'));
        assert_eq!(director.pick(|_| true), Some(&'b'));
    }

    #[test]
    fn members_are_bounded() {
        let mut director = Fallback::new(false);
        for _ in 0..super::super::MEMBERS_MAX {
            director.add(1).unwrap();
        }
        assert_eq!(director.add(1), Err(Error::Members));
    }
}
