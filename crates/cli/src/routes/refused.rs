//! Retry schedule for routes that the kernel refused. Has no I/O and no clock of its own.
//!
//! **Invariant:** a refused route is not retried until a pause has passed, regardless of other
//! changes. Each pause is twice the previous one, up to [`PAUSE_MAX`].

use std::collections::HashMap;
use std::time::{Duration, Instant};

use thalweg_tcp::routes::{Change, Refused};

/// Pause after the first refusal.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// Maximum pause.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Refused changes queued for a retry.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    refused: Vec<Refused>,
    /// Time of the next retry, and the length of the pause before it.
    again: Option<(Instant, Duration)>,
}

impl Waiting {
    /// Returns the waiting changes.
    pub(super) fn all(&self) -> &[Refused] {
        &self.refused
    }

    /// Returns whether the pause has passed.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.again.is_some_and(|(at, _)| at <= now)
    }

    /// Removes the waiting routes from `changes` until the pause is over, and forgets the waiting
    /// routes that `changes` no longer contains. If the path to a prefix has changed, the route is
    /// new and does not wait. Removals never wait.
    pub(super) fn hold_back(&mut self, changes: &mut Vec<Change>, now: Instant) {
        let is_over = self.is_over(now);
        let is_removal = |change: &Change| matches!(change, Change::Remove(_));
        let refused = self.refused.drain(..).filter(|refused| !is_over && !is_removal(&refused.change));
        let mut waiting: HashMap<_, _> =
            refused.map(|refused| (refused.change.route().prefix, refused)).collect();
        changes.retain(|change| {
            let prefix = change.route().prefix;
            let is_same = |refused: &Refused| refused.change.route() == change.route();
            if is_removal(change) || !waiting.get(&prefix).is_some_and(is_same) {
                return true;
            }
            self.refused.extend(waiting.remove(&prefix));
            false
        });
    }

    /// Adds changes that were just refused.
    pub(super) fn add(&mut self, refused: Vec<Refused>, now: Instant) {
        self.refused.extend(refused);
        if self.refused.is_empty() {
            self.again = None;
        } else if self.again.is_none_or(|(at, _)| at <= now) {
            let pause = self.again.map_or(PAUSE_MIN, |(_, pause)| (pause * 2).min(PAUSE_MAX));
            self.again = Some((now + pause, pause));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io;

    use thalweg_tcp::routes::Route;

    use super::*;

    /// Creates a route to 198.18.NUMBER.0/24 with this protocol.
    fn route(number: u8, protocol: u8) -> Route {
        let message = [2, 24, 0, 0, 254, protocol, 0, 1, 0, 0, 0, 0, 8, 0, 1, 0, 198, 18, number, 0];
        Route::decode(&message).unwrap().unwrap()
    }

    fn refused(change: &Change) -> Refused {
        Refused { change: change.clone(), cause: io::Error::from_raw_os_error(22), explanation: None }
    }

    #[test]
    fn pauses_double_up_to_the_maximum_and_reset() {
        let (mut waiting, change) = (Waiting::default(), Change::Add(route(1, 116)));
        let mut now = Instant::now();
        waiting.add(vec![refused(&change)], now);
        for pause_s in [2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            let pause = Duration::from_secs(pause_s);
            let just_before = now + pause - Duration::from_nanos(1);
            let mut changes = vec![change.clone()];
            assert!(!waiting.is_over(just_before));
            waiting.hold_back(&mut changes, just_before);
            assert_eq!((changes.len(), waiting.all().len()), (0, 1), "{pause:?}");
            // A change refused in the meantime waits for the same retry.
            waiting.add(vec![refused(&Change::Add(route(2, 116)))], just_before);

            now += pause;
            assert!(waiting.is_over(now));
            let mut changes = vec![change.clone()];
            waiting.hold_back(&mut changes, now);
            assert_eq!((changes.len(), waiting.all().len()), (1, 0), "{pause:?}");
            waiting.add(vec![refused(&change)], now);
        }
        now += PAUSE_MAX;
        waiting.hold_back(&mut vec![change.clone()], now);
        waiting.add(Vec::new(), now);
        assert!(!waiting.is_over(now + PAUSE_MAX));
        waiting.add(vec![refused(&change)], now);
        assert!(waiting.is_over(now + PAUSE_MIN));
    }

    #[test]
    fn only_refused_routes_wait() {
        let now = Instant::now();
        let (old, new) = (route(1, 116), route(1, 117));
        let of = |route: &Route| refused(&Change::Add(route.clone()));
        // Each case has the refused change, the change to make, and the number of changes held
        // back.
        let cases = [
            (of(&old), Change::Add(old.clone()), 1),
            (of(&old), Change::Add(new.clone()), 0),
            (of(&old), Change::Add(route(2, 116)), 0),
            (of(&new), Change::Replace { old: old.clone(), new }, 1),
            (refused(&Change::Remove(old.clone())), Change::Remove(old), 0),
        ];
        for (number, (refused, change, held)) in cases.into_iter().enumerate() {
            let mut waiting = Waiting::default();
            waiting.add(vec![refused], now);
            let mut changes = vec![change];
            waiting.hold_back(&mut changes, now);
            assert_eq!((changes.len(), waiting.all().len()), (1 - held, held), "{number}");
        }
    }

    #[test]
    fn route_waits_even_if_a_removal_of_the_prefix_was_refused() {
        let (now, mut waiting) = (Instant::now(), Waiting::default());
        let (old, new) = (route(1, 116), route(1, 117));
        let changes = [Change::Replace { old: old.clone(), new }, Change::Remove(old)];
        waiting.add(changes.iter().map(refused).collect(), now);
        let mut again = changes.to_vec();
        waiting.hold_back(&mut again, now);
        assert!(matches!(again[..], [Change::Remove(_)]), "{again:?}");
        assert!(matches!(waiting.all(), [Refused { change: Change::Replace { .. }, .. }]));
    }
}
