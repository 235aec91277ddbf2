//! Invariants of rollouts under random events: polls, refusals, bad or silent edges, clock jumps,
//! changed settings, and a controller that crashes and resumes from its stored state.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use thalweg_bundle::{Bundle, Rule, Share};
use thalweg_record::Prefix;

use super::site::{Behaviour, Site};
use crate::*;

const EDGES: usize = 4;

#[derive(Debug, Clone)]
enum Event {
    /// A window closes. `bad` selects edges that perform badly, `effect` is the effect of BBR, and
    /// `reports` is whether the PoP has traffic.
    Round { bad: u8, effect: f64, reports: bool },
    /// An edge polls and applies its bundle.
    Apply(usize),
    /// An edge polls but applies nothing.
    Ask(usize),
    /// An edge refuses its bundle.
    Refuse(usize),
    /// An edge loses its bundle.
    Forget(usize),
    /// Time passes, in seconds.
    Pass(u64),
    /// The clock is set ahead or back by this many seconds.
    Jump(i64),
    /// The controller crashes and resumes from its stored state.
    Restart,
    /// The host name in an edge's records changes to differ from the edge's name, or changes back.
    Rename(usize),
    /// An edge uses another controller's bundle with this number.
    Foreign(usize, u64),
    /// A setting changes.
    Change(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let round = (any::<u8>(), -0.6..0.6, prop::bool::weighted(0.9));
    prop_oneof![
        4 => round.prop_map(|(bad, effect, reports)| Event::Round { bad: bad & bad >> 4, effect, reports }),
        8 => (0..EDGES).prop_map(Event::Apply),
        1 => (0..EDGES).prop_map(Event::Ask),
        1 => (0..EDGES).prop_map(Event::Refuse),
        1 => (0..EDGES).prop_map(Event::Forget),
        1 => (1_u64..200).prop_map(Event::Pass),
        1 => (-5_000_i64..5_000).prop_map(Event::Jump),
        1 => Just(Event::Restart),
        1 => (0..EDGES).prop_map(Event::Rename),
        1 => (0..EDGES, 1_u64..400).prop_map(|(at, number)| Event::Foreign(at, number)),
        1 => any::<u8>().prop_map(Event::Change),
    ]
}

/// A bundle's checksum, and the held-out share and salt of each prefix in the bundle.
type SeenBundle = (String, BTreeMap<Prefix, (u32, String)>);

/// Everything distributed to edges so far.
#[derive(Default)]
struct Seen {
    /// Bundles by number.
    bundles: BTreeMap<u64, SeenBundle>,
    /// Number of the bundle that each edge has.
    highest: [u64; EDGES],
    rolled_back: BTreeSet<u64>,
    refused: [BTreeSet<String>; EDGES],
    /// Number of windows with traffic from a canary that used the candidate.
    watched: u32,
}

impl Seen {
    fn check(&mut self, site: &Site) -> Result<(), TestCaseError> {
        let (rollout, state) = (&site.rollout, &site.lab.state);
        let out: Vec<_> =
            rollout.stable().into_iter().chain(rollout.candidate().map(|it| &it.bundle)).collect();
        for bundle in &out {
            let content = bundle.content();
            let held = |rule: &Rule| (rule.prefix, (rule.holdout.millionths(), rule.salt.clone()));
            let rules = content.rules.iter().map(held).collect();
            let this = (bundle.checksum().to_owned(), rules);
            let known = self.bundles.entry(content.number).or_insert_with(|| this.clone());
            prop_assert_eq!(&*known, &this, "a number identifies one bundle");
            prop_assert!(!self.rolled_back.contains(&content.number));
            // No bundle may contain a rule for a withdrawn prefix.
            for rule in &content.rules {
                let is_steered = state.entry(rule.prefix).is_some_and(|entry| entry.steered().is_some());
                prop_assert!(is_steered, "{} in {}", rule.prefix, content.number);
            }
        }
        for at in 0..EDGES {
            let Some(bundle) = rollout.document(&site.edges[at].name) else { continue };
            prop_assert!(out.contains(&bundle));
            prop_assert!(!self.refused[at].contains(bundle.checksum()));
            let number = bundle.content().number;
            let known = rollout.edges().get(&site.edges[at].name).and_then(|edge| edge.number);
            prop_assert!(known <= Some(number), "{number} to an edge that has {known:?}");
            prop_assert!(number >= self.highest[at], "{number} after {}", self.highest[at]);
            // An edge keeps its bundle while it refuses the assigned bundle.
            let used = site.edges[at].in_force.as_ref().map(Bundle::checksum);
            if used == Some(bundle.checksum()) {
                self.highest[at] = number;
            }
        }
        // Connections that count for a prefix must have used the state's held-out share and salt.
        for (entry, steered) in state.steered() {
            for (number, (_, rules)) in self.bundles.range(steered.from_bundle..) {
                let held = rules.get(&entry.prefix);
                let own = (steered.holdout_millionths, format!("{:x}", steered.salt));
                prop_assert!(held.is_none_or(|held| *held == own), "{} in {number}", entry.prefix);
            }
        }
        prop_assert!(state.bundle >= rollout.newest());
        prop_assert_eq!(&Rollout::decode(rollout.encode().as_bytes()).unwrap(), rollout);
        prop_assert_eq!(&State::decode(state.encode().as_bytes()).unwrap(), state);
        Ok(())
    }

    /// Counts the window if it has canary traffic. Must be called before the window is observed.
    fn watch(&mut self, site: &Site, window: &Window) {
        let canaries = site.rollout.candidate().map(|it| &it.canaries);
        let is_seen = |(name, uses_it): (&String, &bool)| *uses_it && window.edges.contains_key(name);
        self.watched += u32::from(canaries.is_some_and(|it| it.iter().any(is_seen)));
    }

    fn record(&mut self, transitions: &[Transition], site: &Site) {
        for transition in transitions {
            match transition {
                Transition::Acknowledged { .. } => self.watched = 0,
                Transition::Promoted { number, .. } => {
                    let windows = site.lab.settings.canary.windows;
                    assert!(self.watched >= windows, "{number} was not watched");
                }
                Transition::RolledBack { number, withdrawn, .. } => {
                    self.rolled_back.insert(*number);
                    let is_steered = |it: &RuleKey| {
                        site.lab.state.entry(it.prefix).is_some_and(|it| it.steered().is_some())
                    };
                    assert!(!withdrawn.iter().any(is_steered));
                }
                Transition::Ended { number } => drop(self.rolled_back.insert(*number)),
                _ => {}
            }
        }
    }
}

fn change(settings: &mut Settings, how: u8) {
    match how % 6 {
        0 => settings.holdout_trial = Share::from_millionths(300_000).unwrap(),
        1 => settings.holdout_trial = Share::from_millionths(500_000).unwrap(),
        2 => settings.steered_max = usize::from(how / 5) % 6,
        3 => settings.left_alone = vec![format!("203.0.{}.0/24", how % 10).parse().unwrap()],
        4 => settings.hosts_left_alone = vec![format!("{}.example", how % 3)],
        _ => settings.changes_max = usize::from(how / 5) % 4,
    }
    settings.explored_max = settings.steered_max;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn invariants_hold_for_any_sequence_of_events(events in vec(event(), 1..250)) {
        let mut site = Site::new(EDGES, |settings| {
            (settings.history_windows, settings.observed_windows_min, settings.cool_off_windows) = (6, 2, 4);
            (settings.exploring_max, settings.trial_windows_max, settings.proof_windows_max) = (1, 12, 12);
            (settings.guardrail_pause_windows, settings.canary.windows_max) = (2, 2);
        });
        let mut seen = Seen::default();
        let mut stored = (site.lab.state.encode(), site.rollout.encode());
        for event in events {
            let transitions = match event {
                Event::Round { bad, effect, reports } => {
                    site.lab.effect = effect;
                    for (at, edge) in site.edges.iter_mut().enumerate() {
                        let is_bad = bad >> at & 1 == 1;
                        edge.behaviour = Behaviour { failed: if is_bad { 0.2 } else { 0.01 }, ..Behaviour::default() };
                    }
                    let mut window = site.window();
                    if !reports {
                        window.prefixes.clear();
                    }
                    seen.watch(&site, &window);
                    site.close(&window)
                }
                Event::Apply(at) => site.poll(at),
                Event::Ask(at) => site.ask(at),
                Event::Refuse(at) => {
                    let checksum =
                        site.rollout.document(&site.edges[at].name).map(|bundle| bundle.checksum().to_owned());
                    let transitions = site.refuse(at, "no");
                    seen.refused[at].extend(checksum);
                    transitions
                }
                Event::Forget(at) => {
                    (site.edges[at].in_force, site.edges[at].refused) = (None, None);
                    seen.highest[at] = 0;
                    Vec::new()
                }
                Event::Pass(seconds) => site.pass(seconds),
                Event::Jump(by) => {
                    site.now_unix_s = site.now_unix_s.saturating_add_signed(by);
                    Vec::new()
                }
                Event::Restart => {
                    site.lab.state = State::decode(stored.0.as_bytes()).unwrap();
                    site.rollout = Rollout::decode(stored.1.as_bytes()).unwrap();
                    Vec::new()
                }
                Event::Rename(at) => {
                    let edge = &mut site.edges[at];
                    edge.host = if edge.host.is_none() { Some(format!("host-{at}")) } else { None };
                    Vec::new()
                }
                Event::Foreign(at, number) => {
                    site.edges[at].switch_to(number);
                    seen.highest[at] = 0;
                    site.ask(at)
                }
                Event::Change(how) => {
                    change(&mut site.lab.settings, how);
                    Vec::new()
                }
            };
            seen.record(&transitions, &site);
            seen.check(&site)?;
            if !transitions.is_empty() {
                stored = (site.lab.state.encode(), site.rollout.encode());
            }
        }
    }
}
