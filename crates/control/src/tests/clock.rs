//! Tests of clock changes while records arrive, across windows, decisions and rollouts.

use std::sync::Arc;

use thalweg_record::{Delivery, Entry as NumberedRecord, Network, Record, ResponseRecord, Source, Steered};

use super::lab::prefix;
use super::records;
use crate::*;

const WINDOW_S: u64 = 300;
const HOUR_S: u64 = 3_600;
const PREFIXES: u8 = 10;
/// Number of connections per prefix and window.
const CONNECTIONS: u16 = 40;

/// A PoP with one edge. Records, windows, decisions and bundles share one clock.
struct Pop {
    settings: Settings,
    collector: Collector,
    tenants: Tenants,
    rollout: Rollout,
    now_unix_s: u64,
    port: u16,
    /// Decided windows, in order.
    decided: Vec<u64>,
    transitions: Vec<Transition>,
}

impl Pop {
    fn new() -> Self {
        // Evidence never suffices, so only the clock causes changes.
        let settings = Settings {
            exploring_max: 0,
            measure: Measure::Goodput,
            evidence_connections_min: u32::MAX,
            ..Settings::default()
        };
        Self {
            collector: Collector::new(settings.clone(), 1),
            settings,
            tenants: Tenants::default(),
            rollout: Rollout::default(),
            now_unix_s: 1_800_000_000,
            port: 0,
            decided: Vec::new(),
            transitions: Vec::new(),
        }
    }

    /// Advances by half a minute: the edge polls and serves, and windows close.
    fn step(&mut self) {
        self.now_unix_s += 30;
        let now_unix_s = self.now_unix_s;
        let has = self.rollout.document("edge-1").cloned();
        let poll = Poll {
            edge: "edge-1",
            in_force: has.as_ref().map(thalweg_bundle::Bundle::checksum),
            number: has.as_ref().map(|bundle| bundle.content().number),
            refused: None,
        };
        self.transitions.extend(self.rollout.poll(&self.settings, &mut self.tenants, poll, now_unix_s));
        self.transitions.extend(self.rollout.tick(&self.settings, &mut self.tenants, now_unix_s));
        for connection in 0..CONNECTIONS / (WINDOW_S / 30) as u16 {
            self.port = self.port.wrapping_add(1);
            for at in 0..PREFIXES {
                self.serve(at, connection);
            }
        }
        for ClosedWindows { windows, .. } in self.collector.close(now_unix_s) {
            let [(_, window)] = &windows[..] else { panic!("{} tenants", windows.len()) };
            if self.tenants.is_next(&self.settings, window, now_unix_s) {
                self.decide(window);
            }
        }
    }

    /// Serves a response to a client in prefix `at`. The first two prefixes are slow.
    fn serve(&mut self, at: u8, connection: u16) {
        let steered = self.entry(prefix(at)).and_then(Entry::steered).is_some().then(|| Steered {
            bundle: self.rollout.document("edge-1").map_or(0, |bundle| bundle.content().number),
            rule: Some(prefix(at).to_string()),
            is_holdout: connection.is_multiple_of(2),
            ..Steered::default()
        });
        let client = ([203, 0, at, 7], self.port).into();
        let bytes = if at < 2 { 200_000 } else { 2_000_000 } + u64::from(self.port % 7) * 10_000;
        let response = ResponseRecord {
            delivery: Some(Delivery::complete(bytes, 1_000_000)),
            ..records::response(self.now_unix_s - 1, client, steered)
        };
        let source = Source { host: "edge-1".into(), pop: "fra1".into(), epoch: 1 };
        let record = Record::Response(Arc::new(response));
        let record = NumberedRecord { number: 0, network: Network::default(), record };
        self.collector.add(&source, &record, self.now_unix_s);
    }

    fn decide(&mut self, window: &Window) {
        let (settings, now_unix_s) = (&self.settings, self.now_unix_s);
        self.transitions.extend(self.rollout.observe(settings, &mut self.tenants, window, now_unix_s));
        let moment = Moment { now_unix_s, seed: 1, acknowledged_bundle: self.rollout.newest() };
        self.tenants.decide(settings, &[(String::new(), window.clone())], moment);
        self.transitions.extend(self.rollout.apply_decisions(settings, &mut self.tenants, now_unix_s));
        self.decided.push(window.number);
    }

    /// Advances by the given number of windows.
    fn pass(&mut self, windows: u64) {
        (0..windows * WINDOW_S / 30).for_each(|_| self.step());
    }

    fn entry(&self, prefix: thalweg_record::Prefix) -> Option<&Entry> {
        self.tenants.states().get("")?.entry(prefix)
    }

    fn rules(&self) -> usize {
        self.rollout.stable().map_or(0, |bundle| bundle.content().rules.len())
    }
}

#[test]
fn decisions_survive_a_clock_set_ahead_and_back_by_hours() {
    let mut pop = Pop::new();
    // Wait until both slow prefixes are on trial at all edges.
    pop.pass(18);
    assert_eq!((pop.rules(), pop.rollout.candidate()), (2, None), "{:?}", pop.transitions);
    let (first, windows) = (pop.tenants.window().unwrap(), pop.decided.len());
    assert!(pop.decided.iter().zip(&pop.decided[1..]).all(|(one, next)| *next == one + 1));
    pop.transitions.clear();

    // Set the clock ahead by five hours. The windows in between are missing, and decisions
    // continue.
    pop.now_unix_s += 5 * HOUR_S;
    pop.pass(4);
    let ahead = pop.tenants.window().unwrap();
    assert!((58..=64).contains(&(ahead - first)), "{first}, {ahead}");
    assert!((4..=5).contains(&(pop.decided.len() - windows)), "{:?}", pop.decided);
    assert_eq!((pop.rules(), &pop.transitions[..]), (2, &[][..]));

    // Set the clock back by less than the history. No window is decided until the clock passes the
    // last decided one.
    let (windows, state) = (pop.decided.len(), pop.tenants.clone());
    pop.now_unix_s -= 5 * HOUR_S;
    pop.pass(50);
    assert_eq!(
        (pop.decided.len(), &pop.tenants),
        (windows, &state),
        "nothing is decided and the state is unchanged"
    );
    assert_eq!((pop.rules(), &pop.transitions[..]), (2, &[][..]), "no edge is reported silent");
    pop.pass(14);
    assert!(pop.decided.len() > windows && pop.tenants.window().unwrap() > ahead);

    // Set the clock back by more than the history. The earlier time is taken as wrong, so decisions
    // continue at once.
    let (windows, last) = (pop.decided.len(), pop.tenants.window().unwrap());
    pop.now_unix_s -= 20 * HOUR_S;
    pop.pass(4);
    assert!(pop.decided.len() >= windows + 3 && pop.tenants.window().unwrap() < last - 230);
    assert_eq!(pop.rules(), 2);
    assert!(
        !pop.transitions
            .iter()
            .any(|it| matches!(it, Transition::RolledBack { .. } | Transition::EdgeSilent { .. }))
    );
    let mut once = pop.decided.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), pop.decided.len(), "each window is decided once");
}

#[test]
fn clock_changes_do_not_shorten_a_cool_off() {
    let mut pop = Pop::new();
    pop.pass(18);
    pop.settings.left_alone = vec![prefix(0)];
    pop.pass(2);
    pop.settings.left_alone.clear();
    assert_eq!(pop.rules(), 1);
    let rounds = |pop: &Pop| match &pop.entry(prefix(0)).unwrap().phase {
        Phase::CoolingOff(cooling) => (cooling.rounds, cooling.rounds_min),
        other => panic!("{other:?}"),
    };
    for by in [300, -400].map(|hours| hours * HOUR_S.cast_signed()) {
        let before = rounds(&pop);
        let windows = pop.decided.len();
        pop.now_unix_s = pop.now_unix_s.saturating_add_signed(by);
        pop.pass(3);
        let passed = u32::try_from(pop.decided.len() - windows).unwrap();
        assert!((1..=4).contains(&passed), "{passed}");
        assert_eq!(rounds(&pop), (before.0 + passed, before.1), "a cool-off counts rounds, not hours");
    }
}
