//! Records: what the edge says of each response, and the agent of each socket: in memory, as a JSON line and as a line for
//! people, as protobuf, and as rows of tables.
//!
//! Pure: no clock, no socket, nothing else of Thalweg. A [`Batch`] is what an agent hands on: `proto/telemetry.proto` has
//! its form on the wire, [`rows`] what tables have of it. The JSON line is a contract with the console and with
//! every log shipper: `wire.rs` holds its field names, [`SCHEMA_VERSION`] its version. [`units`] reads quantities that people
//! write, as `human.rs` writes them for people.
//!
//! **Invariant:** what is derived is not stored: goodput is computed from bytes and duration, and written so that
//! readers need not know how.
//! **Invariant:** [`TcpState`] is what the kernel said at the end of the response, or absent; never an estimate.

/// Declares a closed set of words: the variants, their spelling on the wire, and the way back.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The value of a word on the wire.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == word)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

mod batch;
mod human;
mod lines;
mod name;
mod prefix;
mod proto;
pub mod rows;
mod sketch;
mod socket;
pub mod units;
mod wire;

pub use batch::{Batch, Entry, Heard, LOSS_VERSION, LossRecord, Network, Record, Source, Stage};
pub use human::{Colour, human_header};
pub use lines::{LINE_BYTES_MAX, LINES_BYTES_MAX, LINES_MAX, Line, Lines};
pub use name::{NAME_BYTES_MAX, is_name};
pub use prefix::{CLIENT_IPV4_BITS, CLIENT_IPV6_BITS, Prefix, PrefixError};
pub use proto::DecodeError;
pub use sketch::Sketch;
pub use socket::{Bbr, Cause, Counters, Gauges, SOCKET_VERSION, SocketRecord};

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;

/// The version of the JSON line that this crate writes and reads, its field `v`. It changes when a field
/// changes its meaning or goes; a new field does not change it, readers ignore what they do not know.
pub const SCHEMA_VERSION: u32 = 1;

/// One response of the edge to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseRecord {
    /// When the last byte of the request's head had arrived: microseconds since the Unix epoch. The JSON line
    /// has milliseconds.
    pub time_unix_us: u64,
    /// The client's address and port, IPv4 as IPv4 even on a dual-stack listener.
    pub client: SocketAddr,
    /// The request's method.
    pub method: Cow<'static, str>,
    /// The `Host` field as received; empty if there was none.
    pub host: String,
    /// Path and query as received.
    pub path: String,
    /// The status sent, or that would have been if the client had stayed.
    pub status: u16,
    /// Content bytes handed to the kernel; the head and chunk framing are not counted.
    pub bytes: u64,
    /// From the last byte of the request to the first of the response; absent if none was sent.
    pub ttfb_us: Option<u64>,
    /// From the last byte of the request to the last of the response, or to where it was cut.
    pub duration_us: u64,
    /// What the cache made of the request.
    pub cache: CacheResult,
    /// Why that, in a word or a few; absent where there is nothing to say.
    pub detail: Option<Cow<'static, str>>,
    /// The name of the backend that was chosen last, for this request and no other; absent if none was, or without a policy.
    pub backend: Option<String>,
    /// The protocol of the response.
    pub protocol: Protocol,
    /// Why the response was not sent whole; absent if it was.
    pub cut: Option<Cut>,
    /// The connection at the end of the response; absent where the kernel gave none.
    pub tcp: Option<TcpState>,
    /// What a bundle has had to do with the connection; absent if nothing.
    pub steered: Option<Steered>,
    /// What the player said of itself with the request; absent if nothing of this.
    pub cmcd: Option<Cmcd>,
    /// The number of the request, as the policy has it; absent without one.
    pub xid: Option<u64>,
    /// How often the policy had the request begin again, under the same number.
    pub restarts: u32,
    /// What the policy logged of the request.
    pub lines: Lines,
}

impl ResponseRecord {
    /// One of an empty 200 to a GET, out of the store, of which nothing else is known.
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
            duration_us: 0,
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
        }
    }
}

/// What a bundle has had to do with a connection, from the response on for which it was due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Steered {
    /// The number of the bundle.
    pub bundle: u64,
    /// The prefix of the rule about the client; absent if none was due.
    pub rule: Option<String>,
    /// Whether the connection was held out from that rule, for comparison.
    pub is_holdout: bool,
    /// The experiment that the connection is in; absent if in none.
    pub experiment: Option<String>,
    /// Its arm there.
    pub arm: Option<String>,
    /// Why the kernel refused what the rule or the arm asks for; absent if it did not.
    pub refused: Option<String>,
}

/// What a player says of itself with a request (CMCD, CTA-5004): of its keys those that tell how playback goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cmcd {
    /// `sid`: the session.
    pub sid: Option<String>,
    /// `st`: whether it is live.
    pub st: Option<StreamType>,
    /// `br`: the bitrate of what is asked for.
    pub br_kbps: Option<u64>,
    /// `bl`: the media that the player has before the playhead.
    pub bl_ms: Option<u64>,
    /// `mtp`: the throughput that it has measured.
    pub mtp_kbps: Option<u64>,
    /// `bs`: its buffer has run dry since the request before.
    pub bs: bool,
}

/// The state of the connection when the response ended, as the kernel gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpState {
    /// As read back from the socket.
    pub congestion_control: String,
    /// What the kernel had given the connection when it was accepted, before anybody decided; absent in records from
    /// before it was told.
    pub congestion_control_start: Option<String>,
    /// Who decided on the congestion control last; absent in records from before it was told.
    pub decider: Option<Decider>,
    /// `tcpi_rtt`, smoothed.
    pub rtt_us: u32,
    /// `tcpi_min_rtt`; absent before the first sample and before Linux 4.6.
    pub min_rtt_us: Option<u32>,
    /// `tcpi_snd_cwnd`, in TCP segments.
    pub snd_cwnd: u32,
    /// `tcpi_delivery_rate`, the newest sample; absent before Linux 4.9.
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// `tcpi_total_retrans`: TCP segments sent again over the life of the connection.
    pub retransmits: u32,
    /// `tcpi_lost`: TCP segments in flight that are taken for lost.
    pub lost: u32,
    /// `tcpi_pacing_rate`; absent where the kernel does not limit the rate.
    pub pacing_rate_bytes_per_s: Option<u64>,
}

words! {
    /// What the cache made of a request.
    CacheResult {
        /// Answered from a complete, fresh stored response.
        Hit = "hit",
        /// Joined a fill in progress.
        Join = "join",
        /// Caused a fetch, and was served from its fill.
        Miss = "miss",
        /// The stored response was stale, and the backend's 304 made it fresh again.
        Validated = "validated",
        /// Served stale: while it is refreshed, or because the backend failed.
        Stale = "stale",
        /// Streamed from the backend without being stored.
        Pass = "pass",
        /// A purge, which the edge did.
        Purge = "purge",
        /// The policy answered by itself.
        Synth = "synth",
        /// The connection was handed through to the backend.
        Pipe = "pipe",
        /// The edge answered by itself, or a policy in need: a bad request, or a fetch that failed, also for who waited for it.
        Error = "error",
    }
}

words! {
    /// Who decides on a connection's congestion control, the weakest first.
    #[derive(PartialOrd, Ord)]
    Decider {
        /// The edge's setting, or without one the system's.
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
    /// What a logged line is about, by the names that Varnish's log has.
    LineTag {
        /// What the policy logs, and what its modules tell, such as those of TCP.
        Log = "VCL_Log",
        /// What went wrong in the policy, or was refused to it.
        Error = "VCL_Error",
        /// A point in time that the policy noted.
        Timestamp = "Timestamp",
        /// Which entry of an access list matched.
        Acl = "VCL_acl",
        /// Why a fetch failed.
        FetchError = "FetchError",
    }
}

words! {
    /// What is watched, in CMCD's letters.
    StreamType {
        /// It is live.
        Live = "l",
        /// All segments are there.
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
    /// Why a response ended before its last byte was handed to the kernel.
    Cut {
        /// The client closed or reset the connection.
        ClientClosed = "client_closed",
        /// The client took nothing for longer than the limit.
        ClientStalled = "client_stalled",
        /// The fetch from the backend failed after the response had begun.
        BackendFailed = "backend_failed",
        /// Stored content could not be read to its end.
        StorageFailed = "storage_failed",
        /// The edge was stopped.
        Shutdown = "shutdown",
    }
}

impl ResponseRecord {
    /// Content bytes per second over the whole response; a duration of zero counts as one microsecond.
    pub fn goodput_bytes_per_s(&self) -> u64 {
        let per_s = u128::from(self.bytes) * 1_000_000 / u128::from(self.duration_us.max(1));
        u64::try_from(per_s).unwrap_or(u64::MAX)
    }
}

/// A line that is no record of this version.
#[derive(Debug)]
pub enum Error {
    /// Not JSON, or a field is missing, of the wrong type, or outside its closed set.
    Json(serde_json::Error),
    /// A record of another schema version.
    Version {
        /// The version that the line states.
        found: u32,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Json(_) => f.write_str("not a response record"),
            Error::Version { found } => {
                write!(
                    f,
                    "a record of schema version {found}, and this program reads version {SCHEMA_VERSION}"
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Json(cause) => Some(cause),
            Error::Version { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
