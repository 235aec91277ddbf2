//! Simulated prefixes with persistent clients, whose records pass through the collector.
//!
//! Clients return from the same address and the same few ports for as long as the simulation runs,
//! some far more often than others. Their speeds differ, each has several connections at a time,
//! and some connections stay open in the next window and keep their arm. Every second prefix is a
//! /56, whose clients are in several of its /64s. Each prefix has a load that changes slowly, and
//! some connections stall. Edges apply the rules of bundles one window late, with the same code as
//! real edges.

mod paired;
mod tests;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use thalweg_bundle::Rule;
use thalweg_record::{
    Counters, Delivery, Entry, Network, Prefix, Record, ResponseRecord, SocketRecord, Source, Steered,
};

use super::normal;
use crate::decide::rules;
use crate::tests::records::response;
use crate::{ClosedPairs, Collector, Decision, Measure, Moment, Reason, Settings, State, decide};
use paired::Score;

/// Range to which simulated goodput is clamped, in bytes per second.
const GOODPUT: std::ops::RangeInclusive<f64> = 1e3..=1e8;
/// Share of a bottleneck taken by a steered connection, relative to that of a held-out connection.
const AGGRESSION: f64 = 2.0;
/// First window.
const FROM: u64 = 6_000_000;

/// What steering does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Truth {
    /// Nothing.
    Nothing,
    /// Connections share a bottleneck that limits all of them: steered connections take twice as
    /// much.
    ZeroSum,
    /// Like [`Truth::ZeroSum`], but access links limit the faster connections.
    Bottleneck,
    /// Raises log goodput, independently of other connections.
    Gain(f64),
    /// Raises or lowers log goodput as on one of the paths in `paths.csv`, which are assigned in
    /// turn.
    Paired,
}

/// Parameters of a simulation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) truth: Truth,
    pub(super) prefixes: u32,
    /// Mean number of active clients per prefix and window.
    pub(super) clients: f64,
    pub(super) windows: u64,
    /// Probability that a client keeps a connection in the next window.
    pub(super) kept: f64,
    /// Minimum RTT of all connections.
    pub(super) min_rtt_us: u32,
    /// Retransmitted share of bytes. `None` without socket records.
    pub(super) retransmitted: Option<f64>,
    pub(super) seed: u64,
}

/// Totals of the verdicts in a simulation.
#[derive(Debug, Clone, Default)]
pub(super) struct Verdicts {
    pub(super) trials: u64,
    pub(super) promising: usize,
    pub(super) proved: usize,
    /// Number of proofs of /56s.
    pub(super) proved_of_ipv6: usize,
    /// Number of prefixes steered at the end without being on trial.
    pub(super) steered: usize,
    /// Numbers of pairs of blocks.
    pub(super) pairs: ClosedPairs,
    pub(super) left: HashMap<Reason, usize>,
    /// Goodputs under [`Truth::Paired`], by part of the simulation.
    scores: Vec<Score>,
    /// Number of windows from a prefix's first trial to its proof, sorted.
    pub(super) windows: Vec<u64>,
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
    client: usize,
    port: u16,
    unix_s: u64,
    steered: Option<Steered>,
    ln_goodput: f64,
}

struct Net {
    /// Effect of steering under [`Truth::Paired`].
    gain: f64,
    load: f64,
    clients: Vec<Client>,
}

impl Plan {
    /// Simulates the plan.
    pub(super) fn run(self) -> Verdicts {
        let settings = self.settings();
        assert_eq!(settings.check(), []);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut nets: Vec<_> = (0..self.prefixes).map(|at| self.net(at, &mut random)).collect();
        let mut collector = Collector::new(settings.clone(), self.seed);
        let (mut state, mut verdicts, mut entered) = (State::default(), Verdicts::default(), HashMap::new());
        let mut bundles: VecDeque<(u64, Vec<Rule>)> = vec![(0, Vec::new())].into();
        for number in FROM..FROM + self.windows {
            bundles.push_back((state.bundle, rules(&settings, &state)));
            let (bundle, rules) = bundles.pop_front().unwrap();
            let rules: HashMap<_, _> = rules.iter().map(|rule| (rule.prefix, rule)).collect();
            let mut score = Score::default();
            for net in &mut nets {
                let prefix = Prefix::of_client(net.clients[0].address);
                let rule = rules.get(&prefix).map(|rule| (*rule, bundle));
                score.merge(self.respond(net, rule, number, &settings, &mut collector, &mut random));
            }
            verdicts.add_score(number - FROM, score);
            let now_unix_s = (number + 1) * settings.window_s + settings.late_s;
            let closed = collector.close(now_unix_s);
            let moment = Moment { now_unix_s, seed: self.seed, acknowledged_bundle: state.bundle };
            let (next, decision) = decide(&settings, &state, &closed[0].windows[0].1, moment);
            verdicts.add(&decision, number, &mut entered);
            state = next;
        }
        verdicts.trials = state.trials.started;
        verdicts.steered = state.steered().filter(|(_, it)| it.proof.is_some()).count();
        verdicts.windows.sort_unstable();
        verdicts
    }

    /// Returns settings under which every prefix is tried as soon as it is known, and none is
    /// withdrawn for no longer being slow.
    fn settings(self) -> Settings {
        let all = self.prefixes as usize;
        Settings {
            measure: Measure::Goodput,
            observed_windows_min: 1,
            duty_enter: 1.0,
            duty_leave: 0.0,
            steered_max: all,
            entering_max: all,
            changes_max: all,
            explored_max: all,
            exploring_max: all,
            ..Settings::default()
        }
    }

    fn net(self, at: u32, random: &mut Xoshiro256PlusPlus) -> Net {
        let mut clients = Vec::new();
        let (mut active, mut host) = (0.0, 1);
        while active < self.clients && host < 255 {
            let activity = random.random_range(0.05..0.95_f64).powi(2);
            let address = address(at, host);
            clients.push(Client { address, activity, ln_speed: 13.0 + 0.8 * normal(random), kept: None });
            (active, host) = (active + activity, host + 1);
        }
        Net { gain: paired::gain(at), load: 0.0, clients }
    }

    /// Sends the records of a prefix's connections in one window. Returns their goodputs.
    fn respond(
        self,
        net: &mut Net,
        rule: Option<(&Rule, u64)>,
        number: u64,
        settings: &Settings,
        collector: &mut Collector,
        random: &mut Xoshiro256PlusPlus,
    ) -> Score {
        net.load = 0.95 * net.load + 0.1 * normal(random);
        let mut connections: Vec<Connection> = Vec::new();
        for (client, it) in net.clients.iter_mut().enumerate() {
            connections.extend(it.kept.take());
            if !random.random_bool(it.activity) {
                continue;
            }
            let kept = connections.last().filter(|kept| kept.client == client).map(|kept| kept.port);
            let free = (40_000..).filter(|port| Some(*port) != kept);
            for port in free.take(random.random_range(1..=3)) {
                let unix_s = number * settings.window_s + random.random_range(0..settings.window_s);
                let steered = rule.map(|(rule, bundle)| steered(rule, bundle, it.address, unix_s));
                connections.push(Connection { client, port, unix_s, steered, ln_goodput: 0.0 });
            }
        }
        for it in &mut connections {
            let stall = if random.random_bool(0.1) { (1.0 - random.random::<f64>()).ln() } else { 0.0 };
            it.ln_goodput = net.clients[it.client].ln_speed + net.load + 0.4 * normal(random) + stall;
        }
        let score = self.share(&mut connections, net.gain);
        for it in connections {
            let client = &mut net.clients[it.client];
            let time_unix_s = it.unix_s.max(number * settings.window_s);
            let goodput = it.ln_goodput.exp().clamp(*GOODPUT.start(), *GOODPUT.end());
            let delivery =
                Delivery { acked_us: Some(1), ..Delivery::complete(1_000_000, (1e12 / goodput) as u64) };
            let address = (client.address, it.port).into();
            let mut record = ResponseRecord {
                delivery: Some(delivery),
                ..response(time_unix_s, address, it.steered.clone())
            };
            record.tcp.iter_mut().for_each(|tcp| tcp.min_rtt_us = Some(self.min_rtt_us));
            let socket = self.retransmitted.map(|share| socket(time_unix_s, address, share));
            let source = Source { host: "edge-1".into(), pop: "fra1".into(), epoch: 1 };
            for record in socket.into_iter().chain([Record::Response(Arc::new(record))]) {
                let entry = Entry { number: 0, network: Network::default(), record };
                collector.add(&source, &entry, time_unix_s);
            }
            if client.kept.is_none() && random.random_bool(self.kept) {
                client.kept = Some(it);
            }
        }
        score
    }

    /// Applies the effect of steering to the log goodputs of a prefix's connections.
    fn share(self, connections: &mut [Connection], path_gain: f64) -> Score {
        let is_steered = |it: &Connection| it.steered.as_ref().is_some_and(|steered| !steered.is_holdout);
        let mut score = Score::default();
        let weight = |it: &Connection| if is_steered(it) { AGGRESSION } else { 1.0 };
        match self.truth {
            Truth::Nothing => {}
            Truth::Gain(gain) => {
                connections.iter_mut().filter(|it| is_steered(it)).for_each(|it| it.ln_goodput += gain);
            }
            Truth::Paired => {
                for it in connections {
                    score.add(it.ln_goodput, path_gain, is_steered(it));
                    it.ln_goodput += if is_steered(it) { path_gain } else { 0.0 };
                }
            }
            Truth::ZeroSum => {
                let demand = |it: &Connection| it.ln_goodput.exp();
                let wanted: f64 = connections.iter().map(demand).sum();
                let weighted: f64 = connections.iter().map(|it| weight(it) * demand(it)).sum();
                connections.iter_mut().for_each(|it| it.ln_goodput += (weight(it) * wanted / weighted).ln());
            }
            Truth::Bottleneck => {
                // The link can carry half of what the access links can.
                let half = connections.iter().map(|it| it.ln_goodput.exp()).sum::<f64>() / 2.0;
                let weights: f64 = connections.iter().map(weight).sum();
                for it in connections {
                    it.ln_goodput = it.ln_goodput.min((half * weight(it) / weights).ln());
                }
            }
        }
        score
    }
}

/// Returns the address of a client in the prefix with this index.
fn address(at: u32, host: u32) -> IpAddr {
    if at.is_multiple_of(2) {
        return Ipv4Addr::from_bits((10 << 24) + (at << 8) + host).into();
    }
    let subnet = u128::from(host % 7);
    let bits = (0x2001_0db8_u128 << 96) + (u128::from(at) << 72) + (subnet << 64) + u128::from(host);
    Ipv6Addr::from_bits(bits).into()
}

/// Returns the record of a socket that sent 1 MB.
fn socket(time_unix_s: u64, client: SocketAddr, retransmitted: f64) -> Record {
    let counters = Counters {
        bytes_sent: 1_000_000,
        bytes_retrans: (1e6 * retransmitted) as u64,
        ..Counters::default()
    };
    let server = (Ipv4Addr::new(192, 0, 2, 1), 443).into();
    let socket = SocketRecord::new(time_unix_s * 1_000_000, client, server);
    Record::Socket(Box::new(SocketRecord { counters: Some(counters), ..socket }))
}

/// Decides a connection as an edge does.
fn steered(rule: &Rule, bundle: u64, client: IpAddr, unix_s: u64) -> Steered {
    Steered {
        bundle,
        rule: Some(rule.prefix.to_string()),
        is_holdout: rule.holds_out(client, unix_s),
        draw_period: rule.period(unix_s),
        ..Steered::default()
    }
}

impl Verdicts {
    fn add_score(&mut self, windows: u64, score: Score) {
        let part = (windows / paired::PART_WINDOWS) as usize;
        self.scores.resize(self.scores.len().max(part + 1), Score::default());
        self.scores[part].merge(score);
    }

    fn add(&mut self, decision: &Decision, number: u64, entered: &mut HashMap<Prefix, u64>) {
        for change in &decision.entered {
            entered.entry(change.prefix).or_insert(number);
        }
        self.promising += decision.promising.len();
        self.proved += decision.proved.len();
        let is_ipv6 = |prefix: &&Prefix| prefix.first().is_ipv6();
        self.proved_of_ipv6 += decision.proved.iter().filter(is_ipv6).count();
        self.pairs.merge(decision.pairs);
        self.windows.extend(decision.proved.iter().map(|prefix| number - entered[prefix]));
        for change in &decision.left {
            *self.left.entry(change.reason).or_default() += 1;
        }
    }
}
