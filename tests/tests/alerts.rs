//! Alert rules for Prometheus: every metric that they name must exist, and every alert must say
//! what is wrong and what to do. If promtool is installed, it checks the rules and runs their
//! tests.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const RULES: &str = include_str!("../../schema/prometheus/alerts.yml");
const TESTS: &str = include_str!("../../schema/prometheus/alerts_test.yml");
const METRICS: &str = include_str!("../../docs/reference/metrics.md");

/// Returns the metrics named in a file.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("thalweg_")).collect()
}

#[test]
fn rules_name_only_metrics_that_exist() {
    let named = metrics(RULES);
    assert!(named.len() > 10, "{named:?}");
    for metric in named.union(&metrics(TESTS)) {
        assert!(METRICS.contains(&format!("| `{metric}` |")), "{metric} is not in docs/reference/metrics.md");
    }
}

#[test]
fn every_alert_has_a_summary_a_remedy_and_a_test() {
    let alerts: Vec<&str> = RULES.split("- alert: ").skip(1).collect();
    for alert in &alerts {
        let (name, _) = alert.split_once('\n').unwrap();
        for part in [
            "\n        expr: ",
            "\n        labels: {severity: ",
            "\n          summary: ",
            "\n          remedy: ",
        ] {
            assert!(alert.contains(part), "{name} has no {}", part.trim());
        }
        assert!(TESTS.contains(&format!("alertname=\"{name}\"")), "{name} is not tested");
    }
}

#[test]
fn promtool_accepts_the_rules() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/prometheus");
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let output = match Command::new("promtool").args(arguments).current_dir(&directory).output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                println!("promtool is not installed: rules not checked");
                return;
            }
            output => output.unwrap(),
        };
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}
