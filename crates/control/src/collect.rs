//! Collector: aggregates records into windows. Records are accumulated per connection until the
//! window closes, because the connection's tenant and arm may become known only then.
//!
//! A window closes [`Settings::late_s`] after its end, by the time passed to [`Collector::close`].
//! Callers pass an earlier time while records are delayed. Records for closed windows are dropped
//! and counted, so each window is produced once. Outcomes are those of clients: see `client.rs`.
//!
//! An edge may record the responses of only one client in N. Each of its connections then stands
//! for N. Socket records come from all clients, so those of connections without a response are left
//! out: whether their client is sampled is not known.
//!
//! **Invariant:** a closed window is never reopened, even if the clock changes: see [`follows`].

mod client;
mod close;
mod connection;
mod samples;
mod sampling;

use std::borrow::Cow;
use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use thalweg_bundle::Hosts;
use thalweg_record::{Entry, Record, ResponseRecord, SocketRecord, Source};
use twox_hash::XxHash3_64;

use crate::figures::EDGES_MAX;
use crate::settings::Settings;
use crate::tenant::Tenant;
use crate::tenants::UNNAMED_MAX;
use crate::window::{Arm, Window, follows};
use connection::{Connection, Rule, has_failed, measured_goodput, rule_of};
pub use samples::SAMPLES_MAX;
use sampling::Sampling;

/// Maximum number of PoPs, and of tenants per PoP.
pub const SCOPES_MAX: usize = 1_000;
/// Maximum number of connections per PoP and window. If there are more, clients are sampled.
pub const CONNECTIONS_MAX: usize = 2_000_000;
/// How long the outcomes of a redraw period are reported, and remembered as reported: an hour, and
/// at least 12 windows.
const REPORTED_S: u64 = 3_600;
const REPORTED_WINDOWS_MIN: u64 = 12;
/// Status of a response for a host not served by the edge (RFC 9110 §15.5.20).
const MISDIRECTED: u16 = 421;

/// Counts of dropped records, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records whose window was already closed.
    pub late: u64,
    /// Records whose window had not started by the local clock.
    pub early: u64,
    /// Records dropped at the limit on PoPs, tenants or prefixes.
    pub over_limit: u64,
    /// Records of clients left out of the sample of a window with too many connections, and socket
    /// records of clients of which the edge records no responses.
    pub sampled_out: u64,
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stored,
    SampledOut,
    OverLimit,
}

/// Aggregates records into windows.
#[derive(Debug)]
pub struct Collector {
    settings: Settings,
    /// Seed that decides which clients are sampled.
    sampling_seed: u64,
    connections_max: usize,
    /// Tenant index of each host named in settings.
    tenants: Hosts<usize>,
    pops: BTreeMap<String, Pop>,
    /// Time passed to the last [`Collector::close`].
    closed_unix_s: u64,
    counts: Counts,
}

/// The closed windows of one PoP for one time span.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedWindows {
    /// PoP name. Empty if the edges name no PoP.
    pub pop: String,
    /// Window of the whole PoP, with its edges' figures but without prefixes.
    pub window: Window,
    /// Window of each tenant, by name; the empty name stands for hosts without a tenant.
    pub windows: Vec<(String, Window)>,
}

#[derive(Debug, Default)]
struct Pop {
    open: BTreeMap<u64, OpenWindow>,
    closed: Option<u64>,
    /// Clients whose outcome was reported, by redraw period: hashes of the tenant and the client's
    /// address.
    reported: BTreeMap<u64, HashSet<u64>>,
    /// Last window decided before the start. Outcomes of this and earlier periods may have been
    /// reported before.
    resumed_after: Option<u64>,
}

/// A window that still accepts records.
#[derive(Debug, Default)]
struct OpenWindow {
    records: u64,
    lost: u64,
    sampling: Sampling,
    connections: HashMap<u64, Connection>,
    /// Tenant indices by name.
    tenants: HashMap<String, usize>,
    /// Number of unnamed tenants, each a single host not named in settings.
    unnamed: usize,
    /// Edge indices by name.
    edges: HashMap<String, usize>,
}

impl Collector {
    /// Creates an empty collector. `sampling_seed` decides which clients are sampled in a window
    /// with too many connections. It must be secret.
    pub fn new(settings: Settings, sampling_seed: u64) -> Self {
        let tenants = settings.tenants_of_hosts();
        let (pops, counts) = (BTreeMap::new(), Counts::default());
        Self {
            settings,
            sampling_seed,
            connections_max: CONNECTIONS_MAX,
            tenants,
            pops,
            closed_unix_s: 0,
            counts,
        }
    }

    /// Continues a PoP after its last decided window, which another collector has collected.
    /// Clients that a rule decided in this or an earlier window may have been reported, so they are
    /// not reported again.
    pub fn resume(&mut self, pop: &str, last_window: u64) {
        self.pops.entry(pop.to_owned()).or_default().resumed_after = Some(last_window);
    }

    /// Returns counts of the records dropped so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Removes a PoP and its open windows.
    pub fn remove_pop(&mut self, pop: &str) {
        self.pops.remove(pop);
    }

    /// Adds a record to its window, or drops and counts it.
    pub fn add(&mut self, source: &Source, entry: &Entry, now_unix_s: u64) {
        let time_unix_us = match &entry.record {
            Record::Socket(socket) => socket.time_unix_us,
            // A response belongs to the window in which it ends. If it belonged to the window of
            // its start, slow responses would be dropped as late, and more of them in the slower
            // arm.
            Record::Response(response) => {
                let acked_us = response.delivery.as_ref().and_then(|it| it.acked_us);
                response.time_unix_us.saturating_add(acked_us.unwrap_or(response.written_us))
            }
            Record::Loss(loss) => loss.time_unix_us,
        };
        let number = time_unix_us / 1_000_000 / self.settings.window_s;
        if number > now_unix_s / self.settings.window_s {
            self.counts.early += 1;
            return;
        }
        // Clone the name only for a new PoP, because this code runs for every record.
        if !self.pops.contains_key(&source.pop) && self.pops.len() < SCOPES_MAX {
            self.pops.insert(source.pop.clone(), Pop::default());
        }
        let Some(pop) = self.pops.get_mut(&source.pop) else {
            self.counts.over_limit += 1;
            return;
        };
        let is_over = self.closed_unix_s >= closes_at(number, &self.settings);
        if is_over || follows(pop.closed, number, self.settings.history_windows).is_none() {
            self.counts.late += 1;
            return;
        }
        let open = pop.open.entry(number).or_insert_with(|| OpenWindow::new(self.sampling_seed, number));
        let client = match &entry.record {
            Record::Socket(socket) => Some(socket.client),
            Record::Response(response) => Some(response.client),
            Record::Loss(_) => None,
        };
        let is_full = open.connections.len() >= self.connections_max;
        if client.is_some_and(|client| is_full && !open.connections.contains_key(&key(source, client))) {
            self.counts.sampled_out += open.make_room(self.connections_max);
        }
        let fate = match &entry.record {
            _ if client.is_some_and(|client| !open.sampling.keeps(client.ip())) => Fate::SampledOut,
            Record::Socket(socket) => open.add_socket(self.connections_max, source, socket),
            Record::Response(response) => {
                open.add_response(&self.settings, self.connections_max, &self.tenants, source, response)
            }
            Record::Loss(loss) => {
                open.lost = open.lost.saturating_add(loss.records);
                Fate::Stored
            }
        };
        open.records += u64::from(fate != Fate::OverLimit);
        self.counts.sampled_out += u64::from(fate == Fate::SampledOut);
        self.counts.over_limit += u64::from(fate == Fate::OverLimit);
    }

    /// Closes all windows whose closing time has been reached and returns them, in order.
    pub fn close(&mut self, now_unix_s: u64) -> Vec<ClosedWindows> {
        self.closed_unix_s = now_unix_s;
        let mut closed = Vec::new();
        for (name, pop) in &mut self.pops {
            // After the clock was set back, windows now in the future stay open until they end or
            // turn out to be late.
            let over: Vec<_> = pop
                .open
                .keys()
                .copied()
                .filter(|number| now_unix_s >= closes_at(*number, &self.settings))
                .collect();
            for number in over {
                let Some(open) = pop.open.remove(&number) else { continue };
                if follows(pop.closed, number, self.settings.history_windows).is_none() {
                    self.counts.late += open.records;
                    continue;
                }
                pop.closed = Some(number);
                let (window, windows) = pop.window(&self.settings, number, open, &mut self.counts);
                closed.push(ClosedWindows { pop: name.clone(), window, windows });
            }
        }
        closed
    }
}

/// Returns the time at which a window stops accepting records, in Unix seconds.
fn closes_at(number: u64, settings: &Settings) -> u64 {
    number.saturating_add(1).saturating_mul(settings.window_s).saturating_add(settings.late_s)
}

impl OpenWindow {
    fn new(sampling_seed: u64, number: u64) -> Self {
        Self { sampling: Sampling::new(sampling_seed, number), ..Self::default() }
    }

    /// Halves the sampled share of clients while the window is full. Returns the number of records
    /// that this drops.
    fn make_room(&mut self, connections_max: usize) -> u64 {
        let mut dropped = 0;
        while self.connections.len() >= connections_max && self.sampling.halve() {
            let sampling = &self.sampling;
            self.connections.retain(|_, connection| {
                let keeps = sampling.keeps(connection.address);
                dropped += if keeps { 0 } else { u64::from(connection.records) };
                keeps
            });
        }
        dropped
    }

    fn add_socket(&mut self, connections_max: usize, source: &Source, socket: &SocketRecord) -> Fate {
        let Some(connection) = self.connection(connections_max, source, socket.client) else {
            return Fate::OverLimit;
        };
        if let Some(counters) = &socket.counters {
            connection.sent_bytes = connection.sent_bytes.saturating_add(counters.bytes_sent);
            connection.retrans_bytes = connection.retrans_bytes.saturating_add(counters.bytes_retrans);
        }
        let Some(gauges) = &socket.gauges else { return Fate::Stored };
        if let Some(min_rtt_us) = gauges.min_rtt_us {
            connection.min_rtt_us = min_rtt_us;
        }
        match gauges.delivery_rate_bytes_per_s {
            Some(rate) if rate > 0 && !gauges.delivery_rate_app_limited => connection.add_delivery_rate(rate),
            _ => {}
        }
        Fate::Stored
    }

    fn add_response(
        &mut self,
        settings: &Settings,
        connections_max: usize,
        tenants: &Hosts<usize>,
        source: &Source,
        response: &ResponseRecord,
    ) -> Fate {
        let host = host_name(&response.host);
        let is_left_alone = settings.hosts_left_alone.iter().any(|alone| alone.eq_ignore_ascii_case(host));
        let named = tenants.get(host).and_then(|at| settings.tenants.get(at));
        let name = tenant_of(settings, named, response, host);
        let tenant = name.as_ref().and_then(|name| self.tenant(settings, name));
        let Some(connection) = self.connection(connections_max, source, response.client) else {
            return Fate::OverLimit;
        };
        connection.sample_one_in = connection.sample_one_in.max(response.weight());
        connection.responses = connection.responses.saturating_add(1);
        connection.failed = connection.failed.saturating_add(has_failed(response).into());
        connection.is_left_alone |= is_left_alone;
        let Some(tenant) = tenant else {
            return if name.is_none() || is_left_alone { Fate::Stored } else { Fate::OverLimit };
        };
        if *connection.tenant.get_or_insert(tenant) != tenant {
            // A connection counts only for the tenant of its first response.
            return Fate::Stored;
        }
        if let Some(rule) = rule_of(response) {
            // If any of its responses was not decided by the rule, the connection is in neither
            // arm.
            let is_other = connection.rule.is_some_and(|before| before.arm == Arm::Other);
            connection.rule = Some(if is_other { Rule { arm: Arm::Other, ..rule } } else { rule });
        }
        if let Some(min_rtt_us) = response.tcp.as_ref().and_then(|tcp| tcp.min_rtt_us) {
            connection.min_rtt_us = min_rtt_us;
        }
        if let Some(goodput) = measured_goodput(named.map_or(settings, |tenant| &tenant.settings), response) {
            connection.add_goodput(goodput);
        }
        Fate::Stored
    }

    /// Returns the connection of a record and counts the record. `None` if the window has no room.
    fn connection(
        &mut self,
        connections_max: usize,
        source: &Source,
        client: SocketAddr,
    ) -> Option<&mut Connection> {
        let has_room = self.connections.len() < connections_max;
        let connection = match self.connections.entry(key(source, client)) {
            Slot::Occupied(known) => known.into_mut(),
            Slot::Vacant(_) if !has_room => return None,
            Slot::Vacant(slot) => {
                let (key, edge) = (*slot.key(), edge_index(&mut self.edges, &source.host));
                slot.insert(Connection::new(key, client.ip(), edge))
            }
        };
        connection.records = connection.records.saturating_add(1);
        Some(connection)
    }

    /// Returns a tenant's index in the window, or `None` if the window has no room for it.
    fn tenant(&mut self, settings: &Settings, name: &str) -> Option<usize> {
        if let Some(known) = self.tenants.get(name) {
            return Some(*known);
        }
        // Unnamed tenants have a separate limit, so they cannot displace named tenants.
        let is_unnamed = !name.is_empty() && !settings.has_named_tenant(name);
        if (is_unnamed && self.unnamed == UNNAMED_MAX) || !settings.is_tenant(name) {
            return None;
        }
        self.unnamed += usize::from(is_unnamed);
        self.tenants.insert(name.to_owned(), self.tenants.len());
        Some(self.tenants.len() - 1)
    }
}

/// Returns the number of windows after a redraw period in which its outcomes are reported.
fn reported_windows(settings: &Settings) -> u64 {
    REPORTED_S.div_ceil(settings.window_s.max(1)).max(REPORTED_WINDOWS_MIN)
}

fn ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Hashes a connection's identity within a PoP: the edge and the client's address and port.
fn key(source: &Source, client: SocketAddr) -> u64 {
    let seed = XxHash3_64::oneshot(source.host.as_bytes());
    let mut key = [0; 18];
    key[..16].copy_from_slice(&ipv6(client.ip()).octets());
    key[16..].copy_from_slice(&client.port().to_be_bytes());
    XxHash3_64::oneshot_with_seed(seed, &key)
}

/// Returns an edge's index in the window, or `None` if the window has no room for it.
fn edge_index(edges: &mut HashMap<String, usize>, name: &str) -> Option<usize> {
    let known = edges.get(name).copied();
    if known.is_none() && edges.len() < EDGES_MAX {
        edges.insert(name.to_owned(), edges.len());
        return Some(edges.len() - 1);
    }
    known
}

/// Returns the tenant name for a response: the named tenant of its host, or the host itself.
/// Returns an empty name if the host has no tenant, and `None` if the edge does not serve the host.
fn tenant_of<'a>(
    settings: &Settings,
    named: Option<&'a Tenant>,
    response: &ResponseRecord,
    host: &'a str,
) -> Option<Cow<'a, str>> {
    match named {
        Some(tenant) => Some(tenant.name().into()),
        None if !settings.by_tenant => Some("".into()),
        // Clients can send any number of host names not served by the edge.
        None if response.status == MISDIRECTED || host.is_empty() => None,
        None if host.bytes().any(|byte| byte.is_ascii_uppercase()) => Some(host.to_ascii_lowercase().into()),
        None => Some(host.into()),
    }
}

/// Strips the port and any trailing dots from a host.
fn host_name(host: &str) -> &str {
    let name = match host.rfind(':') {
        Some(at) if !host.ends_with(']') => &host[..at],
        _ => host,
    };
    name.trim_end_matches('.')
}

#[cfg(test)]
mod tests;
