//! Socket record: the kernel's data on one socket, from a dump or from the event of its
//! destruction.
//!
//! **Invariant:** counters are differences since the socket's previous record, never the kernel's
//! totals, so they can be summed over any set of records. A socket's first record counts from the
//! socket's creation. If the socket is older than the agent, its first record has no counters,
//! because a previous agent may have reported them.

use std::net::SocketAddr;
use std::num::NonZeroU32;

/// Version of the socket records written by this crate. The version changes if a field is removed
/// or changes its meaning, or if a closed set gains a word. A new field does not change it.
pub const SOCKET_VERSION: u32 = 1;

message! {
    /// A sample of one socket. Field names are the kernel's `tcp_info` names without `tcpi_`, with
    /// the unit last. Values that an old kernel does not provide are absent.
    pub struct SocketRecord as "Socket" version SOCKET_VERSION {
        /// When the dump or the event was read, in microseconds since the Unix epoch.
        pub time_unix_us: u64 = 2, time, no_column;
        /// Remote address and port; never IPv4-mapped, even on a dual-stack listener.
        pub client: SocketAddr = 3;
        /// Local address and port; never IPv4-mapped, even on a dual-stack listener.
        pub local: SocketAddr = 5;
        /// The kernel's socket identifier (`sock_diag` cookie), unique until the next reboot.
        pub cookie: u64 = 7, id;
        /// Configured name of the socket's network namespace; absent for the agent's own namespace.
        pub namespace: Option<String> = 8;
        /// Socket state, as `ss` spells it: `ESTAB`, `CLOSE-WAIT`, …
        pub state: String = 9;
        /// Event that caused this record.
        pub cause: Cause = 10;
        /// Sampling ratio: one in this many matching sockets is sampled, for its whole lifetime, so
        /// this socket represents that many. Absent if all sockets are sampled.
        pub sample_one_in: Option<NonZeroU32> = 16;
        /// Time since the socket's previous record, covered by the counters; absent in its first
        /// record.
        pub interval_us: Option<u64> = 11;
        /// Congestion control algorithm. The event of a socket's destruction has none, so its record
        /// has that of the last dump, or else of the connection's last response from a followed
        /// edge. Absent if none of them is known.
        pub congestion_control: Option<String> = 12;
        /// Current state of the socket; absent if the kernel provided no `tcp_info`.
        pub gauges: Option<Gauges> = 13, column("");
        /// Counts since the previous record, or since the socket's creation in its first record;
        /// absent without `tcp_info`, and in the first record of a socket older than the agent.
        pub counters: Option<Counters> = 14, column("");
        /// BBR state; absent with any other congestion control.
        pub bbr: Option<Bbr> = 15, column("bbr_");
        /// Acknowledged bytes per second of busy time over the counters' interval, without the time
        /// limited by the client's receive window and without the time of a FIN sent alone. Absent
        /// without counters, and if that time is too short for the kernel's clock.
        pub acked_goodput_bytes_per_s: Option<u64> = 17;
    }
}

impl SocketRecord {
    /// Creates the record of an established connection in a dump. All other fields are unset.
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
            acked_goodput_bytes_per_s: None,
        }
    }
}

words! {
    /// The event that caused a socket record.
    Cause {
        /// The socket was in a dump.
        Dump = "dump",
        /// The socket was destroyed; the record has its final state.
        Destroy = "destroy",
    }
}

message! {
    /// State of a socket at one moment (`struct tcp_info`, `include/uapi/linux/tcp.h`).
    #[derive(Default)]
    pub struct Gauges as "Gauges" {
        /// Smoothed RTT.
        pub rtt_us: u32 = 1;
        /// Mean deviation of the RTT.
        pub rttvar_us: u32 = 2;
        /// Minimum RTT (since Linux 4.6); absent before the first sample.
        pub min_rtt_us: Option<u32> = 3;
        /// Retransmission timeout.
        pub rto_us: u32 = 4;
        /// Congestion window, in TCP segments.
        pub snd_cwnd: u32 = 5;
        /// Slow start threshold in TCP segments; absent before the first loss.
        pub snd_ssthresh: Option<u32> = 6;
        /// Maximum TCP segment size for sending (MSS), without headers.
        pub snd_mss_bytes: u32 = 7;
        /// Path MTU.
        pub pmtu_bytes: u32 = 8;
        /// TCP segments in flight.
        pub unacked: u32 = 9;
        /// TCP segments in flight that are presumed lost.
        pub lost: u32 = 10;
        /// Reordering tolerated before loss is presumed, in TCP segments.
        pub reordering: u32 = 11;
        /// Loss state machine: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
        pub ca_state: u8 = 12;
        /// Latest delivery rate sample of content (since Linux 4.9); absent before the first one. If
        /// the kernel's latest sample is that of a FIN sent alone, this is the sample of the last
        /// dump or, when the socket was destroyed, of the last response from a followed edge.
        pub delivery_rate_bytes_per_s: Option<u64> = 13;
        /// Whether the delivery rate sample was limited by the application, not by the network.
        pub delivery_rate_app_limited: bool = 14;
        /// Pacing rate; absent if unlimited.
        pub pacing_rate_bytes_per_s: Option<u64> = 15;
        /// Bytes in the send queue that have not been sent.
        pub notsent_bytes: Option<u32> = 16;
        /// The client's receive window (since Linux 5.4).
        pub snd_wnd_bytes: Option<u32> = 17;
    }
}

message! {
    /// A socket's counts over an interval. A count that an old kernel does not provide is zero.
    #[derive(Default)]
    pub struct Counters as "Counters" {
        /// Bytes acknowledged by the client (since Linux 4.1).
        pub bytes_acked: u64 = 1;
        /// Bytes received in order (since Linux 4.1).
        pub bytes_received: u64 = 2;
        /// Content bytes sent, including retransmissions (since Linux 4.19).
        pub bytes_sent: u64 = 3;
        /// Content bytes retransmitted (since Linux 4.19).
        pub bytes_retrans: u64 = 4;
        /// TCP segments sent (since Linux 4.2).
        pub segs_out: u32 = 5;
        /// TCP segments received (since Linux 4.2).
        pub segs_in: u32 = 6;
        /// Sent TCP segments with content (since Linux 4.6).
        pub data_segs_out: u32 = 7;
        /// TCP segments retransmitted.
        pub retransmits: u32 = 8;
        /// TCP segments delivered (since Linux 4.18).
        pub delivered: u32 = 9;
        /// TCP segments delivered with an ECN mark (since Linux 4.18).
        pub delivered_ce: u32 = 10;
        /// Duplicates that the client reported by DSACK (since Linux 4.19).
        pub dsack_dups: u32 = 11;
        /// Reordering events (since Linux 4.19).
        pub reord_seen: u32 = 12;
        /// Retransmission timeouts (since Linux 6.7).
        pub timeouts: u32 = 13;
        /// Time with content in flight (since Linux 4.10).
        pub busy_us: u64 = 14;
        /// Part of the busy time limited by the client's receive window (since Linux 4.10).
        pub rwnd_limited_us: u64 = 15;
        /// Part of the busy time limited by the send buffer (since Linux 4.10).
        pub sndbuf_limited_us: u64 = 16;
    }
}

message! {
    /// BBR's view of the path (`struct tcp_bbr_info`).
    #[derive(Default)]
    pub struct Bbr as "Bbr" {
        /// Estimated bottleneck rate.
        pub bw_bytes_per_s: u64 = 1;
        /// Minimum RTT.
        pub min_rtt_us: u32 = 2;
        /// Pacing gain, in 1/256.
        pub pacing_gain_256th: u32 = 3;
        /// Congestion window gain, in 1/256.
        pub cwnd_gain_256th: u32 = 4;
    }
}

parts! { SocketRecord Gauges Counters Bbr }
