//! What the ledger has of a round.

use serde_json::{Value, json};
use thalweg_control::{ArmSample, Change, Decision, Round, Settings, Window};
use thalweg_record::{Prefix, Sketch};

/// A round as it is kept.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) tenant: String,
    pub(crate) window: u64,
    /// The end of its window.
    pub(crate) unix_s: u64,
    pub(crate) json: Value,
    pub(crate) changes: Vec<(Prefix, &'static str, &'static str)>,
}

impl Told {
    /// Of a round that was decided, after which this is the newest bundle.
    pub(crate) fn of(
        settings: &Settings,
        tenant: &str,
        window: &Window,
        decision: &Decision,
        bundle: Option<u64>,
    ) -> Self {
        let Decision { entered, left, proved, steered, .. } = decision;
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
            "proved": proved.iter().map(Prefix::to_string).collect::<Vec<_>>(),
            "changed": decision.changed,
            "bundle": bundle,
            "delivery_rate": arms(window, |arm| &arm.delivery_rate),
            "goodput": arms(window, |arm| &arm.goodput),
        });
        let told = |what| move |it: &Change| (it.prefix, what, it.reason.as_str());
        let proved = proved.iter().map(|prefix| (*prefix, "proved", "helped"));
        let changes =
            entered.iter().map(told("entered")).chain(left.iter().map(told("left"))).chain(proved).collect();
        Self { tenant: tenant.to_owned(), window: window.number, unix_s, json, changes }
    }
}

/// The word for what became of a round.
fn outcome(round: Round) -> &'static str {
    match round {
        Round::Decided => "decided",
        Round::Stopped => "stopped",
        Round::Silent => "silent",
        Round::Repeated => "repeated",
        Round::Early => "early",
    }
}

fn changes(changes: &[Change]) -> Value {
    let told = |it: &Change| json!({ "prefix": it.prefix.to_string(), "reason": it.reason.as_str() });
    changes.iter().map(told).collect()
}

/// The lower percentiles of a rate over connections: of all, of those that rules steered, of those that they held out.
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

/// The 5th and 10th percentile; null of nothing.
fn lows(sketch: Option<Sketch>) -> Value {
    let low = |sketch: &Sketch| Some(json!({ "p5": sketch.quantile(0.05)?, "p10": sketch.quantile(0.1)? }));
    sketch.as_ref().and_then(low).unwrap_or_default()
}
