//! Rounds as stored in the ledger.

use serde_json::{Value, json};
use thalweg_control::{ArmSample, Change, Decision, Reason, RoundOutcome, Settings, Window};
use thalweg_record::{Prefix, Sketch};

/// A round as stored in the ledger.
#[derive(Debug)]
pub(crate) struct RoundRecord {
    pub(crate) tenant: String,
    pub(crate) window: u64,
    /// End of the round's window, in seconds since the Unix epoch.
    pub(crate) unix_s: u64,
    pub(crate) json: Value,
    pub(crate) changes: Vec<LedgerChange>,
}

/// A prefix's change in a round.
#[derive(Debug)]
pub(crate) struct LedgerChange {
    pub(crate) prefix: Prefix,
    /// Kind of change: `entered`, `left`, `promising` or `proved`.
    pub(crate) what: &'static str,
    pub(crate) reason: &'static str,
}

impl RoundRecord {
    /// Creates the record of a decided round. `bundle` is the newest bundle after the round.
    pub(crate) fn of(
        settings: &Settings,
        tenant: &str,
        window: &Window,
        decision: &Decision,
        bundle: Option<u64>,
    ) -> Self {
        let Decision { entered, left, promising, proved, steered, .. } = decision;
        let unix_s = (window.number + 1) * settings.window_s;
        let json = json!({
            "window": window.number,
            "unix_s": unix_s,
            "outcome": outcome(decision.round),
            "records": window.records,
            "lost": window.lost,
            "ranked": decision.ranked,
            "bottom_bytes_per_s": decision.bottom_bytes_per_s,
            "steered": steered,
            "kept": steered.saturating_sub(entered.len()),
            "entered": changes(entered),
            "left": changes(left),
            "promising": promising.iter().map(Prefix::to_string).collect::<Vec<_>>(),
            "proved": proved.iter().map(Prefix::to_string).collect::<Vec<_>>(),
            "pairs": decision.pairs.counted,
            "voided": decision.pairs.voided,
            "changed": decision.changed,
            "bundle": bundle,
            "delivery_rate": arms(window, |arm| &arm.delivery_rate),
            "goodput": arms(window, |arm| &arm.goodput),
        });
        let change =
            |what| move |it: &Change| LedgerChange { prefix: it.prefix, what, reason: it.reason.as_str() };
        let shown = |what, reason: Reason| {
            move |prefix: &Prefix| LedgerChange { prefix: *prefix, what, reason: reason.as_str() }
        };
        let promising = promising.iter().map(shown("promising", Reason::Promising));
        let proved = proved.iter().map(shown("proved", Reason::Helped));
        let changes = entered
            .iter()
            .map(change("entered"))
            .chain(left.iter().map(change("left")))
            .chain(promising)
            .chain(proved)
            .collect();
        Self { tenant: tenant.to_owned(), window: window.number, unix_s, json, changes }
    }
}

/// Returns the ledger name of a round's outcome.
fn outcome(round: RoundOutcome) -> &'static str {
    match round {
        RoundOutcome::Decided => "decided",
        RoundOutcome::Stopped => "stopped",
        RoundOutcome::Silent => "silent",
        RoundOutcome::Repeated => "repeated",
        RoundOutcome::Early => "early",
    }
}

fn changes(changes: &[Change]) -> Value {
    let json = |it: &Change| json!({ "prefix": it.prefix.to_string(), "reason": it.reason.as_str() });
    changes.iter().map(json).collect()
}

/// Formats the low percentiles of a rate, over all connections, over steered connections and over
/// held-out connections.
fn arms(window: &Window, rate: impl Fn(&ArmSample) -> &Sketch) -> Value {
    let [mut all, mut steered, mut held_out] = [const { None::<Sketch> }; 3];
    for (_, sample) in &window.prefixes {
        for (arm, own) in [
            (&sample.other, None),
            (&sample.steered, Some(&mut steered)),
            (&sample.held_out, Some(&mut held_out)),
        ] {
            let rate = rate(arm);
            for into in own.into_iter().chain([&mut all]) {
                into.get_or_insert_default().merge(rate);
            }
        }
    }
    json!({ "all": lows(all), "steered": lows(steered), "held_out": lows(held_out) })
}

/// Formats the 5th and 10th percentiles, or null if there is no data.
fn lows(sketch: Option<Sketch>) -> Value {
    let low = |sketch: &Sketch| Some(json!({ "p5": sketch.quantile(0.05)?, "p10": sketch.quantile(0.1)? }));
    sketch.as_ref().and_then(low).unwrap_or_default()
}
