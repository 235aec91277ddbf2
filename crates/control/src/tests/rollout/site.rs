//! What rollouts are tested with: a PoP with edges that ask for their bundle, take it, and do well by it or not.

use std::sync::Arc;

use thalweg_bundle::{Bundle, Content};

use crate::tests::lab::Lab;
use crate::*;

/// An edge: what it goes by, and what it refuses.
pub(super) struct Site {
    pub(super) lab: Lab,
    pub(super) rollout: Rollout,
    pub(super) now_unix_s: u64,
    pub(super) edges: Vec<TestEdge>,
}

#[derive(Default)]
pub(super) struct TestEdge {
    /// The name by which it asks,
    pub(super) name: String,
    /// and that of its records, where that is another.
    pub(super) host: Option<String>,
    pub(super) in_force: Option<Bundle>,
    pub(super) refused: Option<(String, String)>,
    pub(super) does: Does,
}

/// How an edge does in a window.
#[derive(Clone, Copy)]
pub(super) struct Does {
    pub(super) connections: u64,
    pub(super) failed: f64,
    pub(super) retransmitted: f64,
    pub(super) ln_goodput: f64,
}

impl Default for Does {
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

    /// The edge at `at` asks, and takes what it is given.
    pub(super) fn poll(&mut self, at: usize) -> Vec<Transition> {
        let told = self.ask(at);
        let edge = &mut self.edges[at];
        if let Some(bundle) = self.rollout.document(&edge.name) {
            edge.in_force = Some(bundle.clone());
        }
        told
    }

    /// It asks, and takes nothing.
    pub(super) fn ask(&mut self, at: usize) -> Vec<Transition> {
        let edge = &self.edges[at];
        let poll = Poll {
            edge: &edge.name,
            in_force: edge.in_force.as_ref().map(Bundle::checksum),
            number: edge.in_force.as_ref().map(|bundle| bundle.content().number),
            refused: edge.refused.as_ref().map(|(checksum, reason)| (checksum.as_str(), reason.as_str())),
        };
        let now_unix_s = self.now_unix_s;
        with_tenants(&mut self.lab.state, |tenants| {
            self.rollout.poll(&self.lab.settings, tenants, poll, now_unix_s)
        })
    }

    /// The edge at `at` refuses what it is given.
    pub(super) fn refuse(&mut self, at: usize, reason: &str) -> Vec<Transition> {
        let edge = &mut self.edges[at];
        let bundle = self.rollout.document(&edge.name);
        edge.refused = bundle.map(|bundle| (bundle.checksum().to_owned(), reason.to_owned()));
        self.ask(at)
    }

    /// All edges ask, take what they are given and say so.
    pub(super) fn poll_all(&mut self) -> Vec<Transition> {
        let edges = self.edges.len();
        (0..2).flat_map(|_| 0..edges).flat_map(|at| self.poll(at)).collect()
    }

    /// So many seconds pass.
    pub(super) fn pass(&mut self, seconds: u64) -> Vec<Transition> {
        let mut told = Vec::new();
        for _ in 0..seconds {
            self.now_unix_s += 1;
            told.extend(self.tick());
        }
        told
    }

    /// The time is told.
    pub(super) fn tick(&mut self) -> Vec<Transition> {
        let (settings, now_unix_s) = (&self.lab.settings, self.now_unix_s);
        with_tenants(&mut self.lab.state, |tenants| self.rollout.tick(settings, tenants, now_unix_s))
    }

    /// A state is followed.
    pub(super) fn decided(&mut self, state: &mut State) -> Vec<Transition> {
        let (settings, now_unix_s) = (&self.lab.settings, self.now_unix_s);
        with_tenants(state, |tenants| self.rollout.decided(settings, tenants, now_unix_s))
    }

    /// A window closes and is decided.
    pub(super) fn round(&mut self) -> Vec<Transition> {
        let window = self.window();
        self.close(&window)
    }

    pub(super) fn window(&mut self) -> Window {
        let edges = self.edges.iter().filter(|edge| edge.does.connections > 0);
        let edges = edges.map(|edge| (edge.host().clone(), edge.does.figures())).collect();
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
            let mut told = rollout.observe(settings, tenants, window, now_unix_s);
            let moment = Moment { now_unix_s, seed: 1, acknowledged_bundle: rollout.newest() };
            tenants.decide(settings, &[(String::new(), window.clone())], moment);
            told.extend(rollout.decided(settings, tenants, now_unix_s));
            told
        })
    }

    /// Rounds until there is a candidate, which canaries have and do not go by yet.
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

    /// The same, and they go by it: the next window but one is the first that is whole.
    pub(super) fn until_watched(&mut self) -> u64 {
        let number = self.until_tried();
        self.poll_all();
        assert!(matches!(self.rollout.candidate().unwrap().stage, Stage::Watched { .. }));
        assert_eq!(self.round(), [], "the window in which they have taken it");
        number
    }

    /// Whether an edge is a canary.
    pub(super) fn is_canary(&self, at: usize) -> bool {
        let candidate = self.rollout.candidate();
        candidate.is_some_and(|candidate| candidate.canaries.contains_key(&self.edges[at].name))
    }

    pub(super) fn canary(&self) -> usize {
        (0..self.edges.len()).find(|at| self.is_canary(*at)).unwrap()
    }

    /// The number that an edge is given.
    pub(super) fn given(&self, at: usize) -> Option<u64> {
        self.rollout.document(&self.edges[at].name).map(|bundle| bundle.content().number)
    }
}

impl TestEdge {
    /// Goes by a bundle of somebody else.
    pub(super) fn go_by(&mut self, number: u64) {
        self.in_force = Some(Bundle::new(Content { number, ..Content::default() }).unwrap());
    }

    pub(super) fn host(&self) -> &String {
        self.host.as_ref().unwrap_or(&self.name)
    }
}

/// A call that takes the states of all tenants, with that of hosts that none has.
fn with_tenants<T>(state: &mut State, call: impl FnOnce(&mut Tenants) -> T) -> T {
    let mut tenants = Tenants::from_iter([(String::new(), state.clone())]);
    let told = call(&mut tenants);
    *state = tenants.states().get("").cloned().unwrap_or_default();
    told
}

impl Does {
    fn figures(self) -> Figures {
        let Self { connections, failed, retransmitted, ln_goodput } = self;
        let mut figures = Figures { responses: connections, ..Figures::default() };
        for at in 0..connections {
            // Some failed, in that share; the others scattered about the mean.
            figures.failed.add(f64::from(u8::from((at as f64 + 0.5) % (1.0 / failed) < 1.0)));
            let off = if at % 2 == 0 { 0.5 } else { -0.5 };
            figures.retransmitted.add(retransmitted * (1.0 + off));
            figures.ln_goodput.add(ln_goodput + off);
        }
        figures
    }
}
