//! What viewers have seen, in numbers. Those of several threads and processes add up exactly.

use serde::{Deserialize, Serialize};

use super::playhead::{Account, State};
use crate::load::micros;

/// How many viewers are how far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// Wait for their first frame.
    pub starting: u64,
    /// Show frames.
    pub playing: u64,
    /// Wait for media.
    pub stalled: u64,
    /// Have seen the end.
    pub ended: u64,
    /// Have given up, after too many errors in a row.
    pub gone: u64,
}

/// What became of the time since they joined, of all viewers together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// From joining to the first frame.
    pub startup_us: u64,
    /// While frames were shown.
    pub played_us: u64,
    /// While media was waited for after the first frame.
    pub stalled_us: u64,
    /// Media time that was jumped over, as it never came.
    pub skipped_us: u64,
    /// How often a buffer ran empty.
    pub stalls: u64,
    /// Viewers that have stalled at least once.
    pub viewers_stalled: u64,
}

/// What viewers did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Viewers {
    /// What they did last.
    pub now: Now,
    /// All their time.
    pub totals: Totals,
    /// Segments that came whole.
    pub segments: u64,
    /// CMAF chunks that came whole.
    pub chunks: u64,
    /// To a better track.
    pub switches_up: u64,
    /// To a worse one.
    pub switches_down: u64,
    /// Live viewers that fell out of the window and joined anew.
    pub rejoins: u64,
}

impl Totals {
    /// stalled / (stalled + played); 0 before any first frame.
    #[must_use]
    pub fn stall_ratio(&self) -> f64 {
        match self.stalled_us.saturating_add(self.played_us) {
            0 => 0.0,
            whole => self.stalled_us as f64 / whole as f64,
        }
    }
}

impl Viewers {
    /// Begins a look at all viewers: what is told of them counts anew.
    pub fn begin_look(&mut self) {
        (self.now, self.totals) = (Now::default(), Totals::default());
    }

    /// Looks at one viewer that has joined; without a state it has given up, and what it went through still counts.
    pub fn look(&mut self, state: Option<State>, account: &Account) {
        match state {
            Some(State::Starting) => self.now.starting += 1,
            Some(State::Playing) => self.now.playing += 1,
            Some(State::Stalled) => self.now.stalled += 1,
            Some(State::Ended) => self.now.ended += 1,
            None => self.now.gone += 1,
        }
        let totals = &mut self.totals;
        totals.startup_us = totals.startup_us.saturating_add(micros(account.startup));
        totals.played_us = totals.played_us.saturating_add(micros(account.played));
        totals.stalled_us = totals.stalled_us.saturating_add(micros(account.stalled));
        totals.skipped_us = totals.skipped_us.saturating_add(micros(account.skipped));
        totals.stalls += u64::from(account.stalls);
        totals.viewers_stalled += u64::from(account.stalls > 0);
    }

    /// Adds those of other viewers.
    pub fn add(&mut self, other: &Viewers) {
        let pairs = [
            (&mut self.now.starting, other.now.starting),
            (&mut self.now.playing, other.now.playing),
            (&mut self.now.stalled, other.now.stalled),
            (&mut self.now.ended, other.now.ended),
            (&mut self.now.gone, other.now.gone),
            (&mut self.totals.startup_us, other.totals.startup_us),
            (&mut self.totals.played_us, other.totals.played_us),
            (&mut self.totals.stalled_us, other.totals.stalled_us),
            (&mut self.totals.skipped_us, other.totals.skipped_us),
            (&mut self.totals.stalls, other.totals.stalls),
            (&mut self.totals.viewers_stalled, other.totals.viewers_stalled),
            (&mut self.segments, other.segments),
            (&mut self.chunks, other.chunks),
            (&mut self.switches_up, other.switches_up),
            (&mut self.switches_down, other.switches_down),
            (&mut self.rejoins, other.rejoins),
        ];
        for (into, count) in pairs {
            *into = into.saturating_add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn looks_count_anew_and_threads_add_up() {
        let account = Account { stalls: 2, stalled: Duration::from_secs(3), ..Account::default() };
        let mut one = Viewers { chunks: 5, ..Viewers::default() };
        for _ in 0..2 {
            one.begin_look();
            one.look(Some(State::Playing), &account);
            one.look(None, &account);
        }
        assert_eq!(
            (one.now.playing, one.now.gone, one.totals.stalls, one.totals.viewers_stalled),
            (1, 1, 4, 2)
        );
        let mut all = one;
        all.add(&one);
        assert_eq!((all.now.playing, all.totals.stalled_us, all.chunks), (2, 12_000_000, 10));
        assert!((all.totals.stall_ratio() - 1.0).abs() < 1e-9);
    }
}
