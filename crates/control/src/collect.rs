//! From records to windows. Whatever comes of a connection is gathered until its window closes: only then is it known whose it
//! was, and what a rule has done with it.
//!
//! A window closes [`Settings::late_s`] after its end by the clock that [`Collector::close`] is told, which may be behind where records
//! come late; what comes after that is counted and left out, so a window is made once. A connection's
//! outcome is told once, in the first window in which it has one.
//!
//! **Invariant:** a closed window is not opened again, whatever the clock does: see [`follows`].

mod close;
mod connection;
mod samples;

use std::borrow::Cow;
use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use thalweg_bundle::Hosts;
use thalweg_record::{Entry, Prefix, Record, ResponseRecord, SocketRecord, Source};
use twox_hash::XxHash3_64;

use crate::figures::EDGES_MAX;
use crate::settings::Settings;
use crate::tenant::Tenant;
use crate::tenants::UNNAMED_MAX;
use crate::window::{Arm, Window, follows};
use connection::{Connection, Rule, has_failed, rule_of, tells_of_goodput};
pub use samples::SAMPLES_MAX;

/// PoPs, and tenants of one.
pub const SCOPES_MAX: usize = 1_000;
/// Connections of a PoP in a window.
pub const CONNECTIONS_MAX: usize = 2_000_000;
/// Windows after its last one for which a connection is known to have been told.
const TOLD_WINDOWS: u64 = 12;
/// The status of a response for a host that the edge does not serve (RFC 9110 §15.5.20).
const MISDIRECTED: u16 = 421;

/// What was left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records of windows that were closed.
    pub late: u64,
    /// Records of windows that have not begun by the clock here.
    pub early: u64,
    /// Records beyond a limit: of scopes, connections or prefixes.
    pub over_limit: u64,
}

/// Makes windows of records.
#[derive(Debug)]
pub struct Collector {
    settings: Settings,
    /// The tenant of each host that settings name.
    tenants: Hosts<usize>,
    pops: BTreeMap<String, Pop>,
    /// The clock by which windows have closed.
    closed_unix_s: u64,
    counts: Counts,
}

/// What has closed of a PoP: windows of one span of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Closed {
    /// The site; empty if it has no name.
    pub pop: String,
    /// What is known of its edges, without prefixes.
    pub window: Window,
    /// What is known of each tenant, by its name; that of hosts that no tenant has by none.
    pub windows: Vec<(String, Window)>,
}

#[derive(Debug, Default)]
struct Pop {
    open: BTreeMap<u64, Open>,
    closed: Option<u64>,
    /// Connections whose outcome was told, with the newest window in which they were there.
    told: HashMap<u64, u64>,
}

/// A window that takes records.
#[derive(Debug, Default)]
struct Open {
    records: u64,
    lost: u64,
    connections: HashMap<u64, Connection>,
    /// Tenants, by their place.
    tenants: HashMap<String, usize>,
    /// Of these, hosts that are tenants by themselves.
    unnamed: usize,
    /// Edges, by their place.
    edges: HashMap<String, usize>,
}

impl Collector {
    /// One that has seen nothing.
    pub fn new(settings: Settings) -> Self {
        let tenants = settings.tenants_of_hosts();
        Self { settings, tenants, pops: BTreeMap::new(), closed_unix_s: 0, counts: Counts::default() }
    }

    /// What was left out so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes a record.
    pub fn add(&mut self, source: &Source, entry: &Entry, now_unix_s: u64) {
        let time_unix_us = match &entry.record {
            Record::Socket(socket) => socket.time_unix_us,
            // Its end: by its beginning a slow one would be late, and the slower arm lose more of them.
            Record::Response(response) => response.time_unix_us.saturating_add(response.duration_us),
            Record::Loss(loss) => loss.time_unix_us,
        };
        let number = time_unix_us / 1_000_000 / self.settings.window_s;
        if number > now_unix_s / self.settings.window_s {
            self.counts.early += 1;
            return;
        }
        // Looked up before it is cloned: this is done for each record.
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
        let open = pop.open.entry(number).or_default();
        let taken = match &entry.record {
            Record::Socket(socket) => open.add_socket(source, socket),
            Record::Response(response) => open.add_response(&self.settings, &self.tenants, source, response),
            Record::Loss(loss) => {
                open.lost = open.lost.saturating_add(loss.records);
                true
            }
        };
        open.records += u64::from(taken);
        self.counts.over_limit += u64::from(!taken);
    }

    /// Closes each window whose time has passed, in order.
    pub fn close(&mut self, now_unix_s: u64) -> Vec<Closed> {
        self.closed_unix_s = now_unix_s;
        let mut closed = Vec::new();
        for (name, pop) in &mut self.pops {
            // A clock that was set back leaves windows of a future that is not over: they wait for it, or go below.
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
                closed.push(Closed { pop: name.clone(), window, windows });
            }
        }
        closed
    }
}

/// When a window takes no more records.
fn closes_at(number: u64, settings: &Settings) -> u64 {
    number.saturating_add(1).saturating_mul(settings.window_s).saturating_add(settings.late_s)
}

impl Open {
    /// Whether there was room for it.
    fn add_socket(&mut self, source: &Source, socket: &SocketRecord) -> bool {
        let Some(connection) = self.connection(source, socket.client) else { return false };
        if let Some(counters) = &socket.counters {
            connection.sent_bytes = connection.sent_bytes.saturating_add(counters.bytes_sent);
            connection.retrans_bytes = connection.retrans_bytes.saturating_add(counters.bytes_retrans);
        }
        let Some(gauges) = &socket.gauges else { return true };
        if let Some(min_rtt_us) = gauges.min_rtt_us {
            connection.min_rtt_us = min_rtt_us;
        }
        match gauges.delivery_rate_bytes_per_s {
            Some(rate) if rate > 0 && !gauges.delivery_rate_app_limited => connection.add_delivery_rate(rate),
            _ => {}
        }
        true
    }

    /// Whether there was room for it.
    fn add_response(
        &mut self,
        settings: &Settings,
        tenants: &Hosts<usize>,
        source: &Source,
        response: &ResponseRecord,
    ) -> bool {
        let host = name_of(&response.host);
        let is_left_alone = settings.hosts_left_alone.iter().any(|alone| alone.eq_ignore_ascii_case(host));
        let named = tenants.get(host).and_then(|at| settings.tenants.get(at));
        let name = tenant_of(settings, named, response, host);
        let tenant = name.as_ref().and_then(|name| self.tenant(settings, name));
        let Some(connection) = self.connection(source, response.client) else { return false };
        connection.responses = connection.responses.saturating_add(1);
        connection.failed = connection.failed.saturating_add(has_failed(response).into());
        connection.is_left_alone |= is_left_alone;
        let Some(tenant) = tenant else { return name.is_none() || is_left_alone };
        if *connection.tenant.get_or_insert(tenant) != tenant {
            // Another tenant's response on the same connection tells nothing of the first one's.
            return true;
        }
        if let Some(rule) = rule_of(response) {
            // Once something else has decided on it, it is in neither arm.
            let is_spoilt = connection.rule.is_some_and(|before| before.arm == Arm::Other);
            connection.rule = Some(if is_spoilt { Rule { arm: Arm::Other, ..rule } } else { rule });
        }
        if let Some(min_rtt_us) = response.tcp.as_ref().and_then(|tcp| tcp.min_rtt_us) {
            connection.min_rtt_us = min_rtt_us;
        }
        if tells_of_goodput(named.map_or(settings, |tenant| &tenant.settings), response) {
            connection.add_goodput(response.goodput_bytes_per_s().max(1));
        }
        true
    }

    fn connection(&mut self, source: &Source, client: SocketAddr) -> Option<&mut Connection> {
        let has_room = self.connections.len() < CONNECTIONS_MAX;
        let slot = match self.connections.entry(key(source, client)) {
            Slot::Occupied(known) => return Some(known.into_mut()),
            Slot::Vacant(slot) => slot,
        };
        if !has_room {
            return None;
        }
        let edge = place_of(&mut self.edges, &source.host);
        let key = *slot.key();
        Some(slot.insert(Connection::new(key, Prefix::of_client(client.ip()), edge)))
    }

    /// The place of a tenant among the window's, if there is one left.
    fn tenant(&mut self, settings: &Settings, name: &str) -> Option<usize> {
        if let Some(known) = self.tenants.get(name) {
            return Some(*known);
        }
        // Of hosts that are tenants by themselves there may be more than are kept: they leave the others theirs.
        let is_unnamed = !name.is_empty() && !settings.names(name);
        if (is_unnamed && self.unnamed == UNNAMED_MAX) || !settings.is_tenant(name) {
            return None;
        }
        self.unnamed += usize::from(is_unnamed);
        self.tenants.insert(name.to_owned(), self.tenants.len());
        Some(self.tenants.len() - 1)
    }
}

/// What names a connection to a PoP. Two of one client's ports on two machines are two.
fn key(source: &Source, client: SocketAddr) -> u64 {
    let ip = match client.ip() {
        std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        std::net::IpAddr::V6(ip) => ip,
    };
    let seed = XxHash3_64::oneshot(source.host.as_bytes());
    let mut key = [0; 18];
    key[..16].copy_from_slice(&ip.octets());
    key[16..].copy_from_slice(&client.port().to_be_bytes());
    XxHash3_64::oneshot_with_seed(seed, &key)
}

/// The place of an edge among the window's, if there is one left.
fn place_of(edges: &mut HashMap<String, usize>, name: &str) -> Option<usize> {
    let known = edges.get(name).copied();
    if known.is_none() && edges.len() < EDGES_MAX {
        edges.insert(name.to_owned(), edges.len());
        return Some(edges.len() - 1);
    }
    known
}

/// The name of a host's tenant, where it has one: that which settings name, or by itself; empty of hosts that no tenant has.
fn tenant_of<'a>(
    settings: &Settings,
    named: Option<&'a Tenant>,
    response: &ResponseRecord,
    host: &'a str,
) -> Option<Cow<'a, str>> {
    match named {
        Some(tenant) => Some(tenant.name().into()),
        None if !settings.by_tenant => Some("".into()),
        // The edge does not serve it: anybody can make one up.
        None if response.status == MISDIRECTED || host.is_empty() => None,
        None if host.bytes().any(|byte| byte.is_ascii_uppercase()) => Some(host.to_ascii_lowercase().into()),
        None => Some(host.into()),
    }
}

/// A host without its port and the dots that may end a name.
fn name_of(host: &str) -> &str {
    let name = match host.rfind(':') {
        Some(at) if !host.ends_with(']') => &host[..at],
        _ => host,
    };
    name.trim_end_matches('.')
}

#[cfg(test)]
mod tests;
