//! `struct tcp_info`: what the kernel knows of one connection.
//!
//! The structure only ever grew: by its length one knows which kernel answered. Every field that says something of
//! delivery is decoded; a field that lies beyond the end of the answer is `None`. The order and the offsets are those of `include/uapi/linux/tcp.h`; the values are
//! in the machine's byte order.
//!
//! | kernel | bytes | what it added |
//! |---|---|---|
//! | up to 3.14 | 104 | |
//! | 3.15 | 120 | pacing rates |
//! | 4.1 | 136 | bytes acknowledged and received |
//! | 4.2 | 144 | TCP segments out and in |
//! | 4.6 | 160 | unsent bytes, smallest round trip, data segments |
//! | 4.9 | 168 | delivery rate |
//! | 4.10 | 192 | time busy and limited |
//! | 4.18 | 200 | delivered, with ECN marks |
//! | 4.19 | 224 | bytes sent and sent again, DSACK, reordering |
//! | 5.4 | 232 | out-of-order in, send window |
//! | 6.2 | 240 | receive window, rehash |
//! | 6.7 | 248 | retransmission timeouts |
//! | 6.18 | 280 | accurate ECN |
//!
//! The last four bytes of 6.18's are left out: later kernels pack other bits there without another length.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sockopt;

/// The shortest answer that is decoded, in bytes: that of Linux 3.14 and before.
pub const BYTES_MIN: usize = 104;

/// Bytes asked of the kernel: more than any release so far has (280 in 6.18).
const BYTES_ASKED: usize = 512;

/// `tcpi_snd_ssthresh` of a connection that never left slow start: the kernel's `TCP_INFINITE_SSTHRESH`.
pub const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;

/// Declares the structure and its decoder from one table: name, type and offset stand once.
macro_rules! tcp_info {
    (
        always { $($(#[$always_doc:meta])* $always:ident: $always_type:ident @ $always_offset:literal,)* }
        since { $($(#[$since_doc:meta])* $since:ident: $since_type:ident @ $since_offset:literal,)* }
    ) => {
        /// One answer to `TCP_INFO`. Names are the kernel's without `tcpi_`, with the unit last.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct TcpInfo {
            $($(#[$always_doc])* pub $always: $always_type,)*
            /// The newest delivery rate sample was limited by the application, not by the network.
            pub delivery_rate_app_limited: bool,
            $($(#[$since_doc])* pub $since: Option<$since_type>,)*
        }

        impl TcpInfo {
            /// Decodes an answer of the kernel; `None` if it is shorter than [`BYTES_MIN`].
            ///
            /// Bytes after the last known field are a newer kernel's and are ignored.
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

            /// Calls `each` with the name and the value of every number that is there, in the kernel's order. What is
            /// no number, [`TcpInfo::delivery_rate_app_limited`], is left out.
            pub fn for_each_number(&self, mut each: impl FnMut(&'static str, u64)) {
                $(each(stringify!($always), self.$always.into());)*
                $(if let Some(value) = self.$since {
                    each(stringify!($since), value.into());
                })*
            }
        }
    };
}

/// The byte with two bit-fields after the window scales.
const FLAGS_OFFSET: usize = 7;
/// `tcpi_delivery_rate_app_limited`: the lowest bit where bit-fields start at the lowest (little-endian
/// ABIs).
const APP_LIMITED: u8 = if cfg!(target_endian = "little") { 0x01 } else { 0x80 };

tcp_info! {
    always {
        /// The connection's state, `TCP_ESTABLISHED` is 1 (`include/net/tcp_states.h`).
        state: u8 @ 0,
        /// The loss state machine: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
        ca_state: u8 @ 1,
        /// Retransmission timeouts in a row that are not yet recovered from.
        retransmits: u8 @ 2,
        /// Retransmission timeout.
        rto_us: u32 @ 8,
        /// Largest TCP segment sent, content alone.
        snd_mss_bytes: u32 @ 16,
        /// Largest TCP segment seen from the client, estimated.
        rcv_mss_bytes: u32 @ 20,
        /// TCP segments in flight: sent and not acknowledged.
        unacked: u32 @ 24,
        /// Of those in flight, selectively acknowledged.
        sacked: u32 @ 28,
        /// Of those in flight, taken for lost.
        lost: u32 @ 32,
        /// Of those in flight, sent again.
        retrans: u32 @ 36,
        /// Since content was last sent.
        last_data_sent_ms: u32 @ 44,
        /// Since content was last received.
        last_data_recv_ms: u32 @ 52,
        /// Since the last acknowledgement.
        last_ack_recv_ms: u32 @ 56,
        /// Path MTU.
        pmtu_bytes: u32 @ 60,
        /// Slow start threshold of the receiving side, in bytes.
        rcv_ssthresh_bytes: u32 @ 64,
        /// Smoothed round trip.
        rtt_us: u32 @ 68,
        /// Mean deviation of the round trip.
        rttvar_us: u32 @ 72,
        /// Slow start threshold in TCP segments; [`SSTHRESH_INFINITE`] before the first loss.
        snd_ssthresh: u32 @ 76,
        /// Congestion window in TCP segments.
        snd_cwnd: u32 @ 80,
        /// Largest TCP segment advertised to the client.
        advmss_bytes: u32 @ 84,
        /// Reordering that is not taken for loss, in TCP segments.
        reordering: u32 @ 88,
        /// Round trip as the receiving side estimates it; 0 before the client has sent much.
        rcv_rtt_us: u32 @ 92,
        /// What the application read within the last round trip, by which the receive buffer grows.
        rcv_space_bytes: u32 @ 96,
        /// TCP segments sent again over the life of the connection.
        total_retrans: u32 @ 100,
    }
    since {
        /// Pacing rate, 3.15; `None` also where the kernel sets no limit.
        pacing_rate_bytes_per_s: u64 @ 104,
        /// Upper limit of the pacing rate (`SO_MAX_PACING_RATE`), 3.15; `None` also where there is no limit.
        max_pacing_rate_bytes_per_s: u64 @ 112,
        /// Bytes that the client acknowledged, 4.1.
        bytes_acked: u64 @ 120,
        /// Bytes received in order, 4.1.
        bytes_received: u64 @ 128,
        /// TCP segments sent, 4.2.
        segs_out: u32 @ 136,
        /// TCP segments received, 4.2.
        segs_in: u32 @ 140,
        /// Bytes in the send queue that were never sent, 4.6.
        notsent_bytes: u32 @ 144,
        /// Smallest round trip of the last `net.ipv4.tcp_min_rtt_wlen` seconds, 4.6; `None` also before the
        /// first.
        min_rtt_us: u32 @ 148,
        /// TCP segments with content received, 4.6.
        data_segs_in: u32 @ 152,
        /// TCP segments with content sent, 4.6.
        data_segs_out: u32 @ 156,
        /// Newest delivery rate sample, 4.9; 0 before the first.
        delivery_rate_bytes_per_s: u64 @ 160,
        /// Time with content in flight, 4.10.
        busy_time_us: u64 @ 168,
        /// Of the busy time, held back by the client's receive window, 4.10.
        rwnd_limited_us: u64 @ 176,
        /// Of the busy time, held back by the send buffer, 4.10.
        sndbuf_limited_us: u64 @ 184,
        /// TCP segments delivered, 4.18.
        delivered: u32 @ 192,
        /// Of those, with an ECN mark, 4.18.
        delivered_ce: u32 @ 196,
        /// Content bytes sent, those sent again included, 4.19.
        bytes_sent: u64 @ 200,
        /// Content bytes sent again, 4.19.
        bytes_retrans: u64 @ 208,
        /// Duplicates that the client reported: sent again for nothing, 4.19.
        dsack_dups: u32 @ 216,
        /// Reordering events, 4.19.
        reord_seen: u32 @ 220,
        /// TCP segments received out of order, 5.4.
        rcv_ooopack: u32 @ 224,
        /// The client's receive window, scaled, 5.4.
        snd_wnd_bytes: u32 @ 228,
        /// Own receive window, scaled, 6.2.
        rcv_wnd_bytes: u32 @ 232,
        /// Times the flow was given another path hash after a timeout, 6.2.
        rehash: u32 @ 236,
        /// Retransmission timeouts, 6.7.
        total_rto: u16 @ 240,
        /// Recoveries from a timeout, 6.7.
        total_rto_recoveries: u16 @ 242,
        /// Time spent in recoveries from timeouts, 6.7.
        total_rto_time_ms: u32 @ 244,
        /// TCP segments received with a congestion mark, 6.18.
        received_ce: u32 @ 248,
        /// Content bytes that the client reports as arrived marked ECT(1), 6.18.
        delivered_e1_bytes: u32 @ 252,
        /// Content bytes that the client reports as arrived marked ECT(0), 6.18.
        delivered_e0_bytes: u32 @ 256,
        /// Content bytes that the client reports as arrived with a congestion mark, 6.18.
        delivered_ce_bytes: u32 @ 260,
        /// Content bytes received marked ECT(1), 6.18.
        received_e1_bytes: u32 @ 264,
        /// Content bytes received marked ECT(0), 6.18.
        received_e0_bytes: u32 @ 268,
        /// Content bytes received with a congestion mark, 6.18.
        received_ce_bytes: u32 @ 272,
    }
}

impl TcpInfo {
    /// Asks the kernel. One `getsockopt`, no allocation: it runs at the end of every response.
    ///
    /// # Errors
    /// The system call's, or `InvalidData` if the answer is shorter than [`BYTES_MIN`].
    pub fn read(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let mut buffer = [0; BYTES_ASKED];
        let answer = sockopt::get(fd, (libc::IPPROTO_TCP, libc::TCP_INFO), &mut buffer)?;
        Self::decode(answer).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "tcp_info is shorter than Linux 3.14's")
        })
    }

    /// All ones is the kernel's "none yet" or "no limit" in three fields; as a number it would spoil every
    /// sum.
    fn without_sentinels(mut self) -> Self {
        self.min_rtt_us = self.min_rtt_us.filter(|&us| us != u32::MAX);
        self.pacing_rate_bytes_per_s = self.pacing_rate_bytes_per_s.filter(|&rate| rate != u64::MAX);
        self.max_pacing_rate_bytes_per_s = self.max_pacing_rate_bytes_per_s.filter(|&rate| rate != u64::MAX);
        self
    }
}

/// The `N` bytes of a field, if the answer reaches that far.
fn field<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests;
