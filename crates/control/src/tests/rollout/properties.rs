//! What holds whatever comes: polls, refusals, edges that do badly or are silent, clocks that jump, settings that change, and a controller
//! that is killed and goes on from what it has kept.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use thalweg_bundle::{Rule, Share};
use thalweg_record::Prefix;

use super::site::{Does, Site};
use crate::*;

const EDGES: usize = 4;

#[derive(Debug, Clone)]
enum Event {
    /// A window, in which some edges do badly; what BBR does.
    Round { bad: u8, effect: f64, reports: bool },
    /// An edge asks, and takes what it is given.
    Take(usize),
    /// It asks, and takes nothing.
    Ask(usize),
    /// It refuses what it is given.
    Refuse(usize),
    /// It has lost what it had.
    Forget(usize),
    /// Seconds pass.
    Pass(u64),
    /// The clock is set.
    Jump(i64),
    /// The controller is killed, and goes on from what it has kept.
    Restart,
    /// The host of an edge's records becomes another one than its name, or its name again.
    Rename(usize),
    /// An edge goes by a bundle of this number, of somebody else.
    Tell(usize, u64),
    /// A setting is changed.
    Change(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let round = (any::<u8>(), -0.6..0.6, prop::bool::weighted(0.9));
    prop_oneof![
        4 => round.prop_map(|(bad, effect, reports)| Event::Round { bad: bad & bad >> 4, effect, reports }),
        8 => (0..EDGES).prop_map(Event::Take),
        1 => (0..EDGES).prop_map(Event::Ask),
        1 => (0..EDGES).prop_map(Event::Refuse),
        1 => (0..EDGES).prop_map(Event::Forget),
        1 => (1_u64..200).prop_map(Event::Pass),
        1 => (-5_000_i64..5_000).prop_map(Event::Jump),
        1 => Just(Event::Restart),
        1 => (0..EDGES).prop_map(Event::Rename),
        1 => (0..EDGES, 1_u64..400).prop_map(|(at, number)| Event::Tell(at, number)),
        1 => any::<u8>().prop_map(Event::Change),
    ]
}

/// A bundle's checksum, and of each prefix the share held out and the toss.
type SeenBundle = (String, BTreeMap<Prefix, (u32, String)>);

/// All that was ever given to somebody.
#[derive(Default)]
struct Seen {
    /// By number.
    bundles: BTreeMap<u64, SeenBundle>,
    highest: [u64; EDGES],
    rolled_back: BTreeSet<u64>,
    refused: [BTreeSet<String>; EDGES],
    /// Windows that told of a canary that went by the candidate.
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
            prop_assert_eq!(&*known, &this, "a number is of one bundle");
            prop_assert!(!self.rolled_back.contains(&content.number));
            // Nobody is given a rule of a prefix that has left, for whatever reason.
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
            self.highest[at] = number;
        }
        // Connections that count for a prefix went by the share that the state knows.
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

    /// Before a window is taken.
    fn watch(&mut self, site: &Site, window: &Window) {
        let canaries = site.rollout.candidate().map(|it| &it.canaries);
        let is_seen = |(name, goes_by_it): (&String, &bool)| *goes_by_it && window.edges.contains_key(name);
        self.watched += u32::from(canaries.is_some_and(|it| it.iter().any(is_seen)));
    }

    fn hear(&mut self, told: &[Transition], site: &Site) {
        for transition in told {
            match transition {
                Transition::Acknowledged { .. } => self.watched = 0,
                Transition::Promoted { number, .. } => {
                    let windows = site.lab.settings.canary.windows;
                    assert!(self.watched >= windows, "{number} was not watched");
                }
                Transition::RolledBack { number, withdrawn, .. } => {
                    self.rolled_back.insert(*number);
                    let is_steered =
                        |it: &Whom| site.lab.state.entry(it.prefix).is_some_and(|it| it.steered().is_some());
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
    fn what_holds_whatever_comes(events in vec(event(), 1..250)) {
        let mut site = Site::new(EDGES, |settings| {
            (settings.history_windows, settings.observed_windows_min, settings.cool_off_windows) = (6, 2, 4);
            (settings.exploring_max, settings.trial_windows_max, settings.proof_windows_max) = (1, 12, 12);
            (settings.guardrail_pause_windows, settings.canary.windows_max) = (2, 2);
        });
        let mut seen = Seen::default();
        let mut kept = (site.lab.state.encode(), site.rollout.encode());
        for event in events {
            let told = match event {
                Event::Round { bad, effect, reports } => {
                    site.lab.effect = effect;
                    for (at, edge) in site.edges.iter_mut().enumerate() {
                        let is_bad = bad >> at & 1 == 1;
                        edge.does = Does { failed: if is_bad { 0.2 } else { 0.01 }, ..Does::default() };
                    }
                    let mut window = site.window();
                    if !reports {
                        window.prefixes.clear();
                    }
                    seen.watch(&site, &window);
                    site.close(&window)
                }
                Event::Take(at) => site.poll(at),
                Event::Ask(at) => site.ask(at),
                Event::Refuse(at) => {
                    let checksum =
                        site.rollout.document(&site.edges[at].name).map(|bundle| bundle.checksum().to_owned());
                    let told = site.refuse(at, "no");
                    seen.refused[at].extend(checksum);
                    told
                }
                Event::Forget(at) => {
                    (site.edges[at].in_force, site.edges[at].refused) = (None, None);
                    Vec::new()
                }
                Event::Pass(seconds) => site.pass(seconds),
                Event::Jump(by) => {
                    site.now_unix_s = site.now_unix_s.saturating_add_signed(by);
                    Vec::new()
                }
                Event::Restart => {
                    site.lab.state = State::decode(kept.0.as_bytes()).unwrap();
                    site.rollout = Rollout::decode(kept.1.as_bytes()).unwrap();
                    Vec::new()
                }
                Event::Rename(at) => {
                    let edge = &mut site.edges[at];
                    edge.host = if edge.host.is_none() { Some(format!("host-{at}")) } else { None };
                    Vec::new()
                }
                Event::Tell(at, number) => {
                    site.edges[at].go_by(number);
                    site.ask(at)
                }
                Event::Change(how) => {
                    change(&mut site.lab.settings, how);
                    Vec::new()
                }
            };
            seen.hear(&told, &site);
            seen.check(&site)?;
            if !told.is_empty() {
                kept = (site.lab.state.encode(), site.rollout.encode());
            }
        }
    }
}
