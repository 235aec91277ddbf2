//! Tests of the Edgio report's table, page, CSV and JSON.

use std::time::Duration;

use super::*;
use crate::reproduce::edgio::controller::Explanation;
use crate::reproduce::edgio::outcome::tests::good;

/// Builds an outcome that meets all conditions and has trial results for one network.
fn outcome_with_trial() -> Outcome {
    let mut outcome = good();
    let entry = r#"{"treated": 31, "held_out": 40, "stage": "on trial",
        "goodput": {"percent": 92.4, "low": 30.0, "high": 180.0},
        "retransmitted": {"points": -0.25, "low": -1.0, "high": 0.5}}"#;
    outcome.record.networks[9].1 = Explanation {
        reason: Some("helped".into()),
        said: Some("steered, shown to be helped".into()),
        entry: Some(serde_json::from_str(entry).unwrap()),
    };
    let response = |at: u64, ms: u64| viewers::Response {
        network: 9,
        at: Duration::from_secs(at),
        time: Duration::from_millis(ms),
    };
    outcome.viewer_results.responses = vec![response(10, 2400), response(40, 600)];
    outcome
}

#[test]
fn each_network_has_a_row() {
    let row = &rows(&outcome_with_trial())[9];
    let expected = [
        "overseas",
        "east",
        "/24, 140 ms, 25 Mbit/s, 1000 kB, loss 1.5 %",
        "gains",
        "entered 22 (slow), promising 30, helped 34",
        "31 + 40",
        "+92 % (+30 to +180)",
        "-0.2 points (-1.0 to +0.5)",
        "1.00",
        "4.00",
    ];
    assert_eq!(row[..], expected);
    assert_eq!(rows(&outcome_with_trial())[0][4..], ["-"; 6]);
}

#[test]
fn every_format_includes_the_checks() {
    let mut outcome = outcome_with_trial();
    for text in [table(&outcome), page(&outcome)] {
        assert!(
            text.contains("holds: p10 of delivery rate is up in west") && !text.contains("FAILS"),
            "{text}"
        );
        assert!(text.contains("thalweg controller run --window 4s"), "{text}");
    }
    assert_eq!(page(&outcome).matches("<svg").count(), 6);
    assert_eq!(csv(&outcome).lines().nth(2), Some("overseas,40000000,600000,300000"));
    outcome.record.pops[0].rounds[9].left.clear();
    outcome.early = Some(EarlyEnd::Interrupted(2));
    for text in [table(&outcome), page(&outcome)] {
        assert!(text.contains("FAILS: tried and withdrawn"), "{text}");
        assert!(text.contains("interrupted by signal 2"), "{text}");
    }
    let document: serde_json::Value = serde_json::from_str(&json(&outcome)).unwrap();
    assert_eq!(document["checks"][3]["holds"], false);
    assert_eq!(document["interrupted_by_signal"], 2);
    assert_eq!(document["networks"][9]["goodput_percent"], serde_json::json!([92.4, 30.0, 180.0]));
    assert_eq!(document["networks"][10]["events"][0]["reason"], "slow");
    assert_eq!(document["pops"][0]["rounds"][1]["delivery_rate_p10_bits_per_s"], 1_616_000.0);
}
