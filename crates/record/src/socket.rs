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
        /// Congestion control algorithm. The event of a socket's destruction has none, so its
        /// record has that of the last dump, or else of the connection's last response from a
        /// followed edge. Absent if none of them is known.
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
        /// The socket itself: owner, queues, timer and options.
        pub attributes: SocketAttributes = 18;
        /// Memory used by the socket's buffers; absent if the kernel did not report it, as for a
        /// destroyed socket.
        pub memory: Option<SocketMemory> = 35, column("memory_");
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
            attributes: SocketAttributes::default(),
            memory: None,
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
    /// The kernel's description of a socket (`struct inet_diag_msg` and attributes,
    /// `include/uapi/linux/inet_diag.h`). Absent values were not reported.
    #[derive(Default)]
    pub struct SocketAttributes as "Socket" {
        /// Address family of the socket. An IPv6 socket may carry IPv4.
        pub family: Option<SocketFamily> = 18;
        /// Bytes received and not yet read; absent for a listener.
        pub rqueue_bytes: Option<u32> = 19;
        /// Bytes not yet acknowledged, including bytes not yet sent; absent for a listener.
        pub wqueue_bytes: Option<u32> = 20;
        /// Connections that wait to be accepted; absent except for a listener.
        pub accept_queue: Option<u32> = 21;
        /// Maximum number of connections that wait to be accepted; absent except for a listener.
        pub accept_queue_max: Option<u32> = 22;
        /// The running timer; absent if none is running.
        pub timer: Option<SocketTimer> = 23;
        /// Time until the timer expires; absent if none is running.
        pub timer_expires_ms: Option<u32> = 24;
        /// Consecutive retransmissions, probes or keepalives without a reply, by the running timer;
        /// absent if none is running.
        pub timer_retransmits: Option<u8> = 25;
        /// User ID of the owner.
        pub uid: Option<u32> = 26, id;
        /// Inode number in sockfs, or 0 if no process has the socket open.
        pub inode: Option<u32> = 27, id;
        /// Index of the network interface to which the socket is bound; absent if it is not bound.
        pub interface: Option<u32> = 28, id;
        /// `SO_MARK`, reported only to processes with CAP_NET_ADMIN.
        pub mark: Option<u32> = 29, id;
        /// ID of the cgroup v2 in which the socket was created (since Linux 5.8).
        pub cgroup_id: Option<u64> = 30, id;
        /// Traffic class for queueing: the class ID of the socket's cgroup v1, or its priority.
        pub class_id: Option<u32> = 31, id;
        /// IPv4 type of service.
        pub tos: Option<u8> = 32;
        /// IPv6 traffic class.
        pub tclass: Option<u8> = 33;
        /// Directions that are shut down: 0 none, 1 receiving, 2 sending, 3 both.
        pub shutdown: Option<u8> = 34;
    }
}

words! {
    /// Address family of a socket.
    SocketFamily {
        /// IPv4.
        Ipv4 = "ipv4",
        /// IPv6.
        Ipv6 = "ipv6",
    }
}

words! {
    /// A socket's running timer.
    SocketTimer {
        /// A retransmission, a tail loss probe, or a reordering timeout.
        Retransmit = "retransmit",
        /// Keepalive, or another use of its timer.
        Keepalive = "keepalive",
        /// The end of TIME-WAIT.
        TimeWait = "time_wait",
        /// A zero-window probe.
        Probe = "probe",
        /// A kind unknown to this program.
        Other = "other",
    }
}

message! {
    /// Memory use of a socket (`SK_MEMINFO_*`, `include/uapi/linux/sock_diag.h`).
    #[derive(Default)]
    pub struct SocketMemory as "SocketMemory" {
        /// Receive buffer memory used by data not yet read.
        pub rmem_alloc_bytes: u32 = 1;
        /// Receive buffer limit (`SO_RCVBUF`).
        pub rcvbuf_bytes: u32 = 2;
        /// Memory of packets passed to lower layers but not yet sent.
        pub wmem_alloc_bytes: u32 = 3;
        /// Send buffer limit (`SO_SNDBUF`).
        pub sndbuf_bytes: u32 = 4;
        /// Memory reserved for the socket but unused.
        pub fwd_alloc_bytes: u32 = 5;
        /// Memory used by the send queue.
        pub wmem_queued_bytes: u32 = 6;
        /// Memory used by socket options and filters.
        pub optmem_bytes: u32 = 7;
        /// Memory used by TCP segments that arrived while a process held the socket lock.
        pub backlog_bytes: u32 = 8;
        /// TCP segments dropped by the socket over its lifetime (since Linux 4.7).
        pub drops: Option<u32> = 9;
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
        /// Latest delivery rate sample of content (since Linux 4.9); absent before the first one.
        /// If the kernel's latest sample is that of a FIN sent alone, this is the sample of the
        /// last dump or, when the socket was destroyed, of the last response from a followed edge.
        pub delivery_rate_bytes_per_s: Option<u64> = 13;
        /// Whether the delivery rate sample was limited by the application, not by the network.
        pub delivery_rate_app_limited: bool = 14;
        /// Pacing rate; absent if unlimited.
        pub pacing_rate_bytes_per_s: Option<u64> = 15;
        /// Bytes in the send queue that have not been sent.
        pub notsent_bytes: Option<u32> = 16;
        /// The client's receive window (since Linux 5.4).
        pub snd_wnd_bytes: Option<u32> = 17;
        /// State in `tcp_info`, as the kernel's number.
        pub tcp_state: u8 = 18;
        /// Consecutive retransmission timeouts not yet recovered from.
        pub timeouts_in_a_row: u8 = 19;
        /// Estimate of the client's maximum TCP segment size.
        pub rcv_mss_bytes: u32 = 20;
        /// TCP segments in flight that were selectively acknowledged.
        pub sacked: u32 = 21;
        /// TCP segments in flight that were retransmitted.
        pub retrans: u32 = 22;
        /// Time since content was last sent.
        pub last_data_sent_ms: u32 = 23;
        /// Time since content was last received.
        pub last_data_recv_ms: u32 = 24;
        /// Time since the last acknowledgement.
        pub last_ack_recv_ms: u32 = 25;
        /// Current receive window clamp.
        pub rcv_ssthresh_bytes: u32 = 26;
        /// Maximum TCP segment size advertised to the client.
        pub advmss_bytes: u32 = 27;
        /// RTT estimated as the receiver; 0 until the client has sent enough data.
        pub rcv_rtt_us: u32 = 28;
        /// Bytes read by the application in the last round trip.
        pub rcv_space_bytes: u32 = 29;
        /// Maximum pacing rate (`SO_MAX_PACING_RATE`); absent if none is set.
        pub max_pacing_rate_bytes_per_s: Option<u64> = 30;
        /// The receive window advertised to the client (since Linux 6.2).
        pub rcv_wnd_bytes: Option<u32> = 31;
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
        /// Received TCP segments with content (since Linux 4.6).
        pub data_segs_in: u32 = 17;
        /// TCP segments received out of order (since Linux 5.4).
        pub rcv_ooopack: u32 = 18;
        /// Changes of the flow's path hash after a timeout (since Linux 6.2).
        pub rehash: u32 = 19;
        /// Recoveries from retransmission timeouts (since Linux 6.7).
        pub timeout_recoveries: u32 = 20;
        /// Time spent recovering from retransmission timeouts (since Linux 6.7).
        pub timeout_recovery_ms: u32 = 21;
        /// TCP segments received with a congestion mark (since Linux 6.18).
        pub received_ce: u32 = 22;
        /// Content bytes that the client reported as received with ECT(1) (since Linux 6.18).
        pub delivered_e1_bytes: u32 = 23;
        /// Content bytes that the client reported as received with ECT(0) (since Linux 6.18).
        pub delivered_e0_bytes: u32 = 24;
        /// Content bytes that the client reported as received with a congestion mark (since Linux
        /// 6.18).
        pub delivered_ce_bytes: u32 = 25;
        /// Content bytes received with ECT(1) (since Linux 6.18).
        pub received_e1_bytes: u32 = 26;
        /// Content bytes received with ECT(0) (since Linux 6.18).
        pub received_e0_bytes: u32 = 27;
        /// Content bytes received with a congestion mark (since Linux 6.18).
        pub received_ce_bytes: u32 = 28;
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

parts! { SocketRecord Gauges Counters Bbr SocketMemory }

inlined! { SocketAttributes }
