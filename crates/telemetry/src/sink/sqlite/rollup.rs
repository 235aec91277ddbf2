//! Aggregates: the key of the aggregate to which a record belongs, and the values that the record
//! adds. Pure.

use std::net::IpAddr;
use std::sync::Arc;

use thalweg_record::{Entry, Prefix, Record, ResponseRecord, Sketch, SocketRecord, Source};

/// Length of a window in seconds.
pub(super) const WINDOW_S: u64 = 300;
/// Minimum acknowledged bytes for a goodput sample. Smaller responses measure latency rather than
/// goodput.
const GOODPUT_BYTES_MIN: u64 = 100_000;
/// Maximum number of sums and of sketches per aggregate.
const SUMS_MAX: usize = 8;
const SKETCHES_MAX: usize = 3;

/// A table of aggregates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Rollup {
    Sockets,
    Responses,
}

impl Rollup {
    /// Returns the table name.
    pub(super) fn table(self) -> &'static str {
        match self {
            Self::Sockets => "sockets_5m",
            Self::Responses => "responses_5m",
        }
    }

    /// Returns the key columns.
    pub(super) fn keys(self) -> &'static [&'static str] {
        const KEYS: &[&str] =
            &["window", "pop", "prefix", "asn", "region", "congestion_control", "cache", "request_host"];
        match self {
            Self::Sockets => &KEYS[..6],
            Self::Responses => KEYS,
        }
    }

    /// Returns the sum columns.
    pub(super) fn sums(self) -> &'static [&'static str] {
        match self {
            Self::Sockets => &[
                "samples",
                "bytes_acked",
                "bytes_retrans",
                "segs_out",
                "retransmits",
                "busy_us",
                "rwnd_limited_us",
                "sndbuf_limited_us",
            ],
            Self::Responses => &["responses", "errors", "cut", "bytes"],
        }
    }

    /// Returns the sketch columns.
    pub(super) fn sketches(self) -> &'static [&'static str] {
        match self {
            Self::Sockets => &["delivery_rate", "rtt", "min_rtt"],
            Self::Responses => &["ttfb", "goodput"],
        }
    }
}

/// Aggregate key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) rollup: Rollup,
    /// Start of the window, in seconds since the Unix epoch.
    pub(super) window: u64,
    pub(super) pop: String,
    /// First address and prefix length of the client prefix.
    pub(super) network: (IpAddr, u8),
    pub(super) asn: u32,
    pub(super) region: Option<Arc<str>>,
    pub(super) congestion_control: String,
    pub(super) cache: &'static str,
    pub(super) request_host: String,
}

impl Key {
    /// Returns the key of an entry's aggregate; `None` for a loss.
    pub(super) fn of(source: &Source, entry: &Entry) -> Option<Self> {
        let prefix = entry.prefix()?;
        let (rollup, time_unix_us, congestion_control, cache, request_host) = match &entry.record {
            Record::Socket(record) => {
                (Rollup::Sockets, record.time_unix_us, record.congestion_control.as_deref(), "", "")
            }
            Record::Response(record) => {
                let congestion_control = record.tcp.as_ref().map(|tcp| tcp.congestion_control.as_str());
                let cache = record.cache.as_str();
                (Rollup::Responses, record.time_unix_us, congestion_control, cache, record.host.as_str())
            }
            Record::Loss(_) => return None,
        };
        Some(Self {
            rollup,
            window: time_unix_us / 1_000_000 / WINDOW_S * WINDOW_S,
            pop: source.pop.clone(),
            network: (prefix.first(), prefix.bits()),
            asn: entry.network.asn.unwrap_or(0),
            region: entry.network.region.clone(),
            congestion_control: congestion_control.unwrap_or_default().to_owned(),
            cache,
            request_host: request_host.to_owned(),
        })
    }

    /// Returns the client prefix as a string.
    pub(super) fn prefix(&self) -> String {
        Prefix::cut(self.network.0, self.network.1).to_string()
    }
}

/// An aggregate's values, in column order.
#[derive(Debug, Default)]
pub(super) struct Aggregate {
    pub(super) sums: [u64; SUMS_MAX],
    pub(super) sketches: [Sketch; SKETCHES_MAX],
    /// Whether the aggregate has changes not yet written to the file.
    pub(super) is_changed: bool,
}

impl Aggregate {
    /// Adds a record's values to the aggregate.
    pub(super) fn add(&mut self, record: &Record) {
        match record {
            Record::Socket(record) => self.add_socket(record),
            Record::Response(record) => self.add_response(record),
            Record::Loss(_) => {}
        }
    }

    fn add_socket(&mut self, record: &SocketRecord) {
        let counters = record.counters.clone().unwrap_or_default();
        self.add_sums([
            1,
            counters.bytes_acked,
            counters.bytes_retrans,
            counters.segs_out.into(),
            counters.retransmits.into(),
            counters.busy_us,
            counters.rwnd_limited_us,
            counters.sndbuf_limited_us,
        ]);
        let Some(gauges) = &record.gauges else { return };
        let [delivery_rate, rtt, min_rtt] = &mut self.sketches;
        if !gauges.delivery_rate_app_limited {
            delivery_rate.add(gauges.delivery_rate_bytes_per_s.unwrap_or(0));
        }
        rtt.add(gauges.rtt_us.into());
        min_rtt.add(gauges.min_rtt_us.unwrap_or(0).into());
    }

    fn add_response(&mut self, record: &ResponseRecord) {
        let (weight, is_whole) = (u64::from(record.weight()), record.cut.is_none());
        let sums = [1, (record.status >= 500).into(), (!is_whole).into(), record.bytes, 0, 0, 0, 0];
        self.add_sums(sums.map(|value: u64| value.saturating_mul(weight)));
        let [ttfb, goodput, _] = &mut self.sketches;
        ttfb.add_times(record.ttfb_us.unwrap_or(0), weight);
        if record.delivery.as_ref().is_some_and(|it| it.acked_bytes >= GOODPUT_BYTES_MIN) {
            record.goodput_bytes_per_s().into_iter().for_each(|rate| goodput.add_times(rate, weight));
        }
    }

    fn add_sums(&mut self, by: [u64; SUMS_MAX]) {
        self.sums.iter_mut().zip(by).for_each(|(sum, by)| *sum = sum.saturating_add(by));
    }
}
