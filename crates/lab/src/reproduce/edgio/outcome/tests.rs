//! Tests of outcomes that meet all conditions or violate one.

use super::super::controller::Change;
use super::super::networks::scenario;
use super::super::plan;
use super::*;
use thalweg_netem::emulation::Family;

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
        proved: Vec::new(),
        delivery_rate: arms,
        goodput: arms,
    }
}

/// Builds an outcome that meets all conditions: slow networks enter in the sixth round, those that
/// gain are shown to be helped, and the others leave.
pub(crate) fn good() -> Outcome {
    let prefixes: Vec<_> = scenario().paths.iter().map(|path| Family::Four.prefix(path)).collect();
    let mut rounds: Vec<_> = (0..12)
        .map(|number| {
            round(number, if number > 6 { 200_000.0 } else { 100_000.0 } + 1e3 * (number % 3) as f64)
        })
        .collect();
    // Checks skip the initial round, so its extreme rate must not matter.
    rounds[0] = round(0, 1e9);
    let change =
        |network: usize, reason: &str| Change { prefix: prefixes[network].clone(), reason: reason.into() };
    rounds[5].entered = (12..16).map(|network| change(network, "slow")).collect();
    rounds[8].proved = prefixes[12..14].to_vec();
    rounds[9].left = vec![change(14, "retransmits"), change(15, "not_helped")];
    Outcome {
        started_unix_s: 998.0,
        rounds,
        networks: prefixes.into_iter().map(|prefix| (prefix, Explanation::default())).collect(),
        ..Outcome::new(Plan { rounds_after: 4, ..plan(true) })
    }
}

#[test]
fn before_ends_with_the_first_entry_and_after_has_the_last_rounds() {
    let outcome = good();
    let at = |rounds: &[Round]| rounds.iter().map(|round| outcome.at_s(round)).collect::<Vec<_>>();
    assert_eq!(at(outcome.before()), [6.0, 10.0, 14.0, 18.0, 22.0]);
    assert_eq!(at(outcome.after()), [34.0, 38.0, 42.0, 46.0]);
    let seconds = |from, to| Some((Duration::from_secs(from), Duration::from_secs(to)));
    assert_eq!(outcome.times(), [seconds(2, 22), seconds(30, 46)]);
    let headlines = outcome.headlines();
    assert!(headlines.iter().all(|headline| (headline.here.unwrap() - 2.0).abs() < 0.03), "{headlines:?}");
}

#[test]
fn events_of_a_network_are_in_order() {
    let events = good().events(14);
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
    assert_eq!(failing(&|_| {}), [""; 0]);
    let found = "found and shown to be helped, of those that gain";
    assert_eq!(failing(&|it| it.rounds[8].proved.truncate(1)), [found]);
    let withdrawn = "tried and withdrawn, of those that lose";
    assert_eq!(failing(&|it| it.rounds[9].left.retain(|left| left.reason != "retransmits")), [withdrawn]);
    assert_eq!(
        failing(&|it| {
            let again = it.rounds[5].entered[2].clone();
            it.rounds[11].entered.push(again);
        }),
        [withdrawn],
        "it entered again"
    );
    let up = ["p5 of delivery rate is up", "p10 of delivery rate is up"];
    let after = |it: &mut Outcome, p5, p10| {
        it.rounds[7..]
            .iter_mut()
            .for_each(|round| round.delivery_rate.all = Some(LowPercentiles { p5, p10 }));
    };
    assert_eq!(failing(&|it| after(it, 1e5, 4e5)), up[..1]);
    assert_eq!(failing(&|it| after(it, 2e5, 2e5)), up[1..]);
    assert_eq!(failing(&|it| it.rounds.truncate(5)), [found, withdrawn, up[0], up[1]], "no network entered");
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

#[test]
fn falsely_helped_networks_are_named() {
    let mut outcome = good();
    assert_eq!(outcome.falsely_helped(), [""; 0]);
    let bloated = outcome.networks[15].0.clone();
    outcome.rounds[8].proved.push(bloated);
    assert_eq!(outcome.falsely_helped(), ["bloated"]);
}
