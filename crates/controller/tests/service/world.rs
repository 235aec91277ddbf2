//! A simulated PoP that uses a real controller over HTTP: its agent posts records, and its edge
//! polls for bundles and applies their rules with the code of real edges.
//!
//! Clients return from the same addresses, some far more often than others. Their speeds differ,
//! some connections stall, and each network's load changes slowly. Some connections stay open in
//! the next window and keep their arm. Every second network is a /56; the others are /24s.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use thalweg_bundle::Bundle;
use thalweg_record::{
    Counters, Decider, Delivery, Gauges, Record, ResponseRecord, SocketRecord, Steered, TcpState,
};

use crate::running::{Poller, RECORDS, batch_of, request};

const HOST: &str = "media.example";
/// Size of each response, in bytes.
const BYTES: u64 = 1_000_000;
/// Range to which simulated goodput is clamped, in bytes per second.
const GOODPUT: std::ops::RangeInclusive<f64> = 1e4..=1e8;
/// Probability that a client keeps a connection in the next window.
const KEPT: f64 = 0.1;
/// Probability that an active client opens two connections in a window.
const SEVERAL: f64 = 0.2;
/// Probability that a connection stalls.
const STALLS: f64 = 0.1;

/// Parameters of a PoP.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) pop: String,
    pub(crate) networks: u32,
    /// Mean number of active clients per network and window.
    pub(crate) clients: f64,
    /// Effect of steering on log goodput.
    pub(crate) gain: f64,
    pub(crate) seed: u64,
}

/// A simulated PoP.
pub(crate) struct World {
    pub(crate) plan: Plan,
    networks: Vec<Network>,
    random: Xoshiro256PlusPlus,
    edge: Poller,
    bundle: Option<Bundle>,
    /// Number of records posted so far.
    pub(crate) posted: u64,
}

struct Network {
    load: f64,
    clients: Vec<Client>,
}

struct Client {
    address: IpAddr,
    /// Probability of being active in a window.
    activity: f64,
    ln_speed: f64,
    /// A connection still open from the previous window.
    kept: Option<Connection>,
}

#[derive(Clone)]
struct Connection {
    client: SocketAddr,
    /// Time of the decision.
    unix_s: u64,
    steered: Option<Steered>,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed);
        let networks = (0..plan.networks).map(|at| network(at, plan.clients, &mut random)).collect();
        let edge = Poller::new(&plan.pop, "edge-1");
        Self { plan, networks, random, edge, bundle: None, posted: 0 }
    }

    /// Posts the records of a window that has just ended.
    pub(crate) fn post(&mut self, controller: SocketAddr, window: u64, window_s: u64) {
        let mut records = Vec::new();
        for at in 0..self.networks.len() {
            self.serve(at, window * window_s..(window + 1) * window_s, &mut records);
        }
        let count = records.len() as u64;
        let content = batch_of(&self.plan.pop, "edge-1", self.posted, records);
        let reply = request(controller, "POST /records", RECORDS, &content);
        assert_eq!(reply.status, 200, "{}", reply.content);
        self.posted += count;
        assert_eq!(reply.json()["position"].as_u64(), Some(self.posted), "{}", reply.content);
    }

    /// Polls for a bundle and acknowledges the one in force.
    pub(crate) fn poll(&mut self, controller: SocketAddr) {
        let reply = self.edge.poll(controller, false);
        assert!(matches!(reply.status, 200 | 204 | 304), "{}", reply.content);
        if reply.status == 200 {
            self.bundle = Some(Bundle::decode(reply.content.as_bytes()).unwrap());
        }
    }

    /// Adds the records of a network's connections in the seconds of one window.
    fn serve(&mut self, at: usize, seconds: std::ops::Range<u64>, records: &mut Vec<Record>) {
        let (random, network) = (&mut self.random, &mut self.networks[at]);
        network.load = 0.95 * network.load + 0.1 * normal(random);
        for client in &mut network.clients {
            let mut connections: Vec<_> = client.kept.take().into_iter().collect();
            let kept_port = connections.first().map(|kept| kept.client.port());
            if random.random_bool(client.activity) {
                let free = (40_000..).filter(|port| Some(*port) != kept_port);
                let count = if random.random_bool(SEVERAL) { 2 } else { 1 };
                for port in free.take(count) {
                    let unix_s = random.random_range(seconds.clone());
                    let steered = steered(self.bundle.as_ref(), client.address, unix_s);
                    connections.push(Connection { client: (client.address, port).into(), unix_s, steered });
                }
            }
            for connection in connections {
                let is_steered = connection.steered.as_ref().is_some_and(|it| !it.is_holdout);
                let stall =
                    if random.random_bool(STALLS) { (1.0 - random.random::<f64>()).ln() } else { 0.0 };
                let effect = if is_steered { self.plan.gain } else { 0.0 };
                let ln_goodput = client.ln_speed + network.load + 0.4 * normal(random) + stall + effect;
                let goodput = ln_goodput.exp().clamp(*GOODPUT.start(), *GOODPUT.end()) as u64;
                let end_unix_s = connection.unix_s.max(seconds.start);
                records.push(response(&connection, end_unix_s, goodput, is_steered));
                records.push(socket(&connection, end_unix_s, goodput));
                if client.kept.is_none() && random.random_bool(KEPT) {
                    client.kept = Some(connection);
                }
            }
        }
    }
}

fn network(at: u32, clients: f64, random: &mut Xoshiro256PlusPlus) -> Network {
    let mut network = Network { load: 0.0, clients: Vec::new() };
    let (mut active, mut host) = (0.0, 1);
    let ln_network = 13.0 + 0.5 * normal(random);
    while active < clients && host < 255 {
        let activity = random.random_range(0.05..0.95_f64).powi(2);
        let (address, ln_speed) = (address(at, host), ln_network + 0.8 * normal(random));
        network.clients.push(Client { address, activity, ln_speed, kept: None });
        (active, host) = (active + activity, host + 1);
    }
    network
}

/// Returns the address of a client in the network with this index.
fn address(at: u32, host: u32) -> IpAddr {
    if at.is_multiple_of(2) {
        return Ipv4Addr::from_bits((10 << 24) + (at << 8) + host).into();
    }
    let subnet = u128::from(host % 7);
    let bits = (0x2001_0db8_u128 << 96) + (u128::from(at) << 72) + (subnet << 64) + u128::from(host);
    Ipv6Addr::from_bits(bits).into()
}

/// Decides a connection as an edge does.
fn steered(bundle: Option<&Bundle>, client: IpAddr, unix_s: u64) -> Option<Steered> {
    let bundle = bundle?;
    let rule = bundle.rule(client, HOST)?;
    Some(Steered {
        bundle: bundle.content().number,
        rule: Some(rule.prefix.to_string()),
        is_holdout: rule.holds_out(client, unix_s),
        draw_period: rule.period(unix_s),
        ..Steered::default()
    })
}

fn response(connection: &Connection, end_unix_s: u64, goodput: u64, is_steered: bool) -> Record {
    let busy_us = BYTES * 1_000_000 / goodput;
    let (decider, congestion_control) =
        if is_steered { (Decider::Rule, "bbr") } else { (Decider::Default, "cubic") };
    Record::Response(Arc::new(ResponseRecord {
        host: HOST.into(),
        bytes: BYTES,
        written_us: busy_us,
        tcp: Some(TcpState {
            congestion_control: congestion_control.into(),
            decider: Some(decider),
            rtt_us: 50_000,
            min_rtt_us: Some(40_000),
            ..TcpState::default()
        }),
        steered: connection.steered.clone(),
        delivery: Some(Delivery::complete(BYTES, busy_us)),
        ..ResponseRecord::new(end_unix_s * 1_000_000 - busy_us, connection.client)
    }))
}

fn socket(connection: &Connection, unix_s: u64, goodput: u64) -> Record {
    let server = (Ipv4Addr::new(192, 0, 2, 1), 443).into();
    Record::Socket(Box::new(SocketRecord {
        gauges: Some(Gauges {
            min_rtt_us: Some(40_000),
            delivery_rate_bytes_per_s: Some(goodput),
            ..Gauges::default()
        }),
        counters: Some(Counters { bytes_sent: BYTES, bytes_retrans: BYTES / 100, ..Counters::default() }),
        ..SocketRecord::new(unix_s * 1_000_000, connection.client, server)
    }))
}

/// Draws from the standard normal distribution (Box and Muller).
fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    let (radius, angle) = (1.0 - random.random::<f64>(), random.random::<f64>());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}
