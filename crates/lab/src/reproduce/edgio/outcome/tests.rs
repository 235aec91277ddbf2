//! Tests of outcomes that meet all conditions or violate one.

use super::super::controller::{ActiveBundle, Change, RolloutEvent};
use super::super::networks::{World, scenario};
use super::super::plan;
use super::super::record::BundleChange;
use super::*;

/// Unix time at which viewers started.
const STARTED_S: f64 = 998.0;

/// Builds round `number`. Windows last four seconds and are counted from 1,000 s; viewers started
/// two seconds before that.
fn round(number: u64, low: f64) -> Round {
    let arms = Percentiles { all: Some(LowPercentiles { p5: low, p10: 2.0 * low }) };
    Round {
        unix_s: 1_000 + 4 * number,
        steered: 0,
        kept: 0,
        entered: Vec::new(),
        left: Vec::new(),
        promising: Vec::new(),
        proved: Vec::new(),
        delivery_rate: arms,
        goodput: arms,
    }
}

fn is_slow(truth: Truth) -> bool {
    truth != Truth::Healthy
}

/// Returns a change of an edge's bundle, `at_s` seconds after the start.
fn bundle(edge: usize, at_s: f64, rules: u64) -> BundleChange {
    BundleChange {
        unix_s: STARTED_S + at_s,
        edge,
        bundle: ActiveBundle { number: Some(1), rules: Some(rules) },
    }
}

/// Builds a PoP's record: slow networks enter in the sixth round, those that gain are shown to be
/// helped, and the others leave.
fn pop(pop: usize, prefixes: &[String]) -> PopRecord {
    let mut rounds: Vec<_> = (0..12)
        .map(|number| {
            round(number, if number > 6 { 200_000.0 } else { 100_000.0 } + 1e3 * (number % 3) as f64)
        })
        .collect();
    // Checks skip the initial round, so its extreme rate must not matter.
    rounds[0] = round(0, 1e9);
    for (index, network) in NETWORKS.iter().enumerate().filter(|(_, network)| network.pop == pop) {
        let prefix = &prefixes[index];
        let change = |reason: &str| Change { prefix: prefix.clone(), reason: reason.into() };
        if is_slow(network.truth) {
            rounds[5].entered.push(change("slow"));
        }
        match network.truth {
            Truth::Gains | Truth::GainsLater => {
                rounds[7].promising.push(prefix.clone());
                rounds[8].proved.push(prefix.clone());
            }
            Truth::Loses => rounds[9].left.push(change("retransmits")),
            Truth::Slow | Truth::Open => rounds[9].left.push(change("not_helped")),
            Truth::Healthy => {}
        }
    }
    PopRecord { rounds, bundles: vec![bundle(0, 24.0, 3), bundle(1, 32.0, 3)], events: Vec::new() }
}

/// Builds an outcome that meets all conditions.
pub(crate) fn good() -> Outcome {
    let mut record = Record::of(&scenario(World::Mixed, Duration::ZERO));
    let prefixes: Vec<_> = record.networks.iter().map(|(prefix, _)| prefix.clone()).collect();
    record.pops = std::array::from_fn(|index| pop(index, &prefixes));
    let event = |text: &str| RolloutEvent { unix_s: 1_140, text: text.to_owned() };
    let refused = |pop: usize| PopRecord {
        events: vec![
            event(&format!("{} refuses candidate 2 and is excluded", edge_name(pop, 0))),
            event("bundle 2 rolled back by bundle 3"),
        ],
        ..PopRecord::default()
    };
    let damaged = Record { pops: std::array::from_fn(refused), networks: Vec::new() };
    Outcome {
        started_unix_s: STARTED_S,
        record,
        damaged: Some((damaged, 0)),
        ..Outcome::new(Plan { rounds_after: 4, ..plan(World::Mixed, false) })
    }
}

#[test]
fn before_ends_with_the_first_entry_and_after_has_the_last_rounds() {
    let outcome = good();
    let at = |rounds: &[Round]| rounds.iter().map(|round| outcome.at_s(round)).collect::<Vec<_>>();
    assert_eq!(at(outcome.before(0)), [6.0, 10.0, 14.0, 18.0, 22.0]);
    assert_eq!(at(outcome.after(0)), [34.0, 38.0, 42.0, 46.0]);
    let seconds = |from, to| Some((Duration::from_secs(from), Duration::from_secs(to)));
    assert_eq!(outcome.times(1), [seconds(2, 22), seconds(30, 46)]);
    let headlines = outcome.headlines();
    assert_eq!(headlines.len(), 3 * POPS.len());
    assert!(headlines.iter().all(|headline| (headline.here.unwrap() - 2.0).abs() < 0.03), "{headlines:?}");
}

#[test]
fn events_of_a_network_are_in_order() {
    let events = good().events(10);
    let found: Vec<_> = events.iter().map(|it| (it.at_s, it.what, it.reason.as_str())).collect();
    assert_eq!(found, [(22.0, EventKind::Entered, "slow"), (38.0, EventKind::Left, "retransmits")]);
    assert_eq!(good().events(0), []);
}

#[test]
fn each_check_can_fail() {
    let failing = |change: &dyn Fn(&mut Outcome)| {
        let mut outcome = good();
        change(&mut outcome);
        let checks = outcome.checks().into_iter();
        let failing: Vec<_> = checks.filter(|check| !check.holds).map(|check| check.what).collect();
        assert_eq!(outcome.exit_status(), u8::from(!failing.is_empty()), "{failing:?}");
        failing
    };
    let east = |change: &dyn Fn(&mut PopRecord)| failing(&|it: &mut Outcome| change(&mut it.record.pops[0]));
    assert_eq!(failing(&|_| {}), [""; 0]);
    let found = "found, of those that gain";
    let helped = "shown to be helped as a whole, of those that gain";
    assert_eq!(east(&|it| it.rounds[8].proved.clear()), [helped]);
    let withdrawn = "tried and withdrawn, of those that lose";
    assert_eq!(east(&|it| it.rounds[9].left.retain(|left| left.reason != "retransmits")), [withdrawn]);
    let again = |it: &mut PopRecord| {
        let again = it.rounds[5].entered.iter().find(|it| it.prefix.ends_with("/56")).unwrap().clone();
        it.rounds[11].entered.push(again);
    };
    assert_eq!(east(&again), [withdrawn], "it entered again");
    let false_ones = "no network is declared helped that does not gain";
    let falsely = |it: &mut PopRecord| {
        let left = it.rounds[9].left[0].prefix.clone();
        it.rounds[8].proved.push(left);
    };
    assert_eq!(east(&falsely), [false_ones]);
    let up = ["p5 of delivery rate is up in east", "p10 of delivery rate is up in east"];
    let after = |it: &mut PopRecord, p5, p10| {
        it.rounds[7..]
            .iter_mut()
            .for_each(|round| round.delivery_rate.all = Some(LowPercentiles { p5, p10 }));
    };
    assert_eq!(east(&|it| after(it, 1e5, 4e5)), up[..1]);
    assert_eq!(east(&|it| after(it, 2e5, 2e5)), up[1..]);
    let goodput_up = "p10 of goodput is up in east";
    let slower = |it: &mut PopRecord| {
        let lows = LowPercentiles { p5: 1e5, p10: 1e5 };
        it.rounds[7..].iter_mut().for_each(|round| round.goodput.all = Some(lows));
    };
    assert_eq!(east(&slower), [goodput_up]);
    let canary = "one edge of each PoP gets rules before the other";
    assert_eq!(east(&|it| it.bundles[1].unix_s = it.bundles[0].unix_s + 1.0), [canary]);
    assert_eq!(east(&|it| it.bundles.truncate(1)), [canary]);
    assert_eq!(
        east(&|it| it.rounds.truncate(5)),
        [found, helped, withdrawn, up[0], up[1], goodput_up],
        "no network entered"
    );
    let refused = "damaged bundle is refused by the edges and rolled back";
    let damaged = |change: &dyn Fn(&mut PopRecord)| {
        failing(&|it: &mut Outcome| change(&mut it.damaged.as_mut().unwrap().0.pops[1]))
    };
    assert_eq!(damaged(&|it| it.events.truncate(1)), [refused], "not rolled back");
    assert_eq!(damaged(&|it| drop(it.events.remove(0))), [refused], "no edge refused it");
    assert_eq!(damaged(&|it| it.bundles.push(bundle(0, 131.0, 3))), [refused], "an edge used it");
    assert_eq!(failing(&|it| it.damaged.as_mut().unwrap().1 = 1), [refused]);
    assert_eq!(failing(&|it| it.damaged = None), [refused]);
}

#[test]
fn quick_plan_checks_no_effects() {
    let mut outcome = Outcome { plan: plan(World::Mixed, true), ..good() };
    for pop in &mut outcome.record.pops {
        pop.rounds.iter_mut().for_each(|round| round.proved.clear());
    }
    assert_eq!(outcome.exit_status(), 0);
}

/// In other worlds, no network may be helped, and most must have been tried.
#[test]
fn other_worlds_need_trials_and_no_discoveries() {
    for world in [World::Identical, World::Shared] {
        let mut outcome = Outcome { plan: plan(world, false), ..good() };
        let failing = |outcome: &Outcome| {
            let failing = outcome.checks().into_iter().filter(|check| !check.holds);
            failing.map(|check| check.what).collect::<Vec<_>>()
        };
        let false_ones = "no network is declared helped that does not gain";
        let tried = "at least half of the networks completed a trial";
        assert_eq!(failing(&outcome), [false_ones, tried], "a network is declared helped, few are tried");
        let prefixes: Vec<_> = outcome.record.networks.iter().map(|(prefix, _)| prefix.clone()).collect();
        for (index, pop) in outcome.record.pops.iter_mut().enumerate() {
            pop.rounds.iter_mut().for_each(|round| round.proved.clear());
            let own = prefixes.iter().enumerate().filter(|(network, _)| NETWORKS[*network].pop == index);
            pop.rounds[8].promising = own.map(|(_, prefix)| prefix.clone()).collect();
        }
        assert_eq!((failing(&outcome), outcome.exit_status()), (Vec::new(), 0));
        assert!(outcome.headlines().is_empty(), "nothing is published about such a world");
    }
}

#[test]
fn exit_status_reflects_early_ends_failures_and_lateness() {
    let mut outcome = good();
    outcome.viewer_results.failed = 1;
    assert_eq!(outcome.exit_status(), 1);
    outcome = good();
    outcome.lateness = Lateness { p999: Duration::from_millis(2), packets: 100_000, missed: 0 };
    assert_eq!(outcome.exit_status(), 1);
    outcome.early = Some(EarlyEnd::Interrupted(15));
    assert_eq!(outcome.exit_status(), 143);
    outcome.early = Some(EarlyEnd::Failed("the edge has ended".into()));
    assert_eq!(outcome.exit_status(), 1);
}
