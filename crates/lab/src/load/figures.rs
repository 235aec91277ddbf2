//! What was measured: times as HDR histograms in microseconds, counters, and counts of each second.
//!
//! **Invariant:** a merge is exact: the figures of several processes merged, in any order, are those that one process would
//! have had. Everything here is a sum, a least or a greatest.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::ErrorKind;

/// Longer times count as this one.
pub const TIME_US_MAX: u64 = 3_600_000_000;
/// Significant digits of a time: it is told to 0.1 %.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// The kinds of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Time {
    /// A TCP connection, from `connect` to established.
    Connect,
    /// A TLS handshake.
    Tls,
    /// From the last byte of the request to the first of the response; under an open model from when the request was due.
    Ttfb,
    /// To the last byte of the content, from the start of the request, with the connection if it needed a new one; under an open
    /// model from when it was due.
    Ttlb,
    /// Between the ends of two chunks of one response.
    ChunkGap,
    /// Wall clock minus the time of the shown frame.
    LiveLatency,
    /// From play to the first frame.
    Startup,
    /// One stall.
    Stall,
}

impl Time {
    /// All of them, in the order in which they are printed.
    pub const ALL: [Time; 8] = [
        Time::Connect,
        Time::Tls,
        Time::Ttfb,
        Time::Ttlb,
        Time::ChunkGap,
        Time::LiveLatency,
        Time::Startup,
        Time::Stall,
    ];

    /// As in JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            Time::Connect => "connect",
            Time::Tls => "tls",
            Time::Ttfb => "ttfb",
            Time::Ttlb => "ttlb",
            Time::ChunkGap => "chunk_gap",
            Time::LiveLatency => "live_latency",
            Time::Startup => "startup",
            Time::Stall => "stall",
        }
    }
}

/// What happened in one second of the clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// Requests that ended.
    pub requests: u64,
    /// Bytes of content that arrived.
    pub content_bytes: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Clients there were.
    pub clients: u64,
}

/// When the figures were taken, in Unix time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// The beginning.
    pub begin_us: u64,
    /// The end.
    pub end_us: u64,
}

/// The figures of a run, or of several.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// What was measured; `None` until something was.
    pub period: Option<Period>,
    /// Processes that took them.
    pub processes: u64,
    /// The most clients that there were at once, summed over processes.
    pub clients: u64,
    /// Requests that began.
    pub begun: u64,
    /// Requests that ended, with or without an error. Those that began and did not end are in progress, or were when time was up.
    pub requests: u64,
    /// Requests that an open model had due and no client was free for before time was up.
    pub unsent: u64,
    /// Idle connections that the server had closed; their requests were sent once more.
    pub reconnects: u64,
    /// Bytes of content that arrived, those of broken responses as well.
    pub content_bytes: u64,
    /// Processor time of the generator, user and system.
    pub cpu_us: u64,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests that ended in an error, by kind.
    pub errors: BTreeMap<ErrorKind, u64>,
    /// Of each kind of error the first: when, in Unix time in microseconds, and what.
    pub examples: BTreeMap<ErrorKind, (u64, String)>,
    /// Times, only kinds that were recorded.
    pub times: BTreeMap<Time, Histogram<u64>>,
    /// Counts by second of Unix time.
    pub seconds: BTreeMap<u64, Second>,
}

/// What each histogram begins as; making one takes some arithmetic.
static EMPTY: LazyLock<Histogram<u64>> = LazyLock::new(|| {
    Histogram::new_with_bounds(1, TIME_US_MAX, SIGNIFICANT_DIGITS).expect("the bounds are within the crate's")
});

impl Figures {
    /// Counts a time; zero is a time like any other.
    pub fn record(&mut self, time: Time, value_us: u64) {
        self.times.entry(time).or_insert_with(|| EMPTY.clone()).saturating_record(value_us);
    }

    /// Counts a request that ended in an error, at `at_us` of Unix time.
    pub fn fail(&mut self, kind: ErrorKind, at_us: u64, detail: &str) {
        *self.errors.entry(kind).or_default() += 1;
        self.offer_example(kind, at_us, detail);
    }

    fn offer_example(&mut self, kind: ErrorKind, at_us: u64, detail: &str) {
        let is_first =
            self.examples.get(&kind).is_none_or(|(first_us, first)| (at_us, detail) < (*first_us, first));
        if is_first {
            self.examples.insert(kind, (at_us, detail.to_owned()));
        }
    }

    /// Requests that ended in an error.
    pub fn errors_total(&self) -> u64 {
        self.errors.values().sum()
    }

    /// How long was measured, in seconds.
    pub fn measured_s(&self) -> f64 {
        self.period.map_or(0.0, |period| period.end_us.saturating_sub(period.begin_us) as f64 / 1e6)
    }

    /// The times of that kind, if there were any.
    pub fn time(&self, time: Time) -> Option<&Histogram<u64>> {
        self.times.get(&time)
    }

    /// Puts the figures of another in with these.
    ///
    /// # Panics
    /// If a histogram has other bounds than [`record`](Self::record) makes: reading one from text refuses it.
    pub fn merge(&mut self, other: &Figures) {
        self.period = match (self.period, other.period) {
            (Some(one), Some(two)) => {
                Some(Period { begin_us: one.begin_us.min(two.begin_us), end_us: one.end_us.max(two.end_us) })
            }
            (one, two) => one.or(two),
        };
        self.processes += other.processes;
        self.clients += other.clients;
        self.begun += other.begun;
        self.requests += other.requests;
        self.unsent += other.unsent;
        self.reconnects += other.reconnects;
        self.content_bytes += other.content_bytes;
        self.cpu_us += other.cpu_us;
        add(&mut self.statuses, &other.statuses);
        add(&mut self.errors, &other.errors);
        for (kind, (at_us, detail)) in &other.examples {
            self.offer_example(*kind, *at_us, detail);
        }
        for (time, histogram) in &other.times {
            let into = self.times.entry(*time).or_insert_with(|| EMPTY.clone());
            into.add(histogram).expect("all histograms have the same bounds");
        }
        for (second, counts) in &other.seconds {
            let into = self.seconds.entry(*second).or_default();
            into.requests += counts.requests;
            into.content_bytes += counts.content_bytes;
            into.errors += counts.errors;
            into.clients += counts.clients;
        }
    }
}

fn add<K: Ord + Copy>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (key, count) in from {
        *into.entry(*key).or_default() += count;
    }
}
