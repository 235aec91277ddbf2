//! A socket at one moment: what the kernel said of it in a dump, or as it was destroyed.
//!
//! **Invariant:** counters are differences since the socket's record before, never the kernel's sums: they add up over any
//! set of records. The first record of a socket has what it counted since it was made, or none where that was before the agent
//! began: an agent before it may have told it.

use std::net::SocketAddr;
use std::num::NonZeroU32;

/// The version of socket records that this crate writes: it changes when a field changes its meaning or goes, or a closed
/// set gains a word. New fields do not change it.
pub const SOCKET_VERSION: u32 = 1;

/// One sample of one socket. Names are the kernel's `tcp_info` without `tcpi_`, with the unit last; what the kernel is too
/// old to tell is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketRecord {
    /// When the dump or the event was read: microseconds since the Unix epoch.
    pub time_unix_us: u64,
    /// The other end, IPv4 as IPv4 even on a dual-stack listener.
    pub client: SocketAddr,
    /// This end, likewise.
    pub local: SocketAddr,
    /// The kernel's name for the socket as long as the machine is up (`sock_diag`'s cookie).
    pub cookie: u64,
    /// The network namespace, by the name it was configured with; absent in the agent's own.
    pub namespace: Option<String>,
    /// The state, as `ss` spells it: `ESTAB`, `CLOSE-WAIT`, …
    pub state: String,
    /// Why there is this record.
    pub cause: Cause,
    /// Of the sockets that were wanted one in so many is followed, for all of its life, so this one stands for so many; absent
    /// where all of them are.
    pub sample_one_in: Option<NonZeroU32>,
    /// Time since the record before, which the counters cover; absent in the first record of a socket.
    pub interval_us: Option<u64>,
    /// The congestion control; absent where the kernel does not say, as in an event about a socket that no dump has seen.
    pub congestion_control: Option<String>,
    /// What the socket is at this moment; absent where the kernel gave no `tcp_info`.
    pub gauges: Option<Gauges>,
    /// What it has counted since the record before, or in the first record since it was made; absent likewise, and in the first
    /// record of a socket that was there before the agent.
    pub counters: Option<Counters>,
    /// What BBR knows; absent under another congestion control.
    pub bbr: Option<Bbr>,
}

impl SocketRecord {
    /// One of a dump, of an established connection of which nothing else is known.
    pub fn new(time_unix_us: u64, client: SocketAddr, local: SocketAddr) -> Self {
        Self {
            time_unix_us,
            client,
            local,
            cookie: 0,
            namespace: None,
            state: "ESTAB".to_owned(),
            cause: Cause::Dump,
            sample_one_in: None,
            interval_us: None,
            congestion_control: None,
            gauges: None,
            counters: None,
            bbr: None,
        }
    }
}

words! {
    /// Why there is a record of a socket.
    Cause {
        /// It was in a dump.
        Dump = "dump",
        /// It was destroyed: its last words.
        Destroy = "destroy",
    }
}

/// What a socket is at a moment (`struct tcp_info`, `include/uapi/linux/tcp.h`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Smoothed round trip.
    pub rtt_us: u32,
    /// Mean deviation of the round trip.
    pub rttvar_us: u32,
    /// Smallest round trip, Linux 4.6; absent before the first sample.
    pub min_rtt_us: Option<u32>,
    /// Retransmission timeout.
    pub rto_us: u32,
    /// Congestion window, in TCP segments.
    pub snd_cwnd: u32,
    /// Slow start threshold in TCP segments; absent before the first loss.
    pub snd_ssthresh: Option<u32>,
    /// Largest TCP segment sent, content alone.
    pub snd_mss_bytes: u32,
    /// Path MTU.
    pub pmtu_bytes: u32,
    /// TCP segments in flight.
    pub unacked: u32,
    /// Of those, taken for lost.
    pub lost: u32,
    /// Reordering that is not taken for loss, in TCP segments.
    pub reordering: u32,
    /// The loss state machine: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u8,
    /// Newest delivery rate sample, Linux 4.9; absent before the first, and once this side has closed: it is that of the FIN then.
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// That sample was limited by the application, not by the network.
    pub delivery_rate_app_limited: bool,
    /// Pacing rate; absent where there is no limit.
    pub pacing_rate_bytes_per_s: Option<u64>,
    /// Bytes that were never sent yet.
    pub notsent_bytes: Option<u32>,
    /// The client's receive window, Linux 5.4.
    pub snd_wnd_bytes: Option<u32>,
}

/// What a socket has counted in an interval. Zero where the kernel is too old to count it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that the client acknowledged, Linux 4.1.
    pub bytes_acked: u64,
    /// Bytes received in order, 4.1.
    pub bytes_received: u64,
    /// Content bytes sent, those sent again included, 4.19.
    pub bytes_sent: u64,
    /// Content bytes sent again, 4.19.
    pub bytes_retrans: u64,
    /// TCP segments sent, 4.2.
    pub segs_out: u32,
    /// TCP segments received, 4.2.
    pub segs_in: u32,
    /// TCP segments with content sent, 4.6.
    pub data_segs_out: u32,
    /// TCP segments sent again.
    pub retransmits: u32,
    /// TCP segments delivered, 4.18.
    pub delivered: u32,
    /// Of those, with an ECN mark, 4.18.
    pub delivered_ce: u32,
    /// Duplicates that the client reported, 4.19.
    pub dsack_dups: u32,
    /// Reordering events, 4.19.
    pub reord_seen: u32,
    /// Retransmission timeouts, 6.7.
    pub timeouts: u32,
    /// Time with content in flight, 4.10.
    pub busy_us: u64,
    /// Of the busy time, held back by the client's receive window, 4.10.
    pub rwnd_limited_us: u64,
    /// Of the busy time, held back by the send buffer, 4.10.
    pub sndbuf_limited_us: u64,
}

/// What BBR knows of the path (`struct tcp_bbr_info`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bbr {
    /// Its estimate of the bottleneck's rate.
    pub bw_bytes_per_s: u64,
    /// Its smallest round trip.
    pub min_rtt_us: u32,
    /// Pacing gain, in 1/256.
    pub pacing_gain_256th: u32,
    /// Congestion window gain, in 1/256.
    pub cwnd_gain_256th: u32,
}
