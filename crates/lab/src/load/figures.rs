//! What was measured: times as HDR histograms in microseconds, counters, and counts of each second.
//!
//! **Invariant:** a merge is exact: the figures of several processes merged, in any order, are those that one process would
//! have had. Everything here is a sum, a least, a greatest or a union, and what happened in a second is counted in that second.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::ErrorKind;
use crate::viewer::figures::Viewers;

/// Longer times count as this one.
pub const TIME_US_MAX: u64 = 3_600_000_000;
/// Higher goodput counts as this one, in kbit/s.
pub const GOODPUT_KBIT_PER_S_MAX: u64 = 1_000_000_000;
/// Significant digits of all histograms: they are right to 0.1 %.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// The kinds of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Time {
    /// A TCP connection, from `connect` to established.
    Connect,
    /// A TLS handshake.
    Tls,
    /// Under an open model: from when a request was due to when a client was free to send it.
    Lateness,
    /// From the last byte of the request to the first of the response.
    Ttfb,
    /// To the last byte of the content, from the start of the request, with the connection if it needed a new one; under an open
    /// model from when it was due, also of those that were not answered, up to the end of the run.
    Ttlb,
    /// Between the ends of two chunks of one response: of the chunked coding, for viewers CMAF chunks.
    ChunkGap,
    /// Of a viewer: from joining to the first frame, or to the end of the run.
    Startup,
    /// Of a viewer: one stall, at the end of the run as long as it was by then.
    Stall,
    /// Of a viewer that has begun, each second: wall clock minus the time of the shown frame.
    LiveLatency,
}

impl Time {
    /// All of them, in the order in which they are printed.
    pub const ALL: [Time; 9] = [
        Time::Connect,
        Time::Tls,
        Time::Lateness,
        Time::Ttfb,
        Time::Ttlb,
        Time::ChunkGap,
        Time::Startup,
        Time::Stall,
        Time::LiveLatency,
    ];

    /// As in JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            Time::Connect => "connect",
            Time::Tls => "tls",
            Time::Lateness => "lateness",
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
    /// Clients that began.
    pub clients_begun: u64,
    /// Clients that had nothing more to do.
    pub clients_ended: u64,
}

/// What clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Each asks again when it has been answered.
    Closed,
    /// Requests are due at a rate.
    Open,
    /// Each watches a presentation.
    Viewers,
}

/// What one process was told to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// What clients do.
    pub model: Model,
    /// What they ask for.
    pub urls: Vec<String>,
    /// The command line behind the program's name.
    pub arguments: Vec<String>,
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
    /// The runs that they are of, by a number at random.
    pub runs: BTreeMap<u64, Run>,
    /// What was measured; `None` until something was.
    pub period: Option<Period>,
    /// Clients that have begun.
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
    /// Requests that ended in an error, and what viewers could make nothing of, by kind.
    pub errors: BTreeMap<ErrorKind, u64>,
    /// Of each kind of error the first: when, in Unix time in microseconds, and what.
    pub examples: BTreeMap<ErrorKind, (u64, String)>,
    /// Times, only kinds that were recorded.
    pub times: BTreeMap<Time, Histogram<u64>>,
    /// Of viewers' segments, in kbit/s; waits for chunks that were not there yet left out.
    pub goodput: Option<Histogram<u64>>,
    /// Counts by second of Unix time.
    pub seconds: BTreeMap<u64, Second>,
    /// What viewers did; `None` if there were none.
    pub viewers: Option<Viewers>,
}

/// What each histogram begins as; making one takes some arithmetic.
static EMPTY: LazyLock<Histogram<u64>> = LazyLock::new(|| histogram(TIME_US_MAX));
/// The same for goodput.
static EMPTY_GOODPUT: LazyLock<Histogram<u64>> = LazyLock::new(|| histogram(GOODPUT_KBIT_PER_S_MAX));

fn histogram(most: u64) -> Histogram<u64> {
    Histogram::new_with_bounds(1, most, SIGNIFICANT_DIGITS).expect("the bounds are within the crate's")
}

impl Model {
    /// As in JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            Model::Closed => "closed",
            Model::Open => "open",
            Model::Viewers => "viewers",
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Figures {
    /// Counts a time; zero is a time like any other.
    pub fn record(&mut self, time: Time, value_us: u64) {
        self.times.entry(time).or_insert_with(|| EMPTY.clone()).saturating_record(value_us);
    }

    /// Counts so many times of that length.
    pub fn record_n(&mut self, time: Time, value_us: u64, count: u64) {
        self.times.entry(time).or_insert_with(|| EMPTY.clone()).saturating_record_n(value_us, count);
    }

    /// Counts what came of a segment.
    pub fn record_goodput(&mut self, kbit_per_s: u64) {
        self.goodput.get_or_insert_with(|| EMPTY_GOODPUT.clone()).saturating_record(kbit_per_s);
    }

    /// The counts of a second of Unix time.
    pub fn second(&mut self, unix_s: u64) -> &mut Second {
        self.seconds.entry(unix_s).or_default()
    }

    /// Counts an error, at `at_us` of Unix time.
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

    /// Clients that are there.
    pub fn clients_now(&self) -> u64 {
        let ended = self.seconds.values().map(|second| second.clients_ended).sum();
        self.clients.saturating_sub(ended)
    }

    /// Errors of all kinds.
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

    /// Whether the figures of other runs can be put in with these.
    ///
    /// # Errors
    /// In words: a run is in both, they ran at other times, or they are of other models, whose times mean something else.
    pub fn check_merge(&self, other: &Figures) -> Result<(), String> {
        if let Some(run) = other.runs.keys().find(|run| self.runs.contains_key(run)) {
            return Err(format!("run {run:016x} is there twice"));
        }
        if let (Some(one), Some(two)) = (self.period, other.period)
            && (one.end_us < two.begin_us || two.end_us < one.begin_us)
        {
            return Err("they did not run at the same time".to_owned());
        }
        let model = |figures: &Figures| figures.runs.values().next().map(|run| run.model);
        match (model(self), model(other)) {
            (Some(one), Some(two)) if one != two => {
                Err(format!("clients of the {one} model and the {two} model do not measure the same"))
            }
            _ => Ok(()),
        }
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
        self.runs.extend(other.runs.iter().map(|(number, run)| (*number, run.clone())));
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
        if let Some(goodput) = &other.goodput {
            let into = self.goodput.get_or_insert_with(|| EMPTY_GOODPUT.clone());
            into.add(goodput).expect("all histograms have the same bounds");
        }
        for (second, counts) in &other.seconds {
            let into = self.second(*second);
            into.requests += counts.requests;
            into.content_bytes += counts.content_bytes;
            into.errors += counts.errors;
            into.clients_begun += counts.clients_begun;
            into.clients_ended += counts.clients_ended;
        }
        if let Some(viewers) = &other.viewers {
            self.viewers.get_or_insert_default().add(viewers);
        }
    }
}

fn add<K: Ord + Copy>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (key, count) in from {
        *into.entry(*key).or_default() += count;
    }
}
