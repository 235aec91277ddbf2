//! Response record: the edge's measurements of one response, the connection state at its end, the
//! effect of steering, and the player's report.
//!
//! To add a field, see `field.rs`.
//!
//! **Invariant:** derived values are not stored. Goodput is computed from acknowledged bytes and
//! busy time when a record is encoded, so that readers need not compute it.
//! **Invariant:** [`TcpState`] is never estimated: it is the kernel's data at the end of the
//! response, or absent.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use crate::Lines;

/// Version of the response records written and read by this crate: field `v` of the JSON line. The
/// version changes if a field is removed or changes its meaning. A new field does not change it,
/// because readers ignore unknown fields.
pub const SCHEMA_VERSION: u32 = 2;

/// Time limited by the receive window may be at most one part in this many of the remaining busy
/// time.
const RWND_LIMITED_DIVISOR: u64 = 4;
/// Minimum busy time of a kernel's counter that yields a rate, in microseconds. The kernel counts
/// busy time in ticks of up to 10 ms.
pub const KERNEL_BUSY_US_MIN: u64 = 40_000;

/// Maximum number of clients for which a sampled one can stand. A record that claims more counts as
/// this many.
pub const SAMPLE_ONE_IN_MAX: u32 = 1_000;

message! {
    /// A response sent by the edge.
    pub struct ResponseRecord as "Response" version SCHEMA_VERSION {
        /// When the last byte of the request head arrived, in microseconds since the Unix epoch;
        /// rounded down to milliseconds in the JSON line.
        pub time_unix_us: u64 = 2, time, json("time"), no_column;
        /// Client address and port; never IPv4-mapped, even on a dual-stack listener.
        pub client: SocketAddr = 3;
        /// Request method.
        pub method: Cow<'static, str> = 5;
        /// `Host` field as received; empty if the request had none.
        pub host: String = 6, column("request_host");
        /// Path and query as received.
        pub path: String = 7, text;
        /// Status code sent, or the one that would have been sent if the client had not
        /// disconnected.
        pub status: u16 = 8;
        /// Content bytes handed to the kernel, excluding the head and chunk framing.
        pub bytes: u64 = 9;
        /// Time from the last byte of the request to the first byte of the response; absent if no
        /// byte was sent.
        pub ttfb_us: Option<u64> = 10;
        /// Time from the last byte of the request until the kernel took the last byte of the
        /// response, or until the cut. The client receives that byte later: see `delivery`.
        pub written_us: u64 = 11;
        let goodput_bytes_per_s: Option<u64> = Self::goodput_bytes_per_s, " Acknowledged bytes per second of busy time; absent if the delivery was not measured.";
        /// Cache result.
        pub cache: CacheResult = 12;
        /// Short reason for the cache result; absent if the result needs none.
        pub detail: Option<Cow<'static, str>> = 13;
        /// Last backend chosen for this request itself; absent without a policy, or if no backend
        /// was chosen.
        pub backend: Option<String> = 14;
        /// Protocol of the response.
        pub protocol: Protocol = 15;
        let complete: bool = Self::is_complete, " Whether the whole response was sent.", no_column;
        /// Why the response was cut; absent if it was complete.
        pub cut: Option<Cut> = 16;
        /// Connection state at the end of the response; absent if the kernel provided none.
        pub tcp: Option<TcpState> = 17, column("");
        /// What a bundle assigned to the connection; absent if nothing.
        pub steered: Option<Steered> = 18, column("");
        /// The player's report in the request; absent if the request contained none.
        pub cmcd: Option<Cmcd> = 19, column("cmcd_");
        /// Request number assigned by the policy; absent without a policy.
        pub xid: Option<u64> = 20, id;
        /// Number of times the policy restarted the request, keeping its `xid`.
        pub restarts: u32 = 21, sparse;
        /// Lines logged by the policy.
        pub lines: Lines = 22;
        /// What the client's kernel acknowledged of the response; absent if the response was too
        /// small to be measured.
        pub delivery: Option<Delivery> = 24, column("");
        /// Sampling ratio: the edge records the responses of one in this many clients, so this
        /// response represents that many. Absent if the edge records all responses.
        pub sample_one_in: Option<NonZeroU32> = 25;
    }
}

message! {
    /// The kernel's data on the connection at the end of the response.
    #[derive(Default)]
    pub struct TcpState as "Tcp" {
        /// Congestion control algorithm, as read back from the socket.
        pub congestion_control: String = 1;
        /// Congestion control algorithm chosen by the kernel when it accepted the connection;
        /// absent in older records.
        pub congestion_control_start: Option<String> = 2;
        /// What last decided the congestion control; absent in older records.
        pub decider: Option<Decider> = 3;
        /// `tcpi_rtt`: smoothed round-trip time.
        pub rtt_us: u32 = 4;
        /// `tcpi_min_rtt`: minimum round-trip time; absent before the first sample and before Linux
        /// 4.6.
        pub min_rtt_us: Option<u32> = 5;
        /// `tcpi_snd_cwnd`: congestion window, in TCP segments.
        pub snd_cwnd: u32 = 6;
        /// `tcpi_delivery_rate`: latest delivery rate sample; absent before Linux 4.9.
        pub delivery_rate_bytes_per_s: Option<u64> = 7;
        /// `tcpi_total_retrans`: TCP segments retransmitted over the connection's lifetime.
        pub retransmits: u32 = 8;
        /// `tcpi_lost`: TCP segments in flight that are presumed lost.
        pub lost: u32 = 9;
        /// `tcpi_pacing_rate`: pacing rate; absent if unlimited.
        pub pacing_rate_bytes_per_s: Option<u64> = 10;
        /// `tcpi_delivery_rate_app_limited`: whether the delivery rate sample was limited by the
        /// application, not by the network; absent in older records.
        pub delivery_rate_app_limited: Option<bool> = 11;
    }
}

message! {
    /// What the client's kernel acknowledged of a response, and when.
    #[derive(Default)]
    pub struct Delivery as "Delivery" {
        /// Content bytes that the client's kernel acknowledged.
        pub acked_bytes: u64 = 1;
        /// Time from the last byte of the request to the acknowledgement of the last byte of the
        /// response; absent if the response is censored: cut, or not acknowledged to its end
        /// before the connection closed.
        pub acked_us: Option<u64> = 2;
        /// Time during which the response had unacknowledged bytes and room in the client's receive
        /// window. For a response that waited for content, the connection's busy time as counted by
        /// the kernel, less `rwnd_limited_us`.
        pub busy_us: Option<u64> = 3;
        /// The highest rate that the response could have shown, given its size, the congestion
        /// window at its start, and the minimum round-trip time; absent if one is unknown.
        pub testable_bytes_per_s: Option<u64> = 4;
        /// Whether the response reached 2.5 Mbit/s; absent if that rate was not testable.
        pub reached_hd: Option<bool> = 5;
        /// Whether the response waited for content, from a backend or a live source.
        pub is_source_limited: bool = 6, json("source_limited"), sparse;
        /// Time during which the client's receive window held the response back, because the client
        /// read slowly; not part of `busy_us`. Absent if zero or unknown, and in older records.
        pub rwnd_limited_us: Option<u64> = 7;
    }
}

message! {
    /// What a bundle assigned to a connection, from the first response that was large enough. It
    /// took effect only if `decider` names it.
    #[derive(Default)]
    pub struct Steered as "Steered" {
        /// Bundle number.
        pub bundle: u64 = 1, id;
        /// Prefix of the matching rule; absent if no rule matched.
        pub rule: Option<String> = 2;
        /// Whether the connection was held out from the rule, for comparison.
        pub is_holdout: bool = 3, json("holdout"), sparse;
        /// Experiment that includes the connection; absent if none does.
        pub experiment: Option<String> = 4;
        /// The connection's arm in the experiment.
        pub arm: Option<String> = 5;
        /// Why the kernel refused the congestion control requested by the rule or the arm; absent
        /// if the kernel accepted it.
        pub refused: Option<String> = 6;
        /// Redraw period in which the rule decided; absent if the rule draws each client once.
        pub draw_period: Option<u64> = 7;
    }
}

message! {
    /// A player's report in a request (CMCD, CTA-5004): the keys that describe playback.
    #[derive(Default)]
    pub struct Cmcd as "Cmcd" {
        /// `sid`: the playback session.
        pub sid: Option<String> = 1, text;
        /// `st`: live or on demand.
        pub st: Option<StreamType> = 2;
        /// `br`: bitrate of the requested media.
        pub br_kbps: Option<u64> = 3;
        /// `bl`: media buffered ahead of the playhead.
        pub bl_ms: Option<u64> = 4;
        /// `mtp`: measured throughput.
        pub mtp_kbps: Option<u64> = 5;
        /// `bs`: whether the buffer ran empty since the previous request.
        pub bs: bool = 6, sparse;
    }
}

parts! { ResponseRecord TcpState Delivery Steered Cmcd }

impl ResponseRecord {
    /// Creates the record of an empty 200 response to a GET request, served from the cache. All
    /// other fields are unset.
    pub fn new(time_unix_us: u64, client: SocketAddr) -> Self {
        Self {
            time_unix_us,
            client,
            method: Cow::Borrowed("GET"),
            host: String::new(),
            path: String::new(),
            status: 200,
            bytes: 0,
            ttfb_us: None,
            written_us: 0,
            cache: CacheResult::Hit,
            detail: None,
            backend: None,
            protocol: Protocol::Http11,
            cut: None,
            tcp: None,
            steered: None,
            cmcd: None,
            xid: None,
            restarts: 0,
            lines: Lines::default(),
            delivery: None,
            sample_one_in: None,
        }
    }

    /// Returns the number of responses for which this one stands.
    pub fn weight(&self) -> u32 {
        self.sample_one_in.map_or(1, |one_in| one_in.get().min(SAMPLE_ONE_IN_MAX))
    }

    /// Returns the acknowledged bytes per second of busy time; `None` if the delivery was not
    /// measured, or was too short for the precision of the clock.
    pub fn goodput_bytes_per_s(&self) -> Option<u64> {
        self.delivery.as_ref()?.goodput_bytes_per_s()
    }

    /// Returns whether the whole response was sent.
    pub fn is_complete(&self) -> bool {
        self.cut.is_none()
    }
}

impl Delivery {
    /// Creates the delivery of a completely acknowledged response, whose last byte was acknowledged
    /// `busy_us` after the request.
    pub fn complete(acked_bytes: u64, busy_us: u64) -> Self {
        Self { acked_bytes, acked_us: Some(busy_us), busy_us: Some(busy_us), ..Self::default() }
    }

    /// Returns the acknowledged bytes per second of busy time; `None` if the busy time is unknown,
    /// or too short for the clock that measured it.
    pub fn goodput_bytes_per_s(&self) -> Option<u64> {
        let busy_us = self.busy_us.filter(|&us| us >= self.busy_us_min())?;
        let per_s = u128::from(self.acked_bytes) * 1_000_000 / u128::from(busy_us);
        Some(u64::try_from(per_s).unwrap_or(u64::MAX))
    }

    /// Like [`goodput_bytes_per_s`](Self::goodput_bytes_per_s), but time limited by the client's
    /// receive window counts as busy. Comparisons use this rate: leaving out limited responses
    /// would select by congestion control, because a faster one reaches the window's limit earlier.
    pub fn goodput_with_window_limit_bytes_per_s(&self) -> Option<u64> {
        let busy_us = self.busy_us?.saturating_add(self.rwnd_limited_us.unwrap_or(0));
        Self { busy_us: Some(busy_us), rwnd_limited_us: None, ..self.clone() }.goodput_bytes_per_s()
    }

    /// Minimum busy time that yields a rate, in microseconds. The kernel's busy time is counted in
    /// ticks. Time limited by the receive window must be a small part: the client also receives
    /// content in that time, so the rest alone would overstate the rate.
    fn busy_us_min(&self) -> u64 {
        let precise_us = if self.is_source_limited { KERNEL_BUSY_US_MIN } else { 1 };
        self.rwnd_limited_us.unwrap_or(0).saturating_mul(RWND_LIMITED_DIVISOR).max(precise_us)
    }
}

words! {
    /// The result of a cache lookup.
    CacheResult {
        /// Served from a complete, fresh stored response.
        Hit = "hit",
        /// Served by joining a fill in progress.
        Join = "join",
        /// Started a fetch and was served from its fill.
        Miss = "miss",
        /// The stored response was stale, and the backend validated it with a 304.
        Validated = "validated",
        /// Served stale: during background validation, or because the backend failed.
        Stale = "stale",
        /// Streamed from the backend without being stored.
        Pass = "pass",
        /// A purge request handled by the edge.
        Purge = "purge",
        /// A synthetic response from the policy.
        Synth = "synth",
        /// The connection was piped to the backend.
        Pipe = "pipe",
        /// An error response from the edge or the policy, because the request was bad or its fetch
        /// failed. Requests collapsed into a failed fetch also have this result.
        Error = "error",
    }
}

words! {
    /// What decided a connection's congestion control, in ascending order of precedence.
    #[derive(PartialOrd, Ord)]
    Decider {
        /// The edge's setting, or else the system default.
        Default = "default",
        /// A steering rule.
        Rule = "rule",
        /// An arm of an experiment.
        Experiment = "experiment",
        /// The policy.
        Policy = "policy",
    }
}

words! {
    /// Tag of a logged line, spelled as in Varnish.
    LineTag {
        /// Logged by the policy or its modules, such as the tcp module.
        Log = "VCL_Log",
        /// A failure in the policy, or an operation that the edge did not let the policy perform.
        Error = "VCL_Error",
        /// A timestamp logged by the policy.
        Timestamp = "Timestamp",
        /// The matching entry of an access list.
        Acl = "VCL_acl",
        /// Why a fetch failed.
        FetchError = "FetchError",
    }
}

words! {
    /// Stream type, spelled as in CMCD.
    StreamType {
        /// Live.
        Live = "l",
        /// On demand: all segments are available.
        OnDemand = "v",
    }
}

words! {
    /// The protocol of a response.
    Protocol {
        /// HTTP/1.0.
        Http10 = "HTTP/1.0",
        /// HTTP/1.1.
        Http11 = "HTTP/1.1",
    }
}

words! {
    /// Reason why a response ended before its last byte was handed to the kernel.
    Cut {
        /// The client closed or reset the connection.
        ClientClosed = "client_closed",
        /// The client accepted no data for longer than the limit.
        ClientStalled = "client_stalled",
        /// The fetch from the backend failed after the response had started.
        BackendFailed = "backend_failed",
        /// Stored content could not be read to its end.
        StorageFailed = "storage_failed",
        /// The edge was stopped.
        Shutdown = "shutdown",
    }
}
