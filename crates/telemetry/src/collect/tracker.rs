//! Socket tracker: converts the kernel's running totals into counts since the socket's previous
//! record. Does no I/O and reads no clock.
//!
//! **Invariant:** each byte that a socket counts while tracked appears in exactly one record, even
//! if dumps or events are missed. This holds across agent restarts if the saved state survives.
//! Otherwise, counts from before the first dump are dropped, because a previous agent may have
//! reported them.
//! **Invariant:** a socket is sampled for its entire lifetime or not at all.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use thalweg_record::{Cause, Counters, SocketRecord};
use thalweg_tcp::diag::Socket;
use thalweg_tcp::{CongestionControl, TcpInfo};

use super::counters::{since, totals};
use super::join::Ended;
use super::kernel::{attributes, bbr, gauges, memory};
use super::rates::{DeliveryRate, acked_goodput};
use super::saved::{self, SavedSocket};
use crate::clock::Moment;

/// Maximum number of sockets tracked per namespace. Above it, new sockets are skipped and counted.
/// Evicting tracked sockets instead would lose the totals from which the next differences are
/// computed.
pub(crate) const SOCKETS_MAX: usize = 1 << 20;

/// Maximum number of consecutive dumps without a socket before it is dropped, if its destroy event
/// may have been lost. If no events were lost, the socket is kept. A socket reset by its client,
/// for example, is in no further dump, but its destroy event arrives once the application closes
/// it.
const MISSED_DUMPS_MAX: u64 = 3;

/// Tracked sockets of one network namespace.
#[derive(Debug)]
pub struct Tracker {
    namespace: Option<String>,
    one_in: NonZeroU32,
    sockets: HashMap<u64, Seen>,
    dumps: u64,
    /// Value of `dumps` when events were last lost.
    events_lost_at: Option<u64>,
    untracked: u64,
    /// Whether the tracker was restored from saved sockets. These count as seen in dump 0.
    is_resumed: bool,
}

/// Last observation of a socket.
#[derive(Debug)]
struct Seen {
    at: Instant,
    /// Number of the last dump that contained the socket.
    dump: u64,
    congestion_control: Option<CongestionControl>,
    delivery_rate: Option<DeliveryRate>,
    totals: Counters,
}

impl Tracker {
    /// Creates an empty tracker that samples one in `one_in` sockets.
    pub fn new(namespace: Option<String>, one_in: NonZeroU32) -> Self {
        Self {
            namespace,
            one_in,
            sockets: HashMap::new(),
            dumps: 0,
            events_lost_at: None,
            untracked: 0,
            is_resumed: false,
        }
    }

    /// Creates a tracker that continues from saved sockets. Sockets may have been opened, and
    /// destroy events missed, since the state was saved.
    pub(crate) fn resumed(
        namespace: Option<String>,
        one_in: NonZeroU32,
        known: HashMap<u64, SavedSocket>,
        now: Moment,
    ) -> Self {
        let seen = |known: SavedSocket| {
            let ago = Duration::from_micros(now.unix_us.saturating_sub(known.unix_us));
            let at = now.instant.checked_sub(ago).unwrap_or(now.instant);
            Seen { at, dump: 0, congestion_control: None, delivery_rate: None, totals: known.totals }
        };
        let sockets = known.into_iter().map(|(cookie, known)| (cookie, seen(known))).collect();
        Self { sockets, dumps: 1, events_lost_at: Some(1), is_resumed: true, ..Self::new(namespace, one_in) }
    }

    /// Appends the encoded totals of all tracked sockets to `out`.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        let sockets = self.sockets.iter().map(|(cookie, seen)| (*cookie, &seen.totals));
        saved::namespace(self.namespace.as_deref().unwrap_or_default(), sockets, out);
    }

    /// Processes a socket found in the current dump.
    pub fn dumped(&mut self, socket: &Socket, now: Moment) -> Option<SocketRecord> {
        if !self.is_sampled(socket.cookie) {
            return None;
        }
        // If this side closed first, the kernel keeps a placeholder socket under the same cookie
        // for a while, without `tcp_info`. The destroy event may arrive before or after it is
        // dumped.
        let Some(info) = &socket.tcp_info else {
            if let Some(seen) = self.sockets.get_mut(&socket.cookie) {
                seen.dump = self.dumps;
            }
            return None;
        };
        if self.sockets.len() >= SOCKETS_MAX && !self.sockets.contains_key(&socket.cookie) {
            self.untracked += 1;
            return None;
        }
        let before = self.sockets.remove(&socket.cookie);
        let known = before.as_ref().and_then(|seen| seen.delivery_rate);
        let seen = Seen {
            at: now.instant,
            dump: self.dumps,
            congestion_control: socket.congestion_control,
            delivery_rate: DeliveryRate::of(info, socket.state).or(known),
            totals: totals(info),
        };
        let record = self.record(socket, info, Cause::Dump, before.as_ref(), now);
        self.sockets.insert(socket.cookie, seen);
        Some(record)
    }

    /// Processes a destroy event. Ignores sockets without a remote port or `tcp_info`, because they
    /// were never connections.
    pub(crate) fn destroyed(&mut self, socket: &Socket, now: Moment) -> Option<Ended> {
        let before = self.sockets.remove(&socket.cookie);
        if !self.is_sampled(socket.cookie) || socket.remote.port() == 0 {
            return None;
        }
        let info = socket.tcp_info.as_ref()?;
        let record = self.record(socket, info, Cause::Destroy, before.as_ref(), now);
        let has_latest_rate = DeliveryRate::of(info, socket.state).is_some();
        Some(Ended { record: Box::new(record), has_latest_rate })
    }

    /// Records that events were lost before the end of the current dump.
    pub(crate) fn note_lost_events(&mut self) {
        self.events_lost_at = Some(self.dumps);
    }

    /// Completes a dump. Drops sockets that were missing from too many dumps and whose destroy
    /// event may have been lost.
    pub fn end_dump(&mut self) {
        let (dumps, events_lost_at, is_resumed) = (self.dumps, self.events_lost_at, self.is_resumed);
        let untracked = &mut self.untracked;
        self.sockets.retain(|_, seen| {
            let stays = dumps - seen.dump <= MISSED_DUMPS_MAX
                || events_lost_at.is_none_or(|events_lost_at| seen.dump >= events_lost_at);
            // The socket closed before this agent started, so its last bytes are in no record.
            *untracked += u64::from(!stays && is_resumed && seen.dump == 0);
            stays
        });
        self.dumps += 1;
    }

    /// Returns the number of missed samples and resets it. A sample is missed for each socket
    /// beyond [`SOCKETS_MAX`] in a dump, and for each socket that closed while no agent was
    /// running.
    pub(crate) fn take_untracked(&mut self) -> u64 {
        std::mem::take(&mut self.untracked)
    }

    /// Returns whether a socket is sampled. Cookies are sequential; a multiplicative hash
    /// distributes them evenly.
    fn is_sampled(&self, cookie: u64) -> bool {
        let hash = cookie.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        hash.is_multiple_of(self.one_in.get().into())
    }

    fn record(
        &self,
        socket: &Socket,
        info: &TcpInfo,
        cause: Cause,
        before: Option<&Seen>,
        now: Moment,
    ) -> SocketRecord {
        let congestion_control =
            socket.congestion_control.or_else(|| before.and_then(|seen| seen.congestion_control));
        let delivery_rate = DeliveryRate::of(info, socket.state);
        let delivery_rate = delivery_rate.or_else(|| before.and_then(|seen| seen.delivery_rate));
        let elapsed = before.map(|seen| now.instant.saturating_duration_since(seen.at));
        let counters = match before {
            Some(seen) => Some(since(&totals(info), &seen.totals)),
            None if self.dumps == 0 => None,
            None => Some(totals(info)),
        };
        SocketRecord {
            cookie: socket.cookie,
            namespace: self.namespace.clone(),
            state: socket.state.as_str().to_owned(),
            cause,
            sample_one_in: (self.one_in > NonZeroU32::MIN).then_some(self.one_in),
            interval_us: elapsed.map(|elapsed| u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)),
            congestion_control: congestion_control.map(|name| name.to_string()),
            gauges: Some(gauges(info, delivery_rate)),
            acked_goodput_bytes_per_s: counters
                .as_ref()
                .and_then(|counters| acked_goodput(counters, info, socket.state)),
            counters,
            bbr: socket.bbr.map(bbr),
            attributes: attributes(socket),
            memory: socket.memory.map(memory),
            ..SocketRecord::new(now.unix_us, socket.remote_unmapped(), socket.local_unmapped())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
