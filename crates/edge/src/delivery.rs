//! Delivery: how much of each response the client's kernel acknowledged, and when.
//!
//! The kernel accepts a response long before the client has received it: up to the size of the send
//! buffer, which depends on the congestion control. The record of a response of at least
//! [`Config::delivery_bytes_min`](crate::Config) therefore waits here until the last byte is
//! acknowledged.
//!
//! - **Busy time** is how long the response had unacknowledged bytes. If all content was available,
//!   that is from the first byte written to the last byte acknowledged, without the time in which
//!   an earlier response on the connection was still being acknowledged. If the response waited for
//!   content (a fill, a live stream), it is the kernel's own busy time, so that the source's pace
//!   is not mistaken for the network's. In both cases, the time in which the client's receive
//!   window held the response back is subtracted, so that a client that reads slowly is not
//!   mistaken for a slow network. The kernel counts that time for the connection, in ticks.
//! - **The last packet** may be acknowledged late: clients delay the acknowledgement of a packet
//!   that no other packet follows. The time is therefore that of the byte before the last full
//!   packet, extended in proportion to the bytes after it.
//! - **Testable rate** is the highest rate that the response could have shown, given its size, the
//!   congestion window at its start and the minimum round-trip time; [`Ideal`] computes it. It and
//!   the verdict for HD video are without the last packet. Responses that were written back to back
//!   are judged together: the last one's record has the verdict.
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
use crate::transport::socket::{Acked, PathState, Socket, Span};
use ideal::Ideal;

mod ideal;

/// Maximum number of responses on a connection that wait for acknowledgement. Only pipelining
/// clients cause more than one.
const WAITING_MAX: usize = 16;
/// Minimum bytes from the start of a measured response of a connection to the start of the next
/// one, unless they overlap. A timestamp costs two system calls and a wake-up: 6 µs on loopback,
/// where sending 100 kB costs 20 µs, so that measuring each response would cost 30 %, and measuring
/// one per megabyte costs 3 %. Which responses are measured depends on their sizes alone, never on
/// how fast they were.
const MEASURE_EVERY_BYTES: u64 = 1_000_000;
/// Idle time after which the kernel may reduce the congestion window: its minimum retransmission
/// timeout.
const IDLE_MIN: Duration = Duration::from_millis(200);
/// Target rate that each response is tested against, as in the publication: enough for HD video.
const HD_BYTES_PER_S: u64 = 2_500_000 / 8;

/// A response that was written and not yet acknowledged to its end.
#[derive(Debug)]
struct Waiting {
    span: Span,
    record: Deferred,
    /// When the stamped byte was acknowledged.
    stamped_at: Option<Instant>,
}

/// Responses that were written before the previous one was acknowledged, so far.
#[derive(Debug)]
struct Joined {
    /// Position of the first byte.
    start: u64,
    /// The path's state at the first byte.
    path: Option<PathState>,
    busy: Option<Duration>,
}

/// What was measured of a response.
struct Measured {
    /// The path's state at the first byte.
    before: Option<PathState>,
    /// Position up to which the response was acknowledged in `busy`.
    position: u64,
    busy: Option<Duration>,
    /// Whether the next response was written before this one was acknowledged.
    is_followed: bool,
}

/// Responses of a connection that were written and not yet acknowledged, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    waiting: VecDeque<Waiting>,
    /// Position of the first byte of the newest measured response.
    last_measured: Option<u64>,
    /// When the last byte of the previous response was acknowledged.
    last_acked: Option<Instant>,
    /// The path's state after the last response, for the next one. Of the time limited by the
    /// receive window, it has the part attributed to earlier responses.
    path: Option<PathState>,
    /// Acknowledged responses that the next one follows without a gap.
    joined: Option<Joined>,
    /// The newest response with a goodput.
    last: Option<Delivered>,
}

impl Deliveries {
    /// Returns whether a response waits for its acknowledgement.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the next response is to be measured, which starts at the position `written`.
    pub(crate) fn is_due(&mut self, written: u64) -> bool {
        let is_far = |last: u64| written.saturating_sub(last) >= MEASURE_EVERY_BYTES;
        let is_due = self.are_waiting() || self.last_measured.is_none_or(is_far);
        if !is_due {
            // The next response changes the state.
            self.path = None;
        }
        is_due
    }

    /// Whether the path's state must be read again at the start of the next response: it is not
    /// known, or the kernel may reduce the congestion window because the connection was idle.
    pub(crate) fn needs_path_state(&self) -> bool {
        self.waiting.is_empty()
            && (self.path.is_none() || self.last_acked.is_none_or(|at| at.elapsed() >= IDLE_MIN))
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
        self.last_measured = Some(span.start);
        self.waiting.push_back(Waiting { span, record, stamped_at: None });
    }

    /// Writes the records of the responses that have been acknowledged.
    pub(crate) fn collect(&mut self, socket: &Socket, steering: &Steering) {
        if self.waiting.is_empty() {
            return;
        }
        let clocks = (Instant::now(), SystemTime::now());
        while self.waiting.iter().any(|response| response.stamped_at.is_none())
            && let Some(acked) = socket.next_ack()
        {
            let at = instant(acked, clocks);
            let is_acked = |response: &&mut Waiting| response.span.stamped <= acked.position;
            for response in self.waiting.iter_mut().take_while(is_acked) {
                response.stamped_at.get_or_insert(at);
            }
        }
        if self.waiting.front().is_none_or(|response| response.stamped_at.is_none()) {
            return;
        }
        let info = socket.with_fd(TcpInfo::read).ok();
        let all_acked = info.as_ref().and_then(|info| info.bytes_acked).unwrap_or(u64::MAX);
        let is_acked =
            |response: &mut Waiting| response.stamped_at.is_some() && response.span.end <= all_acked;
        while let Some(response) = self.waiting.pop_front_if(is_acked) {
            self.finish(response, true, info.as_ref(), steering);
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
        while let Some(response) = self.waiting.pop_front() {
            self.finish(response, false, info.as_ref(), steering);
        }
    }

    /// Writes the record of a response that was acknowledged to its end, or that is censored now.
    fn finish(&mut self, response: Waiting, is_acked: bool, info: Option<&TcpInfo>, steering: &Steering) {
        let Waiting { span, record, stamped_at } = response;
        let (now, stamped_at) = (Instant::now(), stamped_at.filter(|_| is_acked));
        let end = stamped_at.unwrap_or(now);
        let all_acked = info.and_then(|info| info.bytes_acked).unwrap_or(0);
        let start = self.last_acked.map_or(span.first_byte, |last| last.max(span.first_byte));
        let busy = match span.busy_before {
            None => Some(end.saturating_duration_since(start)),
            Some(before) => info
                .and_then(|info| info.busy_time_us)
                .map(|now| Duration::from_micros(now).saturating_sub(before)),
        };
        let before = span.at_start.or(self.path);
        let limited = self.attribute_rwnd_limited(before, busy, info);
        let measured = Measured {
            before,
            position: if is_acked { span.stamped } else { all_acked.clamp(span.start, span.end) },
            busy: busy.map(|busy| busy.saturating_sub(limited)),
            is_followed: self.waiting.front().is_some_and(|next| next.span.first_byte < end),
        };
        let rest = if is_acked { extension(&span, measured.busy) } else { Duration::ZERO };
        let (testable, reached_hd) = self.judge(&span, &measured, info).unzip();
        let acked = stamped_at.map(|at| (at + rest).min(now));
        let written = span.end - span.start;
        let framing = written.saturating_sub(record.content_bytes());
        let acked_bytes = if is_acked { written } else { measured.position - span.start };
        let mut delivery = Delivery {
            // The head is sent first. In a cut response, the position of the chunk framing is
            // unknown, so all framing counts as sent first.
            acked_bytes: acked_bytes.saturating_sub(framing),
            acked_us: None,
            busy_us: measured.busy.map(|busy| micros(busy + rest)),
            testable_bytes_per_s: testable,
            reached_hd: reached_hd.flatten(),
            is_source_limited: span.busy_before.is_some(),
            rwnd_limited_us: Some(micros(limited)).filter(|&us| us > 0),
        };
        if delivery.goodput_bytes_per_s().is_none() {
            // Without a rate of the path, it is unknown whether the path reached that of HD.
            delivery.reached_hd = None;
        }
        self.last_acked = acked.or(self.last_acked);
        if let Some(goodput_bytes_per_s) = delivery.goodput_bytes_per_s() {
            self.last = Some(Delivered { goodput_bytes_per_s, testable_bytes_per_s: testable.unwrap_or(0) });
        }
        record.write(info.and_then(|info| Tcp::of(info, steering)), acked, Some(delivery));
    }

    /// Returns the testable rate of a response and of those that it followed without a gap, and
    /// whether they reached the rate of HD video, if it was testable. `None` if the next response
    /// belongs to them, or without the data.
    fn judge(
        &mut self,
        span: &Span,
        measured: &Measured,
        info: Option<&TcpInfo>,
    ) -> Option<(u64, Option<bool>)> {
        let first = Joined { start: span.start, path: measured.before, busy: Some(Duration::ZERO) };
        let mut joined = self.joined.take().unwrap_or(first);
        joined.busy = joined.busy.zip(measured.busy).map(|(before, busy)| before + busy);
        if measured.is_followed {
            self.joined = Some(joined);
            return None;
        }
        let ideal = Ideal {
            bytes: measured.position - joined.start,
            window_bytes: joined.path.map_or(0, |path| path.window_bytes),
            min_rtt: Duration::from_micros(info.and_then(|info| info.min_rtt_us).unwrap_or(0).into()),
        };
        let testable = ideal.testable_bytes_per_s()?;
        let is_testable = testable >= HD_BYTES_PER_S;
        let reached_hd =
            joined.busy.filter(|_| is_testable).map(|busy| busy <= ideal.time_at(HD_BYTES_PER_S));
        Some((testable, reached_hd))
    }

    /// Returns the part of a response's busy time in which the client's receive window held it
    /// back, and keeps the path's state for the next response.
    fn attribute_rwnd_limited(
        &mut self,
        before: Option<PathState>,
        busy: Option<Duration>,
        info: Option<&TcpInfo>,
    ) -> Duration {
        self.path = info.map(PathState::of);
        let attributed = before.and_then(|before| before.rwnd_limited);
        let now = self.path.and_then(|path| path.rwnd_limited);
        let Some((attributed, now)) = attributed.zip(now) else { return Duration::ZERO };
        let limited = now.saturating_sub(attributed).min(busy.unwrap_or_default());
        // The rest may have held back responses that were written before this one was acknowledged.
        if !self.waiting.is_empty()
            && let Some(path) = &mut self.path
        {
            path.rwnd_limited = Some(attributed + limited);
        }
        limited
    }
}

impl Drop for Deliveries {
    /// Writes the remaining records when the connection's worker stops.
    fn drop(&mut self) {
        for Waiting { record, .. } in self.waiting.drain(..) {
            record.write(None, None, None);
        }
    }
}

/// Returns the time that the bytes after the stamped one take at the rate of those before it.
fn extension(span: &Span, busy: Option<Duration>) -> Duration {
    let (timed, rest) = (span.stamped - span.start, span.end - span.stamped);
    busy.map_or(Duration::ZERO, |busy| busy.mul_f64(rest as f64 / timed.max(1) as f64))
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
