//! What viewers have seen: histograms, counts, and what they do now. Those of several threads add up exactly.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::playhead::{Account, State};

/// Longest time that a histogram holds; longer ones count as this.
const TIME_US_MAX: u64 = 3_600_000_000;
/// Most that the throughput's histogram holds, in kbit/s.
const RATE_KBIT_PER_S_MAX: u64 = 1_000_000_000;
/// Significant digits of the histograms: within 0.1 %.
const DIGITS: u8 = 3;

/// A histogram of times.
#[derive(Debug, Clone)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, TIME_US_MAX, DIGITS).expect("sound bounds"))
    }
}

impl Times {
    /// Counts one; below a microsecond as one.
    pub fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1));
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The value that this share of them does not exceed; `None` if there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        (!self.0.is_empty()).then(|| Duration::from_micros(self.0.value_at_quantile(share)))
    }

    /// The longest; `None` if there are none.
    #[must_use]
    pub fn longest(&self) -> Option<Duration> {
        (!self.0.is_empty()).then(|| Duration::from_micros(self.0.max()))
    }

    /// The mean; `None` if there are none.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        (!self.0.is_empty()).then(|| Duration::from_secs_f64(self.0.mean() / 1e6))
    }

    fn add(&mut self, other: &Times) {
        self.0.add(&other.0).expect("the same bounds");
    }
}

/// A histogram of throughputs, in kbit/s.
#[derive(Debug, Clone)]
pub struct Rates(Histogram<u64>);

impl Default for Rates {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, RATE_KBIT_PER_S_MAX, DIGITS).expect("sound bounds"))
    }
}

impl Rates {
    /// Counts one transfer.
    pub fn record(&mut self, bytes: u64, time: Duration) {
        let kbit_per_s = bytes as f64 * 8e-3 / time.as_secs_f64().max(1e-6);
        self.0.saturating_record((kbit_per_s as u64).max(1));
    }

    /// The value that this share of them does not exceed, in kbit/s; `None` if there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(share))
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }
}

/// How many viewers are how far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    /// Not joined yet.
    pub waiting: u64,
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

/// Figures of some viewers.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Joining to first frame.
    pub startup: Times,
    /// Stalls that are over.
    pub stall: Times,
    /// Wall clock minus the time of the shown frame, of each playing viewer each second.
    pub live_latency: Times,
    /// The same within the last second.
    pub live_latency_now: Times,
    /// End of a request to the first byte of its response. At the live edge that includes the wait for the media.
    pub ttfb: Times,
    /// Between the last bytes of two chunks of one response.
    pub chunk_gap: Times,
    /// Of segments, the waits for chunks that did not exist yet left out.
    pub throughput: Rates,
    /// Requests that were answered.
    pub requests: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Segments that came whole.
    pub segments: u64,
    /// Chunks that came whole.
    pub chunks: u64,
    /// To a better track.
    pub switches_up: u64,
    /// To a worse one.
    pub switches_down: u64,
    /// Live viewers that fell out of the window and joined anew.
    pub rejoins: u64,
    /// By kind.
    pub errors: BTreeMap<String, u64>,
    /// What they do now.
    pub now: Now,
    /// All viewers' accounts in one; `stalls` beyond 2³² count as that.
    pub account: Account,
    /// Viewers that have stalled at least once.
    pub viewers_stalled: u64,
}

impl Figures {
    /// Counts an error.
    pub fn error(&mut self, kind: &str) {
        match self.errors.get_mut(kind) {
            Some(count) => *count += 1,
            None => drop(self.errors.insert(kind.to_owned(), 1)),
        }
    }

    /// Begins a look at all viewers: what is told of the present moment counts anew.
    pub fn begin_look(&mut self) {
        (self.now, self.account, self.viewers_stalled) = (Now::default(), Account::default(), 0);
        self.live_latency_now = Times::default();
    }

    /// Looks at one viewer that has joined.
    pub fn look(&mut self, state: State, account: &Account, latency: Option<Duration>) {
        match state {
            State::Starting => self.now.starting += 1,
            State::Playing => self.now.playing += 1,
            State::Stalled => self.now.stalled += 1,
            State::Ended => self.now.ended += 1,
        }
        self.look_back(account);
        if let Some(latency) = latency {
            self.live_latency.record(latency);
            self.live_latency_now.record(latency);
        }
    }

    /// Looks at one viewer that has given up: what it went through counts.
    pub fn look_at_gone(&mut self, account: &Account) {
        self.now.gone += 1;
        self.look_back(account);
    }

    fn look_back(&mut self, account: &Account) {
        self.add_account(account);
        self.viewers_stalled += u64::from(account.stalls > 0);
    }

    fn add_account(&mut self, other: &Account) {
        let account = &mut self.account;
        account.startup += other.startup;
        account.played += other.played;
        account.stalled += other.stalled;
        account.ended += other.ended;
        account.skipped = account.skipped.saturating_add(other.skipped);
        account.stalls = account.stalls.saturating_add(other.stalls);
    }

    /// Adds those of other viewers.
    pub fn add(&mut self, other: &Figures) {
        self.startup.add(&other.startup);
        self.stall.add(&other.stall);
        self.live_latency.add(&other.live_latency);
        self.live_latency_now.add(&other.live_latency_now);
        self.ttfb.add(&other.ttfb);
        self.chunk_gap.add(&other.chunk_gap);
        self.throughput.0.add(&other.throughput.0).expect("the same bounds");
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.segments += other.segments;
        self.chunks += other.chunks;
        self.switches_up += other.switches_up;
        self.switches_down += other.switches_down;
        self.rejoins += other.rejoins;
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        self.now.waiting += other.now.waiting;
        self.now.starting += other.now.starting;
        self.now.playing += other.now.playing;
        self.now.stalled += other.now.stalled;
        self.now.ended += other.now.ended;
        self.now.gone += other.now.gone;
        self.add_account(&other.account);
        self.viewers_stalled += other.viewers_stalled;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_add_up() {
        let account = Account { stalls: 2, stalled: Duration::from_secs(3), ..Account::default() };
        let mut one = Figures::default();
        one.look(State::Playing, &account, Some(Duration::from_millis(2000)));
        one.error("404");
        let mut all = one.clone();
        all.add(&one);
        assert_eq!((all.now.playing, all.account.stalls, all.viewers_stalled), (2, 4, 2));
        assert_eq!((all.errors["404"], all.live_latency.count()), (2, 2));
        let median = all.live_latency.quantile(0.5).unwrap();
        assert!(median.abs_diff(Duration::from_secs(2)) < Duration::from_millis(2), "{median:?}");
        all.begin_look();
        assert_eq!((all.now, all.live_latency.count(), all.live_latency_now.count()), (Now::default(), 2, 0));
    }
}
