//! Counters of a socket: the kernel's totals, their differences, and their saved form. Does no I/O.

use thalweg_record::Counters;
use thalweg_tcp::TcpInfo;

/// Declares the counters, in the order of their saved form: each record field, the width of the
/// kernel's counter in bits, and the kernel's total. New counters are added at the end.
macro_rules! counters {
    ($info:ident: $($name:ident: $bits:ident = $total:expr;)*) => {
        /// Number of counters.
        pub(super) const COUNTERS: u64 = [$(stringify!($name)),*].len() as u64;

        /// Returns the kernel's totals since the socket was created.
        pub(super) fn totals($info: &TcpInfo) -> Counters {
            Counters { $($name: $total,)* }
        }

        /// Adds `more` to `totals`.
        pub(super) fn add(totals: &mut Counters, more: &Counters) {
            $(totals.$name = wrapped!($bits totals.$name.wrapping_add(more.$name));)*
        }

        /// Passes every counter to `put`, in order.
        pub(super) fn write_counters(counters: &Counters, mut put: impl FnMut(u64)) {
            $(put(counters.$name.into());)*
        }

        /// Reads all counters in the order of [`write_counters`]. Returns `None` if a counter is
        /// out of range or `take` returns `None`.
        pub(super) fn read_counters(mut take: impl FnMut() -> Option<u64>) -> Option<Counters> {
            Some(Counters { $($name: take()?.try_into().ok()?,)* })
        }

        /// Returns the difference from `before`. Shorter counters may wrap around. 64-bit counters
        /// do not, so a lower value means that the socket was reconnected (`tcp_disconnect` resets
        /// all counters to zero).
        pub(super) fn since(totals: &Counters, before: &Counters) -> Counters {
            let is_reset = totals.bytes_acked < before.bytes_acked
                || totals.bytes_received < before.bytes_received
                || totals.bytes_sent < before.bytes_sent;
            if is_reset {
                return totals.clone();
            }
            Counters { $($name: wrapped!($bits totals.$name.wrapping_sub(before.$name)),)* }
        }
    };
}

/// Reduces a number to the width of the kernel's counter.
macro_rules! wrapped {
    (u16 $number:expr) => {
        $number & u32::from(u16::MAX)
    };
    ($bits:ident $number:expr) => {
        $number
    };
}

counters! { info:
    timeouts: u16 = info.total_rto.unwrap_or(0).into();
    bytes_acked: u64 = info.bytes_acked.unwrap_or(0);
    bytes_received: u64 = info.bytes_received.unwrap_or(0);
    bytes_sent: u64 = info.bytes_sent.unwrap_or(0);
    bytes_retrans: u64 = info.bytes_retrans.unwrap_or(0);
    segs_out: u32 = info.segs_out.unwrap_or(0);
    segs_in: u32 = info.segs_in.unwrap_or(0);
    data_segs_out: u32 = info.data_segs_out.unwrap_or(0);
    retransmits: u32 = info.total_retrans;
    delivered: u32 = info.delivered.unwrap_or(0);
    delivered_ce: u32 = info.delivered_ce.unwrap_or(0);
    dsack_dups: u32 = info.dsack_dups.unwrap_or(0);
    reord_seen: u32 = info.reord_seen.unwrap_or(0);
    busy_us: u64 = info.busy_time_us.unwrap_or(0);
    rwnd_limited_us: u64 = info.rwnd_limited_us.unwrap_or(0);
    sndbuf_limited_us: u64 = info.sndbuf_limited_us.unwrap_or(0);
    data_segs_in: u32 = info.data_segs_in.unwrap_or(0);
    rcv_ooopack: u32 = info.rcv_ooopack.unwrap_or(0);
    rehash: u32 = info.rehash.unwrap_or(0);
    timeout_recoveries: u16 = info.total_rto_recoveries.unwrap_or(0).into();
    timeout_recovery_ms: u32 = info.total_rto_time_ms.unwrap_or(0);
    received_ce: u32 = info.received_ce.unwrap_or(0);
    delivered_e1_bytes: u32 = info.delivered_e1_bytes.unwrap_or(0);
    delivered_e0_bytes: u32 = info.delivered_e0_bytes.unwrap_or(0);
    delivered_ce_bytes: u32 = info.delivered_ce_bytes.unwrap_or(0);
    received_e1_bytes: u32 = info.received_e1_bytes.unwrap_or(0);
    received_e0_bytes: u32 = info.received_e0_bytes.unwrap_or(0);
    received_ce_bytes: u32 = info.received_ce_bytes.unwrap_or(0);
}
