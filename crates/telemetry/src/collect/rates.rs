//! Rates of a socket: its latest delivery rate sample, and its acknowledged goodput. Does no I/O.
//!
//! A connection is usually closed with a FIN that the kernel sends alone, after all content was
//! acknowledged. The kernel's latest sample is then that of the FIN: one TCP segment per round
//! trip, not marked as limited by the application (observed on Linux 6.18). This sample says
//! nothing about the path, but shows how long the FIN was in flight, which the kernel counts as
//! busy time.
//!
//! A FIN sent directly behind content is no exception: its sample covers the content in flight.

use thalweg_record::{Counters, KERNEL_BUSY_US_MIN};
use thalweg_tcp::diag::State;
use thalweg_tcp::info::TcpInfo;

/// A delivery rate sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeliveryRate {
    pub(super) bytes_per_s: u64,
    /// Whether the sample was limited by the application.
    pub(super) is_app_limited: bool,
}

impl DeliveryRate {
    /// Returns a sample, or `None` if the rate is zero, as before the first sample.
    pub(super) fn new(bytes_per_s: Option<u64>, is_app_limited: bool) -> Option<Self> {
        bytes_per_s.filter(|&rate| rate > 0).map(|bytes_per_s| Self { bytes_per_s, is_app_limited })
    }

    /// Returns the latest sample in `info`, or `None` if there is none or it is that of a FIN sent
    /// alone.
    pub(super) fn of(info: &TcpInfo, state: State) -> Option<Self> {
        Self::new(info.delivery_rate_bytes_per_s, info.delivery_rate_app_limited)
            .filter(|_| lone_fin_us(info, state).is_none())
    }
}

/// Returns how long a FIN sent alone was in flight, if the latest delivery rate sample is that of
/// such a FIN: the FIN was acknowledged, and the sample shows at most one TCP segment per minimum
/// RTT. The kernel discards shorter samples, so the rate of a lone FIN is never higher.
fn lone_fin_us(info: &TcpInfo, state: State) -> Option<u64> {
    let sample = DeliveryRate::new(info.delivery_rate_bytes_per_s, info.delivery_rate_app_limited)?;
    if matches!(state, State::Established | State::CloseWait) || sample.is_app_limited || !is_fin_acked(info)
    {
        return None;
    }
    let segment_us = u64::from(info.snd_mss_bytes) * 1_000_000;
    let sample_us = segment_us / sample.bytes_per_s;
    (sample_us >= info.min_rtt_us?.into()).then_some(sample_us)
}

/// Returns whether the other side acknowledged a FIN: the kernel counts it as an acknowledged byte,
/// but not as a sent byte. The SYN of a connection opened by this side is counted in the same way,
/// so this function may return true although no FIN was acknowledged. Also returns true if the
/// kernel does not count these bytes.
fn is_fin_acked(info: &TcpInfo) -> bool {
    let (Some(acked), Some(sent), Some(retrans)) = (info.bytes_acked, info.bytes_sent, info.bytes_retrans)
    else {
        return true;
    };
    acked > sent.saturating_sub(retrans)
}

/// Returns the acknowledged bytes per second over the time during which content was in flight and
/// not limited by the client's receive window. `counters` cover the interval that ends with `info`.
/// Returns `None` if the time is too short for the kernel's clock.
pub(super) fn acked_goodput(counters: &Counters, info: &TcpInfo, state: State) -> Option<u64> {
    let fin_us = lone_fin_us(info, state).unwrap_or(0);
    let busy_us = counters.busy_us.saturating_sub(counters.rwnd_limited_us).saturating_sub(fin_us);
    if busy_us < KERNEL_BUSY_US_MIN {
        return None;
    }
    let per_s = u128::from(counters.bytes_acked) * 1_000_000 / u128::from(busy_us);
    Some(u64::try_from(per_s).unwrap_or(u64::MAX))
}
