//! Simulated PoP for rollout tests. Its edges poll for bundles, apply them, and perform well or
//! badly.

use std::sync::Arc;

use thalweg_bundle::{Bundle, Content};

use crate::tests::lab::Lab;
use crate::*;

/// A PoP with its rollout and edges.
pub(super) struct Site {
    pub(super) lab: Lab,
    pub(super) rollout: Rollout,
    pub(super) now_unix_s: u64,
    pub(super) edges: Vec<TestEdge>,
}

/// An edge with its bundle, its refusal and its behaviour.
#[derive(Default)]
pub(super) struct TestEdge {
    /// Name used by the edge when it polls.
    pub(super) name: String,
    /// Host name in the edge's records, if different.
    pub(super) host: Option<String>,
    pub(super) in_force: Option<Bundle>,
    pub(super) refused: Option<Refusal>,
    pub(super) behaviour: Behaviour,
}

/// An edge's behaviour in a window.
#[derive(Clone, Copy)]
pub(super) struct Behaviour {
    pub(super) connections: u64,
    pub(super) failed: f64,
    pub(super) retransmitted: f64,
    pub(super) ln_goodput: f64,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { connections: 400, failed: 0.01, retransmitted: 0.02, ln_goodput: 14.0 }
    }
}

impl Site {
    pub(super) fn new(edges: usize, change: impl FnOnce(&mut Settings)) -> Self {
        let lab = Lab::new(change);
        let now_unix_s = lab.number * lab.settings.window_s;
        let edges = (0..edges).map(|at| TestEdge { name: format!("edge-{at}"), ..TestEdge::default() });
        Self { lab, rollout: Rollout::default(), now_unix_s, edges: edges.collect() }
    }

    /// Polls as the edge at index `at`, and applies the bundle assigned to it.
    pub(super) fn poll(&mut self, at: usize) -> Vec<Transition> {
        let transitions = self.ask(at);
        let edge = &mut self.edges[at];
        if let Some(bundle) = self.rollout.document(&edge.name) {
            edge.in_force = Some(bundle.clone());
        }
        transitions
    }

    /// Polls as the edge at index `at`, without applying anything.
    pub(super) fn ask(&mut self, at: usize) -> Vec<Transition> {
        let edge = &self.edges[at];
        let poll = Poll {
            edge: &edge.name,
            in_force: edge.in_force.as_ref().map(Bundle::checksum),
            number: edge.in_force.as_ref().map(|bundle| bundle.content().number),
            refused: edge.refused.as_ref(),
        };
        let now_unix_s = self.now_unix_s;
        with_tenants(&mut self.lab.state, |tenants| {
            self.rollout.poll(&self.lab.settings, tenants, poll, now_unix_s)
        })
    }

    /// Polls as the edge at index `at`, refusing the bundle assigned to it.
    pub(super) fn refuse(&mut self, at: usize, reason: &str) -> Vec<Transition> {
        let edge = &mut self.edges[at];
        let bundle = self.rollout.document(&edge.name);
        edge.refused = bundle
            .map(|bundle| Refusal { checksum: bundle.checksum().to_owned(), reason: reason.to_owned() });
        self.ask(at)
    }

    /// Polls twice as every edge: the first poll applies the bundle, and the second acknowledges
    /// it.
    pub(super) fn poll_all(&mut self) -> Vec<Transition> {
        let edges = self.edges.len();
        (0..2).flat_map(|_| 0..edges).flat_map(|at| self.poll(at)).collect()
    }

    /// Advances time by the given number of seconds, with a tick each second.
    pub(super) fn pass(&mut self, seconds: u64) -> Vec<Transition> {
        let mut transitions = Vec::new();
        for _ in 0..seconds {
            self.now_unix_s += 1;
            transitions.extend(self.tick());
        }
        transitions
    }

    /// Ticks the rollout.
    pub(super) fn tick(&mut self) -> Vec<Transition> {
        let (settings, now_unix_s) = (&self.lab.settings, self.now_unix_s);
        with_tenants(&mut self.lab.state, |tenants| self.rollout.tick(settings, tenants, now_unix_s))
    }

    /// Updates the rollout after a decision of `state`.
    pub(super) fn decided(&mut self, state: &mut State) -> Vec<Transition> {
        let (settings, now_unix_s) = (&self.lab.settings, self.now_unix_s);
        with_tenants(state, |tenants| self.rollout.apply_decisions(settings, tenants, now_unix_s))
    }

    /// Closes and decides a window.
    pub(super) fn round(&mut self) -> Vec<Transition> {
        let window = self.window();
        self.close(&window)
    }

    pub(super) fn window(&mut self) -> Window {
        let edges = self.edges.iter().filter(|edge| edge.behaviour.connections > 0);
        let edges = edges.map(|edge| (edge.host().clone(), edge.behaviour.figures())).collect();
        let window = Window { edges: Arc::new(edges), ..self.lab.window() };
        self.lab.number += 1;
        window
    }

    pub(super) fn close(&mut self, window: &Window) -> Vec<Transition> {
        let settings = &self.lab.settings;
        let now_unix_s = (window.number + 1) * settings.window_s + 60;
        self.now_unix_s = self.now_unix_s.max(now_unix_s);
        let (rollout, now_unix_s) = (&mut self.rollout, self.now_unix_s);
        with_tenants(&mut self.lab.state, |tenants| {
            let mut transitions = rollout.observe(settings, tenants, window, now_unix_s);
            let moment = Moment { now_unix_s, seed: 1, acknowledged_bundle: rollout.newest() };
            tenants.decide(settings, &[(String::new(), window.clone())], moment);
            transitions.extend(rollout.apply_decisions(settings, tenants, now_unix_s));
            transitions
        })
    }

    /// Runs rounds until there is a candidate that its canaries do not use yet. Returns the
    /// candidate's number.
    pub(super) fn until_tried(&mut self) -> u64 {
        for _ in 0..100 {
            self.poll_all();
            self.round();
            if let Some(candidate) = self.rollout.candidate() {
                return candidate.bundle.content().number;
            }
        }
        panic!("never a candidate");
    }

    /// Runs rounds until canaries use a candidate. Returns the candidate's number. The next window
    /// is the first complete window.
    pub(super) fn until_watched(&mut self) -> u64 {
        let number = self.until_tried();
        self.poll_all();
        assert!(matches!(self.rollout.candidate().unwrap().stage, Stage::Watched { .. }));
        assert_eq!(self.round(), [], "the window in which the canaries applied it");
        number
    }

    /// Returns whether an edge is a canary.
    pub(super) fn is_canary(&self, at: usize) -> bool {
        let candidate = self.rollout.candidate();
        candidate.is_some_and(|candidate| candidate.canaries.contains_key(&self.edges[at].name))
    }

    pub(super) fn canary(&self) -> usize {
        (0..self.edges.len()).find(|at| self.is_canary(*at)).unwrap()
    }

    /// Returns the number of the bundle assigned to an edge.
    pub(super) fn given(&self, at: usize) -> Option<u64> {
        self.rollout.document(&self.edges[at].name).map(|bundle| bundle.content().number)
    }
}

impl TestEdge {
    /// Switches to a bundle from another controller.
    pub(super) fn switch_to(&mut self, number: u64) {
        self.in_force = Some(Bundle::new(Content { number, ..Content::default() }).unwrap());
    }

    pub(super) fn host(&self) -> &String {
        self.host.as_ref().unwrap_or(&self.name)
    }
}

/// Calls `call` with `state` as the only tenant state, for hosts without a tenant, and stores the
/// result in `state`.
fn with_tenants<T>(state: &mut State, call: impl FnOnce(&mut Tenants) -> T) -> T {
    let mut tenants = Tenants::from_iter([(String::new(), state.clone())]);
    let result = call(&mut tenants);
    *state = tenants.states().get("").cloned().unwrap_or_default();
    result
}

impl Behaviour {
    fn figures(self) -> EdgeFigures {
        let Self { connections, failed, retransmitted, ln_goodput } = self;
        let mut figures = EdgeFigures { responses: connections, ..EdgeFigures::default() };
        for at in 0..connections {
            // Fail the given share of responses; scatter the other values around their mean.
            figures.failed.add(f64::from(u8::from((at as f64 + 0.5) % (1.0 / failed) < 1.0)));
            let off = if at % 2 == 0 { 0.5 } else { -0.5 };
            figures.retransmitted.add(retransmitted * (1.0 + off));
            figures.ln_goodput.add(ln_goodput + off);
        }
        figures
    }
}
