//! Sockets over their lives: what the kernel sums up becomes what happened since the record before. Pure.
//!
//! **Invariant:** what a socket counts while it is followed is in the counters of exactly one record, whatever dumps and events
//! are missed between, also over the agent's start where what was saved is known. What it had counted before a first dump without
//! that is in none: an agent before this one may have told it.
//! **Invariant:** a socket is in the sample for all of its life or not at all.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use thalweg_record::{Bbr, Cause, Counters, Gauges, SocketRecord};
use thalweg_tcp::CongestionControl;
use thalweg_tcp::diag::{Socket, State};
use thalweg_tcp::info::{SSTHRESH_INFINITE, TcpInfo};

use super::saved::{self, Known};
use crate::clock::Moment;

/// Sockets of a namespace that are followed; of more, every record would be a first one, so they are left out and counted.
pub(crate) const SOCKETS_MAX: usize = 1 << 20;

/// Dumps in a row that a socket may be missing from until it is forgotten, if its end may have been among events that were lost.
/// Where none were lost it is waited for: a socket that its peer has reset is in no dump, and is destroyed when it is closed.
const MISSED_DUMPS_MAX: u64 = 3;

/// The sockets of one network namespace.
#[derive(Debug)]
pub(crate) struct Tracker {
    namespace: Option<String>,
    one_in: NonZeroU32,
    sockets: HashMap<u64, Seen>,
    dumps: u64,
    /// The dump before which events were lost last.
    deaf: Option<u64>,
    untracked: u64,
    /// Whether it has begun with the sockets of an agent before, which count as seen in dump 0.
    goes_on: bool,
}

/// A socket as it was last seen.
#[derive(Debug)]
struct Seen {
    at: Instant,
    /// The dump in which it was.
    dump: u64,
    congestion_control: Option<CongestionControl>,
    totals: Counters,
}

impl Tracker {
    /// Nothing seen yet; of the sockets one in so many is followed.
    pub(crate) fn new(namespace: Option<String>, one_in: NonZeroU32) -> Self {
        Self {
            namespace,
            one_in,
            sockets: HashMap::new(),
            dumps: 0,
            deaf: None,
            untracked: 0,
            goes_on: false,
        }
    }

    /// One that goes on with what is known of sockets: others have begun since, and ends went unheard.
    pub(crate) fn going_on(
        namespace: Option<String>,
        one_in: NonZeroU32,
        known: HashMap<u64, Known>,
        now: Moment,
    ) -> Self {
        let seen = |known: Known| {
            let ago = Duration::from_micros(now.unix_us.saturating_sub(known.unix_us));
            let at = now.instant.checked_sub(ago).unwrap_or(now.instant);
            Seen { at, dump: 0, congestion_control: None, totals: known.totals }
        };
        let sockets = known.into_iter().map(|(cookie, known)| (cookie, seen(known))).collect();
        Self { sockets, dumps: 1, deaf: Some(1), goes_on: true, ..Self::new(namespace, one_in) }
    }

    /// Adds what is known to what is saved.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        let sockets = self.sockets.iter().map(|(cookie, seen)| (*cookie, &seen.totals));
        saved::namespace(self.namespace.as_deref().unwrap_or_default(), sockets, out);
    }

    /// A socket in the dump that is under way.
    pub(crate) fn dumped(&mut self, socket: &Socket, now: Moment) -> Option<SocketRecord> {
        if !self.is_sampled(socket.cookie) {
            return None;
        }
        // Closed here first, it is a shadow of itself for a while, under its cookie: its last words have been, or come.
        let Some(info) = &socket.tcp_info else {
            if let Some(seen) = self.sockets.get_mut(&socket.cookie) {
                seen.dump = self.dumps;
            }
            return None;
        };
        let seen = Seen {
            at: now.instant,
            dump: self.dumps,
            congestion_control: socket.congestion_control,
            totals: totals(info),
        };
        if self.sockets.len() >= SOCKETS_MAX && !self.sockets.contains_key(&socket.cookie) {
            self.untracked += 1;
            return None;
        }
        let before = self.sockets.insert(socket.cookie, seen);
        Some(self.record(socket, Cause::Dump, before.as_ref(), now))
    }

    /// The last words of a socket. One that has neither an other end nor a `tcp_info` was never a connection.
    pub(crate) fn destroyed(&mut self, socket: &Socket, now: Moment) -> Option<SocketRecord> {
        let before = self.sockets.remove(&socket.cookie);
        if !self.is_sampled(socket.cookie) || socket.remote.port() == 0 || socket.tcp_info.is_none() {
            return None;
        }
        Some(self.record(socket, Cause::Destroy, before.as_ref(), now))
    }

    /// Events of destroyed sockets were lost since this was told last.
    pub(crate) fn lost_events(&mut self) {
        self.deaf = Some(self.dumps);
    }

    /// Ends a dump: who was in none of the last ones, and may have gone unheard, is forgotten.
    pub(crate) fn end_dump(&mut self) {
        let (dumps, deaf, goes_on) = (self.dumps, self.deaf, self.goes_on);
        let untracked = &mut self.untracked;
        self.sockets.retain(|_, seen| {
            let stays = dumps - seen.dump <= MISSED_DUMPS_MAX || deaf.is_none_or(|deaf| seen.dump >= deaf);
            // Its end was before this agent's start: nobody has counted that yet.
            *untracked += u64::from(!stays && goes_on && seen.dump == 0);
            stays
        });
        self.dumps += 1;
    }

    /// Samples that are missing and were not told of yet: [`SOCKETS_MAX`] were followed already, or a socket ended while no agent
    /// was there.
    pub(crate) fn take_untracked(&mut self) -> u64 {
        std::mem::take(&mut self.untracked)
    }

    /// Cookies count up, so their order says nothing: a multiplicative hash spreads them.
    fn is_sampled(&self, cookie: u64) -> bool {
        let hash = cookie.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        hash.is_multiple_of(self.one_in.get().into())
    }

    fn record(&self, socket: &Socket, cause: Cause, before: Option<&Seen>, now: Moment) -> SocketRecord {
        let known = socket.congestion_control.or_else(|| before.and_then(|seen| seen.congestion_control));
        let elapsed = before.map(|seen| now.instant.saturating_duration_since(seen.at));
        SocketRecord {
            time_unix_us: now.unix_us,
            client: socket.remote_unmapped(),
            local: socket.local_unmapped(),
            cookie: socket.cookie,
            namespace: self.namespace.clone(),
            state: socket.state.as_str().to_owned(),
            cause,
            sample_one_in: (self.one_in > NonZeroU32::MIN).then_some(self.one_in),
            interval_us: elapsed.map(|elapsed| u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)),
            congestion_control: known.map(|name| name.to_string()),
            gauges: socket.tcp_info.as_ref().map(|info| gauges(info, may_send(socket.state))),
            counters: socket.tcp_info.as_ref().and_then(|info| match before {
                Some(seen) => Some(since(&totals(info), &seen.totals)),
                None if self.dumps == 0 => None,
                None => Some(totals(info)),
            }),
            bbr: socket.bbr.map(|bbr| Bbr {
                bw_bytes_per_s: bbr.bw_bytes_per_s,
                min_rtt_us: bbr.min_rtt_us,
                pacing_gain_256th: bbr.pacing_gain_per_256,
                cwnd_gain_256th: bbr.cwnd_gain_per_256,
            }),
        }
    }
}

/// Whether this side may still send content. Once it has closed, the kernel's newest delivery rate is that of the FIN, one packet in a
/// round trip, and is not marked as limited by the application (seen on Linux 6.18).
fn may_send(state: State) -> bool {
    matches!(state, State::Established | State::CloseWait)
}

fn gauges(info: &TcpInfo, may_send: bool) -> Gauges {
    Gauges {
        rtt_us: info.rtt_us,
        rttvar_us: info.rttvar_us,
        min_rtt_us: info.min_rtt_us,
        rto_us: info.rto_us,
        snd_cwnd: info.snd_cwnd,
        snd_ssthresh: (info.snd_ssthresh != SSTHRESH_INFINITE).then_some(info.snd_ssthresh),
        snd_mss_bytes: info.snd_mss_bytes,
        pmtu_bytes: info.pmtu_bytes,
        unacked: info.unacked,
        lost: info.lost,
        reordering: info.reordering,
        ca_state: info.ca_state,
        delivery_rate_bytes_per_s: info.delivery_rate_bytes_per_s.filter(|&rate| rate > 0 && may_send),
        delivery_rate_app_limited: info.delivery_rate_app_limited,
        pacing_rate_bytes_per_s: info.pacing_rate_bytes_per_s,
        notsent_bytes: info.notsent_bytes,
        snd_wnd_bytes: info.snd_wnd_bytes,
    }
}

/// Declares what is counted: the record's counter, and the kernel's sum.
macro_rules! counters {
    ($info:ident: $($name:ident = $total:expr;)*) => {
        /// What the kernel has summed up since the socket was made.
        fn totals($info: &TcpInfo) -> Counters {
            Counters { timeouts: $info.total_rto.unwrap_or(0).into(), $($name: $total,)* }
        }

        /// Adds what came to `totals`.
        pub(super) fn add(totals: &mut Counters, more: &Counters) {
            totals.timeouts = totals.timeouts.wrapping_add(more.timeouts) & u32::from(u16::MAX);
            $(totals.$name = totals.$name.wrapping_add(more.$name);)*
        }

        /// Gives every counter, in order.
        pub(super) fn put_counters(counters: &Counters, mut put: impl FnMut(u64)) {
            put(counters.timeouts.into());
            $(put(counters.$name.into());)*
        }

        /// Takes every counter in that order; nothing where one is missing or too large.
        pub(super) fn take_counters(mut take: impl FnMut() -> Option<u64>) -> Option<Counters> {
            let timeouts = take()?.try_into().ok()?;
            Some(Counters { timeouts, $($name: take()?.try_into().ok()?,)* })
        }

        /// What came to `before`. Counters of 32 bits go round; those of 64 do not, so one that went down says that the socket
        /// was connected anew (`tcp_disconnect` sets all to zero).
        fn since(totals: &Counters, before: &Counters) -> Counters {
            let is_anew = totals.bytes_acked < before.bytes_acked
                || totals.bytes_received < before.bytes_received
                || totals.bytes_sent < before.bytes_sent;
            if is_anew {
                return totals.clone();
            }
            Counters {
                // The kernel has 16 bits of it.
                timeouts: totals.timeouts.wrapping_sub(before.timeouts) & u32::from(u16::MAX),
                $($name: totals.$name.wrapping_sub(before.$name),)*
            }
        }
    };
}

counters! { info:
    bytes_acked = info.bytes_acked.unwrap_or(0);
    bytes_received = info.bytes_received.unwrap_or(0);
    bytes_sent = info.bytes_sent.unwrap_or(0);
    bytes_retrans = info.bytes_retrans.unwrap_or(0);
    segs_out = info.segs_out.unwrap_or(0);
    segs_in = info.segs_in.unwrap_or(0);
    data_segs_out = info.data_segs_out.unwrap_or(0);
    retransmits = info.total_retrans;
    delivered = info.delivered.unwrap_or(0);
    delivered_ce = info.delivered_ce.unwrap_or(0);
    dsack_dups = info.dsack_dups.unwrap_or(0);
    reord_seen = info.reord_seen.unwrap_or(0);
    busy_us = info.busy_time_us.unwrap_or(0);
    rwnd_limited_us = info.rwnd_limited_us.unwrap_or(0);
    sndbuf_limited_us = info.sndbuf_limited_us.unwrap_or(0);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
