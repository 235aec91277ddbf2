//! `struct tcp_info`: the kernel's statistics for one connection.
//!
//! The structure has only ever grown, so its length reveals the kernel version. Every field about
//! delivery is decoded; a field past the end of the returned bytes is `None`. Order and offsets
//! follow `include/uapi/linux/tcp.h`; values are in native byte order.
//!
//! | kernel | bytes | added |
//! |---|---|---|
//! | up to 3.14 | 104 | |
//! | 3.15 | 120 | pacing rates |
//! | 4.1 | 136 | acknowledged and received bytes |
//! | 4.2 | 144 | sent and received TCP segments |
//! | 4.6 | 160 | unsent bytes, minimum round-trip time, TCP segments with content |
//! | 4.9 | 168 | delivery rate |
//! | 4.10 | 192 | busy time, and its parts limited by window or buffer |
//! | 4.18 | 200 | delivered TCP segments, and those with ECN marks |
//! | 4.19 | 224 | sent and retransmitted bytes, DSACK, reordering |
//! | 5.4 | 232 | TCP segments received out of order, send window |
//! | 6.2 | 240 | receive window, path rehashes |
//! | 6.7 | 248 | retransmission timeouts |
//! | 6.18 | 280 | accurate ECN |
//!
//! The last four bytes of the 6.18 structure are not decoded, because later kernels store other
//! bits there without changing the length.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sockopt;

/// Minimum length that can be decoded, in bytes: the `tcp_info` of Linux 3.14 and earlier.
pub const BYTES_MIN: usize = 104;

/// Size of the read buffer: larger than the `tcp_info` of any release so far (280 bytes in 6.18).
const BUFFER_BYTES: usize = 512;

/// Value of `tcpi_snd_ssthresh` for a connection that has never left slow start: the kernel's
/// `TCP_INFINITE_SSTHRESH`.
pub const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;

/// Declares [`TcpInfo`] and its decoder from one table of names, types and offsets.
macro_rules! tcp_info {
    (
        always { $($(#[$always_doc:meta])* $always:ident: $always_type:ident @ $always_offset:literal,)* }
        since { $($(#[$since_doc:meta])* $since:ident: $since_type:ident @ $since_offset:literal,)* }
    ) => {
        /// The result of `getsockopt(TCP_INFO)`. Field names are the kernel's without `tcpi_`, with
        /// the unit last.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct TcpInfo {
            $($(#[$always_doc])* pub $always: $always_type,)*
            /// Whether the latest delivery rate sample was limited by the application rather than
            /// the network.
            pub delivery_rate_app_limited: bool,
            $($(#[$since_doc])* pub $since: Option<$since_type>,)*
        }

        impl TcpInfo {
            /// Decodes the bytes returned by the kernel. Returns `None` if there are fewer than
            /// [`BYTES_MIN`].
            ///
            /// Bytes after the last known field, from a newer kernel, are ignored.
            pub fn decode(bytes: &[u8]) -> Option<Self> {
                $(let $always = field::<{ size_of::<$always_type>() }>(bytes, $always_offset)
                    .map($always_type::from_ne_bytes)?;)*
                $(let $since = field::<{ size_of::<$since_type>() }>(bytes, $since_offset)
                    .map($since_type::from_ne_bytes);)*
                let flags = *bytes.get(FLAGS_OFFSET)?;
                let delivery_rate_app_limited = flags & APP_LIMITED != 0;
                let decoded = Self { $($always,)* delivery_rate_app_limited, $($since,)* };
                Some(decoded.without_sentinels())
            }

            /// Calls `each` with the name and value of every numeric field present, in the kernel's
            /// order. Omits [`TcpInfo::delivery_rate_app_limited`], which is a flag.
            pub fn for_each_number(&self, mut each: impl FnMut(&'static str, u64)) {
                $(each(stringify!($always), self.$always.into());)*
                $(if let Some(value) = self.$since {
                    each(stringify!($since), value.into());
                })*
            }
        }
    };
}

/// Offset of the byte that contains the two bit-fields after the window scales.
const FLAGS_OFFSET: usize = 7;
/// Bit mask of `tcpi_delivery_rate_app_limited`: the lowest bit on little-endian ABIs, which
/// allocate bit-fields from the lowest bit up, and the highest bit on big-endian ABIs.
const APP_LIMITED: u8 = if cfg!(target_endian = "little") { 0x01 } else { 0x80 };

tcp_info! {
    always {
        /// The connection's state as in `include/net/tcp_states.h`; `TCP_ESTABLISHED` is 1.
        state: u8 @ 0,
        /// State of the loss recovery state machine: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
        ca_state: u8 @ 1,
        /// Consecutive retransmission timeouts not yet recovered from.
        retransmits: u8 @ 2,
        /// Retransmission timeout.
        rto_us: u32 @ 8,
        /// Maximum TCP segment size for sending (MSS), without headers.
        snd_mss_bytes: u32 @ 16,
        /// Estimate of the client's maximum TCP segment size.
        rcv_mss_bytes: u32 @ 20,
        /// TCP segments in flight: sent but not acknowledged.
        unacked: u32 @ 24,
        /// TCP segments in flight that were selectively acknowledged.
        sacked: u32 @ 28,
        /// TCP segments in flight that are presumed lost.
        lost: u32 @ 32,
        /// TCP segments in flight that were retransmitted.
        retrans: u32 @ 36,
        /// Time since content was last sent.
        last_data_sent_ms: u32 @ 44,
        /// Time since content was last received.
        last_data_recv_ms: u32 @ 52,
        /// Time since the last acknowledgement.
        last_ack_recv_ms: u32 @ 56,
        /// Path MTU.
        pmtu_bytes: u32 @ 60,
        /// Current receive window clamp (`rcv_ssthresh`), in bytes.
        rcv_ssthresh_bytes: u32 @ 64,
        /// Smoothed round-trip time.
        rtt_us: u32 @ 68,
        /// Mean deviation of the round-trip time.
        rttvar_us: u32 @ 72,
        /// Slow start threshold in TCP segments; [`SSTHRESH_INFINITE`] before the first loss.
        snd_ssthresh: u32 @ 76,
        /// Congestion window in TCP segments.
        snd_cwnd: u32 @ 80,
        /// Maximum TCP segment size advertised to the client.
        advmss_bytes: u32 @ 84,
        /// Reordering tolerated before loss is presumed, in TCP segments.
        reordering: u32 @ 88,
        /// Receiver-side estimate of the round-trip time; 0 until the client has sent enough data.
        rcv_rtt_us: u32 @ 92,
        /// Bytes read by the application in the last round trip. Used to autotune the receive
        /// buffer.
        rcv_space_bytes: u32 @ 96,
        /// TCP segments retransmitted over the lifetime of the connection.
        total_retrans: u32 @ 100,
    }
    since {
        /// Pacing rate (since Linux 3.15). Also `None` if pacing is unlimited.
        pacing_rate_bytes_per_s: u64 @ 104,
        /// Maximum pacing rate, `SO_MAX_PACING_RATE` (since Linux 3.15). Also `None` if no maximum
        /// is set.
        max_pacing_rate_bytes_per_s: u64 @ 112,
        /// Bytes acknowledged by the client (since Linux 4.1).
        bytes_acked: u64 @ 120,
        /// Bytes received in order (since Linux 4.1).
        bytes_received: u64 @ 128,
        /// TCP segments sent (since Linux 4.2).
        segs_out: u32 @ 136,
        /// TCP segments received (since Linux 4.2).
        segs_in: u32 @ 140,
        /// Bytes in the send queue that have never been sent (since Linux 4.6).
        notsent_bytes: u32 @ 144,
        /// Minimum round-trip time over the last `net.ipv4.tcp_min_rtt_wlen` seconds (since Linux
        /// 4.6). Also `None` before the first sample.
        min_rtt_us: u32 @ 148,
        /// Received TCP segments with content (since Linux 4.6).
        data_segs_in: u32 @ 152,
        /// Sent TCP segments with content (since Linux 4.6).
        data_segs_out: u32 @ 156,
        /// Latest delivery rate sample (since Linux 4.9); 0 before the first sample.
        delivery_rate_bytes_per_s: u64 @ 160,
        /// Time with content in flight (since Linux 4.10).
        busy_time_us: u64 @ 168,
        /// Busy time limited by the client's receive window (since Linux 4.10).
        rwnd_limited_us: u64 @ 176,
        /// Busy time limited by the send buffer (since Linux 4.10).
        sndbuf_limited_us: u64 @ 184,
        /// TCP segments delivered (since Linux 4.18).
        delivered: u32 @ 192,
        /// TCP segments delivered with an ECN congestion mark (CE) (since Linux 4.18).
        delivered_ce: u32 @ 196,
        /// Content bytes sent, including retransmissions (since Linux 4.19).
        bytes_sent: u64 @ 200,
        /// Content bytes retransmitted (since Linux 4.19).
        bytes_retrans: u64 @ 208,
        /// Duplicates reported by the client with DSACK, that is, unnecessary retransmissions
        /// (since Linux 4.19).
        dsack_dups: u32 @ 216,
        /// Reordering events seen (since Linux 4.19).
        reord_seen: u32 @ 220,
        /// TCP segments received out of order (since Linux 5.4).
        rcv_ooopack: u32 @ 224,
        /// The client's receive window after scaling (since Linux 5.4).
        snd_wnd_bytes: u32 @ 228,
        /// The receive window advertised to the client, after scaling (since Linux 6.2).
        rcv_wnd_bytes: u32 @ 232,
        /// Number of times a timeout changed the flow's path hash (since Linux 6.2).
        rehash: u32 @ 236,
        /// Retransmission timeouts (since Linux 6.7).
        total_rto: u16 @ 240,
        /// Recoveries from retransmission timeouts (since Linux 6.7).
        total_rto_recoveries: u16 @ 242,
        /// Time spent recovering from retransmission timeouts (since Linux 6.7).
        total_rto_time_ms: u32 @ 244,
        /// TCP segments received with a congestion mark (CE) (since Linux 6.18).
        received_ce: u32 @ 248,
        /// Content bytes reported by the client as received with ECT(1) (since Linux 6.18).
        delivered_e1_bytes: u32 @ 252,
        /// Content bytes reported by the client as received with ECT(0) (since Linux 6.18).
        delivered_e0_bytes: u32 @ 256,
        /// Content bytes reported by the client as received with a congestion mark (since Linux
        /// 6.18).
        delivered_ce_bytes: u32 @ 260,
        /// Content bytes received with ECT(1) (since Linux 6.18).
        received_e1_bytes: u32 @ 264,
        /// Content bytes received with ECT(0) (since Linux 6.18).
        received_e0_bytes: u32 @ 268,
        /// Content bytes received with a congestion mark (since Linux 6.18).
        received_ce_bytes: u32 @ 272,
    }
}

impl TcpInfo {
    /// Reads a socket's `tcp_info` with one `getsockopt` call and no allocation. Called at the end
    /// of every response.
    ///
    /// # Errors
    ///
    /// Returns the system call's error, or `InvalidData` if the kernel returns fewer than
    /// [`BYTES_MIN`] bytes.
    pub fn read(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let mut buffer = [0; BUFFER_BYTES];
        let answer = sockopt::get(fd, (libc::IPPROTO_TCP, libc::TCP_INFO), &mut buffer)?;
        Self::decode(answer).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "kernel returned fewer bytes of tcp_info than Linux 3.14 does",
            )
        })
    }

    /// Replaces the kernel's all-ones value with `None` in three fields. All ones means "no sample
    /// yet" or "no limit" and would distort any sum.
    fn without_sentinels(mut self) -> Self {
        self.min_rtt_us = self.min_rtt_us.filter(|&us| us != u32::MAX);
        self.pacing_rate_bytes_per_s = self.pacing_rate_bytes_per_s.filter(|&rate| rate != u64::MAX);
        self.max_pacing_rate_bytes_per_s = self.max_pacing_rate_bytes_per_s.filter(|&rate| rate != u64::MAX);
        self
    }
}

/// Returns the `N` bytes of the field at `offset`, or `None` if `bytes` ends before them.
fn field<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests;
