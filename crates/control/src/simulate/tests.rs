//! Tests of small simulations against the known truth.

use super::*;

#[test]
fn proof_decides_better_than_duty_cycles_alone() {
    let plan = Plan { pops: 1, prefixes: 1_500, connections_per_prefix: 3.0, ..Plan::default() };
    let settings = Settings { steered_max: 300, ..Settings::default() };
    let run = || simulate(&plan, &settings, 0, &mut || true).unwrap();
    let report = run();
    assert_eq!(report, run(), "runs with the same plan and seed must be equal");
    let rows = report.rows();
    let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    let (proof, alone) = (row("with proof"), row("duty cycle alone"));
    let (oracle, all) = (row("oracle, capped"), row("all bbr"));
    assert!(proof.late_goodput > alone.late_goodput + 0.01, "{proof:?} {alone:?}");
    assert!(proof.late_goodput < oracle.late_goodput && proof.late_goodput > all.late_goodput);
    let precision = |row: &Row| row.precision.unwrap();
    assert!(precision(proof) > precision(alone) + 0.15, "{proof:?} {alone:?}");
    assert!(proof.harmed_connections < alone.harmed_connections, "{proof:?} {alone:?}");
    assert!(proof.false_discoveries < Some(settings.false_discovery_share), "{proof:?}");
    assert!(proof.kept > Some(0.9), "{proof:?}");
    assert!(report.with_proof.entered_max <= settings.entering_max as u64);
}

#[test]
fn reversals_are_withdrawn_within_the_documented_time() {
    let plan = Plan {
        pops: 1,
        prefixes: 200,
        windows: 900,
        connections_per_prefix: 40.0,
        changes_per_day: 1.0,
        ..Plan::default()
    };
    let settings = Settings { exploring_max: 20, explored_max: 200, ..Settings::default() };
    let tally = simulate(&plan, &settings, 0, &mut || true).unwrap().with_proof;
    let most = settings.proof_windows_max + settings.trial_windows_max + settings.switchback_windows_max;
    let reversals = &tally.reversals;
    assert!(reversals.withdrawn.len() > 15, "{reversals:?}");
    assert!(reversals.windows(1.0).unwrap() <= most.into(), "{reversals:?}");
    assert!(reversals.windows(0.5).unwrap() < 72, "{reversals:?}");
    assert!(
        tally.false_discoveries as f64 <= settings.false_discovery_share * tally.declared as f64,
        "{tally:?}"
    );
}

#[test]
fn progress_callback_can_stop_a_simulation() {
    let mut left = 3;
    let mut progress = || {
        left -= 1;
        left > 0
    };
    assert_eq!(
        simulate(&Plan { prefixes: 50, ..Plan::default() }, &Settings::default(), 0, &mut progress),
        None
    );
}
