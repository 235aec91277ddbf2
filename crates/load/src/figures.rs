//! Measurements: times as HDR histograms in microseconds, counters, and counts per second.
//!
//! **Invariant:** merging is exact: the figures of several processes, merged in any order, equal
//! those of a single process with the same measurements. Every value is a sum, minimum, maximum or
//! union, and each event is counted in the second in which it occurred.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::ErrorKind;
use crate::coarse::CoarseHistogram;
use crate::viewer::figures::Viewers;

/// Maximum recorded time; longer times count as this value.
pub const TIME_US_MAX: u64 = 3_600_000_000;
/// Maximum recorded goodput; higher goodput counts as this value.
pub const GOODPUT_KBIT_PER_S_MAX: u64 = 1_000_000_000;
/// Significant decimal digits of all histograms, which limit the error to 0.1 %.
pub const SIGNIFICANT_DIGITS: u8 = 3;

named! {
    /// Kinds of times.
    pub enum Time {
        /// TCP handshake, from `connect` until the connection is established.
        Connect = "connect",
        /// TLS handshake.
        Tls = "tls",
        /// In the open model: from a request's due time until a client was free to send it.
        Lateness = "lateness",
        /// From the last byte of the request to the first byte of the response.
        Ttfb = "ttfb",
        /// From the start of the request, including any connection setup, to the last content byte.
        /// In the open model, from the request's due time; for requests without a complete
        /// response, to the end of the run.
        Ttlb = "ttlb",
        /// For a viewer: TTLB of a manifest, an MPD or a playlist.
        Manifest = "manifest",
        /// For a viewer: TTLB of a segment, or of a range of it.
        Segment = "segment",
        /// Between the ends of two consecutive chunks in a response: CMAF chunks for viewers,
        /// otherwise chunks of the chunked coding.
        ChunkGap = "chunk_gap",
        /// For a viewer: from joining to the first frame or, if it never appears, to the end of the
        /// run.
        Startup = "startup",
        /// For a viewer: one stall; an unfinished stall counts until the end of the run.
        Stall = "stall",
        /// For a viewer that has started, sampled every second: wall clock minus the time of the
        /// shown frame.
        LiveLatency = "live_latency",
    }
}

/// Counts in one second of the wall clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// Requests that completed, with or without an error.
    pub requests: u64,
    /// Content bytes received.
    pub content_bytes: u64,
    /// Failed requests and unusable responses.
    pub errors: u64,
    /// Clients that started.
    pub clients_begun: u64,
    /// Clients that finished.
    pub clients_ended: u64,
    /// TTFB of the responses that completed, in microseconds. Absent from the JSON of earlier
    /// releases.
    #[serde(default, rename = "ttfb_us", skip_serializing_if = "CoarseHistogram::is_empty")]
    pub ttfb: CoarseHistogram,
}

named! {
    /// Load models.
    pub enum Model {
        /// Each client sends its next request when the previous one has completed.
        Closed = "closed",
        /// Requests are due at a fixed rate.
        Open = "open",
        /// Each client watches a presentation.
        Viewers = "viewers",
    }
}

/// Description of one process's run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Load model.
    pub model: Model,
    /// The requested URLs.
    pub urls: Vec<String>,
    /// The command-line arguments.
    pub arguments: Vec<String>,
}

/// The measured period, in Unix time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// Start of the period.
    pub begin_us: u64,
    /// End of the period.
    pub end_us: u64,
}

/// Figures of one run, or of several merged runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Runs, each identified by a random number.
    pub runs: BTreeMap<u64, Run>,
    /// The measured period; `None` before measuring starts.
    pub period: Option<Period>,
    /// Clients that started.
    pub clients: u64,
    /// Requests that started.
    pub begun: u64,
    /// Requests that completed, with or without an error. The other started requests were in flight
    /// when time was up.
    pub requests: u64,
    /// Requests that were due in the open model but were not sent, because no client was free
    /// before time was up.
    pub unsent: u64,
    /// Requests retried because the server had closed their idle connection.
    pub reconnects: u64,
    /// Content bytes received, including those of failed responses.
    pub content_bytes: u64,
    /// User and system CPU time of the load generator.
    pub cpu_us: u64,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Failed requests and unusable responses, by kind.
    pub errors: BTreeMap<ErrorKind, u64>,
    /// First error of each kind: Unix time in microseconds, and description.
    pub examples: BTreeMap<ErrorKind, (u64, String)>,
    /// Recorded times by kind.
    pub times: BTreeMap<Time, Histogram<u64>>,
    /// Goodput of viewers' segments in kbit/s, excluding waits for chunks that were not available
    /// yet.
    pub goodput: Option<Histogram<u64>>,
    /// Counts per second of Unix time.
    pub seconds: BTreeMap<u64, Second>,
    /// Viewer totals; `None` without viewers.
    pub viewers: Option<Viewers>,
}

/// Template for time histograms; cloning it is cheaper than building a histogram.
static EMPTY: LazyLock<Histogram<u64>> = LazyLock::new(|| histogram(TIME_US_MAX));
/// Template for goodput histograms.
static EMPTY_GOODPUT: LazyLock<Histogram<u64>> = LazyLock::new(|| histogram(GOODPUT_KBIT_PER_S_MAX));

fn histogram(most: u64) -> Histogram<u64> {
    Histogram::new_with_bounds(1, most, SIGNIFICANT_DIGITS).expect("histogram bounds are valid")
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Figures {
    /// Records a time in microseconds; zero is valid.
    pub fn record(&mut self, time: Time, value_us: u64) {
        self.times.entry(time).or_insert_with(|| EMPTY.clone()).saturating_record(value_us);
    }

    /// Records a time in microseconds `count` times.
    pub fn record_n(&mut self, time: Time, value_us: u64, count: u64) {
        self.times.entry(time).or_insert_with(|| EMPTY.clone()).saturating_record_n(value_us, count);
    }

    /// Records the goodput of a segment.
    pub fn record_goodput(&mut self, kbit_per_s: u64) {
        self.goodput.get_or_insert_with(|| EMPTY_GOODPUT.clone()).saturating_record(kbit_per_s);
    }

    /// Returns the counts of second `unix_s` of Unix time.
    pub fn second(&mut self, unix_s: u64) -> &mut Second {
        self.seconds.entry(unix_s).or_default()
    }

    /// Counts an error that occurred at Unix time `at_us`.
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

    /// Returns the number of clients currently running.
    pub fn clients_now(&self) -> u64 {
        let ended = self.seconds.values().map(|second| second.clients_ended).sum();
        self.clients.saturating_sub(ended)
    }

    /// Returns the number of errors of all kinds.
    pub fn errors_total(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Returns the length of the measured period in seconds.
    pub fn measured_s(&self) -> f64 {
        self.period.map_or(0.0, |period| period.end_us.saturating_sub(period.begin_us) as f64 / 1e6)
    }

    /// Returns the recorded times of one kind, if any.
    pub fn time(&self, time: Time) -> Option<&Histogram<u64>> {
        self.times.get(&time)
    }

    /// Checks that `other` can be merged into these figures.
    ///
    /// # Errors
    ///
    /// Returns an error if both contain the same run, if their periods do not overlap, or if their
    /// load models differ, so that their times are not comparable.
    pub fn check_merge(&self, other: &Figures) -> Result<(), String> {
        if let Some(run) = other.runs.keys().find(|run| self.runs.contains_key(run)) {
            return Err(format!("run {run:016x} has already been merged"));
        }
        if let (Some(one), Some(two)) = (self.period, other.period)
            && (one.end_us < two.begin_us || two.end_us < one.begin_us)
        {
            return Err("the runs do not overlap in time".to_owned());
        }
        let model = |figures: &Figures| figures.runs.values().next().map(|run| run.model);
        match (model(self), model(other)) {
            (Some(one), Some(two)) if one != two => {
                Err(format!("times of the {one} model and the {two} model are not comparable"))
            }
            _ => Ok(()),
        }
    }

    /// Merges `other` into these figures.
    ///
    /// # Panics
    ///
    /// Panics if a histogram's bounds differ from those used by [`record`](Self::record); parsing
    /// figures rejects such histograms.
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
            into.ttfb.merge(&counts.ttfb);
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
