//! What was found, for programs: all but the responses.

use serde::Serialize;

use super::super::{DocumentHeadline, document_headlines};
use super::{of_path, settings};
use crate::reproduce::edgio::Early;
use crate::reproduce::edgio::networks::{NETWORKS, scenario};
use crate::reproduce::edgio::outcome::Outcome;
use crate::reproduce::edgio::told::{Arms, Lows, Round};

/// The version of the JSON.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    failed: Option<&'a str>,
    interrupted_by_signal: Option<i32>,
    headlines: Vec<DocumentHeadline>,
    checks: Vec<DocumentCheck>,
    false_ones: Vec<&'static str>,
    settings: String,
    responses: usize,
    failed_responses: u64,
    lateness_p999_us: u128,
    rounds_before: usize,
    rounds_after: usize,
    networks: Vec<DocumentNetwork>,
    rounds: Vec<DocumentRound>,
}

#[derive(Serialize)]
struct DocumentCheck {
    what: &'static str,
    holds: bool,
    told: String,
}

#[derive(Serialize)]
struct DocumentNetwork {
    name: &'static str,
    prefix: String,
    path: String,
    truth: &'static str,
    reason: Option<String>,
    events: Vec<DocumentEvent>,
    treated: Option<u64>,
    held_out: Option<u64>,
    goodput_percent: Option<[f64; 3]>,
    retransmitted_points: Option<[f64; 3]>,
}

#[derive(Serialize)]
struct DocumentEvent {
    at_s: f64,
    what: &'static str,
    reason: String,
}

#[derive(Serialize)]
struct DocumentRound {
    at_s: f64,
    steered: u64,
    new: usize,
    delivery_rate_p5_bits_per_s: Option<f64>,
    delivery_rate_p10_bits_per_s: Option<f64>,
    goodput_p5_bits_per_s: Option<f64>,
    goodput_p10_bits_per_s: Option<f64>,
}

/// All of it but the responses, for programs. Of an effect: estimate, least, most.
pub fn json(outcome: &Outcome) -> String {
    let (failed, interrupted_by_signal) = match &outcome.early {
        Some(Early::Failed(why)) => (Some(why.as_str()), None),
        Some(Early::Interrupted(signal)) => (None, Some(*signal)),
        None => (None, None),
    };
    let checks = outcome.checks().into_iter();
    let document = Document {
        version: VERSION,
        failed,
        interrupted_by_signal,
        headlines: document_headlines(&outcome.headlines()),
        checks: checks.map(|it| DocumentCheck { what: it.what, holds: it.holds, told: it.told }).collect(),
        false_ones: outcome.false_ones(),
        settings: settings(),
        responses: outcome.seen.responses.len(),
        failed_responses: outcome.seen.failed,
        lateness_p999_us: outcome.lateness.p999.as_micros(),
        rounds_before: outcome.before().len(),
        rounds_after: outcome.after().len(),
        networks: networks(outcome),
        rounds: outcome.rounds.iter().map(|it| document_round(outcome, it)).collect(),
    };
    serde_json::to_string_pretty(&document).expect("numbers and texts are JSON") + "\n"
}

fn networks(outcome: &Outcome) -> Vec<DocumentNetwork> {
    let paths = scenario().paths;
    let mut all = Vec::new();
    for (index, (prefix, known)) in outcome.networks.iter().enumerate() {
        let trial = known.entry.as_ref();
        let events = outcome.events(index).into_iter();
        all.push(DocumentNetwork {
            name: NETWORKS[index].name,
            prefix: prefix.clone(),
            path: of_path(&paths[index]),
            truth: NETWORKS[index].truth.name(),
            reason: known.reason.clone(),
            events: events
                .map(|it| DocumentEvent { at_s: it.at_s, what: it.what.name(), reason: it.reason })
                .collect(),
            treated: trial.map(|trial| trial.treated),
            held_out: trial.map(|trial| trial.held_out),
            goodput_percent: trial.and_then(|trial| trial.goodput).map(|it| [it.percent, it.low, it.high]),
            retransmitted_points: trial
                .and_then(|trial| trial.retransmitted)
                .map(|it| [it.points, it.low, it.high]),
        });
    }
    all
}

fn document_round(outcome: &Outcome, round: &Round) -> DocumentRound {
    let bits = |arms: Arms, low: fn(Lows) -> f64| arms.all.map(|lows| low(lows) * 8.0);
    DocumentRound {
        at_s: outcome.at_s(round),
        steered: round.steered,
        new: round.entered.len(),
        delivery_rate_p5_bits_per_s: bits(round.delivery_rate, |lows| lows.p5),
        delivery_rate_p10_bits_per_s: bits(round.delivery_rate, |lows| lows.p10),
        goodput_p5_bits_per_s: bits(round.goodput, |lows| lows.p5),
        goodput_p10_bits_per_s: bits(round.goodput, |lows| lows.p10),
    }
}
