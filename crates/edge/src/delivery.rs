//! Delivery: how much of each response the client's kernel acknowledged, and when.
//!
//! The kernel accepts a response long before the client has received it: up to the size of the send
//! buffer, which depends on the congestion control. The record of a response of at least
//! [`Config::delivery_bytes_min`](crate::Config) therefore waits here until the last byte is
//! acknowledged.
//!
//! - **Busy time** is the time during which the response had unacknowledged bytes. If all content
//!   was available, busy time extends from the first byte written to the last byte acknowledged,
//!   excluding the time in which an earlier response on the connection was still being
//!   acknowledged. If the response waited for content (a fill, a live stream), the kernel's own
//!   busy time is used, so that a slow source is not mistaken for a slow network.
//! - **Testable rate** is the highest rate that the response could have shown, given its size, the
//!   congestion window at its start and the minimum round-trip time; [`Ideal`] computes it.
//!
//! A response that is cut, or not fully acknowledged when its connection closes, is censored: its
//! record contains the number of bytes acknowledged so far, but no acknowledgement time.
//!
//! Source: Schlinker et al., "Internet Performance from Facebook's Edge" (IMC 2019), section 3.2.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

use thalweg_policy::task::Delivered;
use thalweg_record::Delivery;
use thalweg_tcp::TcpInfo;

use crate::log::Deferred;
use crate::steering::{Steering, Tcp};
use crate::transport::socket::{Acked, Socket, Span};
use ideal::Ideal;

mod ideal;

/// Maximum number of responses on a connection that wait for acknowledgement. Only pipelining
/// clients cause more than one.
const WAITING_MAX: usize = 16;
/// Minimum time between the first bytes of two measured responses on a connection, unless the
/// responses overlap. A timestamp costs two system calls and an event, which is a tenth of the cost
/// of a 100 kB hit. Only clients close to the edge can receive responses more often than this.
const MEASURE_EVERY_MIN: Duration = Duration::from_millis(20);
/// Idle time after which the kernel may reduce the congestion window: the minimum retransmission
/// timeout.
const IDLE_MIN: Duration = Duration::from_millis(200);
/// Target rate that each response is tested against, as in the publication: enough for HD video.
const HD_BYTES_PER_S: u64 = 2_500_000 / 8;

/// Responses on a connection that have been written but not yet acknowledged, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    waiting: VecDeque<(Span, Deferred)>,
    /// When the first byte of the newest measured response was written.
    last_measured: Option<Instant>,
    /// When the last byte of the previous response was acknowledged.
    last_acked: Option<Instant>,
    /// Congestion window when the last acknowledgement was collected, in bytes.
    window_bytes: Option<u64>,
    /// Rates of the newest response that has a goodput.
    last: Option<Delivered>,
}

impl Deliveries {
    /// Returns whether a response waits for its acknowledgement.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether to measure the next response.
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due =
            self.are_waiting() || self.last_measured.is_none_or(|at| at.elapsed() >= MEASURE_EVERY_MIN);
        if !is_due {
            // The next response changes the window, and will not be measured.
            self.window_bytes = None;
        }
        is_due
    }

    /// Returns whether the congestion window must be read again at the start of the next response:
    /// the window is unknown, or the kernel may have reduced it while the connection was idle.
    pub(crate) fn needs_window(&self) -> bool {
        self.waiting.is_empty()
            && (self.window_bytes.is_none() || self.last_acked.is_none_or(|at| at.elapsed() >= IDLE_MIN))
    }

    /// Returns the rates of the newest response that has a goodput.
    pub(crate) fn last(&self) -> Option<Delivered> {
        self.last
    }

    /// Adds a written response, whose record waits for the acknowledgement.
    pub(crate) fn push(&mut self, span: Span, record: Deferred, socket: &Socket, steering: &Steering) {
        if self.waiting.len() == WAITING_MAX {
            self.collect(socket, steering);
        }
        if self.waiting.len() == WAITING_MAX {
            self.settle(socket, steering);
        }
        self.last_measured = Some(span.first_byte);
        self.waiting.push_back((span, record));
    }

    /// Writes the records of the responses that have been acknowledged.
    pub(crate) fn collect(&mut self, socket: &Socket, steering: &Steering) {
        if self.waiting.is_empty() {
            return;
        }
        let clocks = (Instant::now(), SystemTime::now());
        let mut info = None;
        while !self.waiting.is_empty()
            && let Some(acked) = socket.next_ack()
        {
            let at = instant(acked, clocks);
            while let Some((span, record)) = self.waiting.pop_front_if(|(span, _)| span.end <= acked.position)
            {
                let info = info.get_or_insert_with(|| socket.with_fd(TcpInfo::read).ok());
                self.finish(span, record, Some(at), info.as_ref(), steering);
            }
        }
    }

    /// Writes the records of all waiting responses, with the bytes of each that have been
    /// acknowledged.
    pub(crate) fn settle(&mut self, socket: &Socket, steering: &Steering) {
        self.collect(socket, steering);
        if self.waiting.is_empty() {
            return;
        }
        let info = socket.with_fd(TcpInfo::read).ok();
        while let Some((span, record)) = self.waiting.pop_front() {
            self.finish(span, record, None, info.as_ref(), steering);
        }
    }

    /// Writes the record of a response: `acked` is when its last byte was acknowledged, or `None`
    /// for a response that is censored.
    fn finish(
        &mut self,
        span: Span,
        record: Deferred,
        acked: Option<Instant>,
        info: Option<&TcpInfo>,
        steering: &Steering,
    ) {
        let written = span.end - span.start;
        let framing = written.saturating_sub(record.content_bytes());
        let acked_bytes = match (acked, info.and_then(|info| info.bytes_acked)) {
            (Some(_), _) => written,
            (None, Some(acked)) => acked.saturating_sub(span.start).min(written),
            (None, None) => 0,
        };
        let end = acked.unwrap_or_else(Instant::now);
        let start = self.last_acked.map_or(span.first_byte, |last| last.max(span.first_byte));
        let busy = match span.busy_before {
            None => Some(end.saturating_duration_since(start)),
            Some(before) => info
                .and_then(|info| info.busy_time_us)
                .map(|now| Duration::from_micros(now).saturating_sub(before)),
        };
        let ideal = Ideal {
            bytes: acked_bytes,
            window_bytes: span.window_bytes.or(self.window_bytes).unwrap_or(0),
            min_rtt: Duration::from_micros(info.and_then(|info| info.min_rtt_us).unwrap_or(0).into()),
        };
        let testable = ideal.testable_bytes_per_s();
        let reached_hd = testable
            .filter(|&testable| testable >= HD_BYTES_PER_S)
            .and(busy)
            .map(|busy| busy <= ideal.time_at(HD_BYTES_PER_S));
        let delivery = Delivery {
            // The head is sent first. In a cut response, the position of the chunk framing is
            // unknown, so all framing counts as sent first.
            acked_bytes: acked_bytes.saturating_sub(framing),
            acked_us: None,
            busy_us: busy.map(micros),
            testable_bytes_per_s: testable,
            reached_hd,
            is_source_limited: span.busy_before.is_some(),
        };
        self.last_acked = acked.or(self.last_acked);
        self.window_bytes = info.map(window_bytes);
        if let Some(goodput_bytes_per_s) = delivery.goodput_bytes_per_s() {
            self.last = Some(Delivered { goodput_bytes_per_s, testable_bytes_per_s: testable.unwrap_or(0) });
        }
        record.write(info.and_then(|info| Tcp::of(info, steering)), acked, Some(delivery));
    }
}

impl Drop for Deliveries {
    /// Writes the remaining records when the connection's worker stops.
    fn drop(&mut self) {
        for (_, record) in self.waiting.drain(..) {
            record.write(None, None, None);
        }
    }
}

/// Returns the congestion window in bytes.
pub(crate) fn window_bytes(info: &TcpInfo) -> u64 {
    u64::from(info.snd_cwnd) * u64::from(info.snd_mss_bytes)
}

/// Converts an acknowledgement's time from the system clock; `now` and `system_now` are the current
/// times of both clocks.
fn instant(acked: Acked, (now, system_now): (Instant, SystemTime)) -> Instant {
    let ago = system_now.duration_since(acked.at).unwrap_or_default();
    now.checked_sub(ago).unwrap_or(now)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
