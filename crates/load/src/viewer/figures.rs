//! Viewer totals, which can be added exactly across threads and processes.

use serde::{Deserialize, Serialize};

use super::playhead::{Account, State};
use crate::micros;

/// Number of viewers in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCounts {
    /// Viewers waiting for the first frame.
    pub starting: u64,
    /// Viewers showing frames.
    pub playing: u64,
    /// Viewers waiting for media after the first frame.
    pub stalled: u64,
    /// Viewers that finished the presentation.
    pub ended: u64,
    /// Viewers that gave up after too many consecutive errors.
    pub gone: u64,
}

/// Times since joining, summed over all viewers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Time from joining to the first frame.
    pub startup_us: u64,
    /// Time spent playing.
    pub played_us: u64,
    /// Time spent stalled.
    pub stalled_us: u64,
    /// Duration of media skipped because it never arrived.
    pub skipped_us: u64,
    /// Number of stalls.
    pub stalls: u64,
    /// Viewers with at least one stall.
    pub viewers_stalled: u64,
}

/// Viewer totals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Viewers {
    /// States at the last sample.
    pub now: StateCounts,
    /// Times summed over all viewers.
    pub totals: Totals,
    /// Number of complete segments.
    pub segments: u64,
    /// Number of complete CMAF chunks.
    pub chunks: u64,
    /// Number of switches to a better track.
    pub switches_up: u64,
    /// Number of switches to a worse track.
    pub switches_down: u64,
    /// Number of times a live viewer fell out of the DVR window and rejoined.
    pub rejoins: u64,
}

impl Totals {
    /// Returns the stall ratio, stalled / (stalled + played), or 0 before the first frame of any
    /// viewer.
    #[must_use]
    pub fn stall_ratio(&self) -> f64 {
        match self.stalled_us.saturating_add(self.played_us) {
            0 => 0.0,
            whole => self.stalled_us as f64 / whole as f64,
        }
    }
}

impl Viewers {
    /// Starts a new sample of all viewers by resetting states and times.
    pub fn begin_sample(&mut self) {
        (self.now, self.totals) = (StateCounts::default(), Totals::default());
    }

    /// Adds one viewer to the sample. A state of `None` means that the viewer gave up; its times
    /// still count.
    pub fn add_viewer(&mut self, state: Option<State>, account: &Account) {
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

    /// Adds other viewers' totals.
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
    fn samples_start_from_zero_and_totals_add_up() {
        let account = Account { stalls: 2, stalled: Duration::from_secs(3), ..Account::default() };
        let mut one = Viewers { chunks: 5, ..Viewers::default() };
        for _ in 0..2 {
            one.begin_sample();
            one.add_viewer(Some(State::Playing), &account);
            one.add_viewer(None, &account);
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
