//! JSON form of the results, without the individual responses.

use serde::Serialize;

use super::super::{DocumentEarly, DocumentHeadline, document_headlines};
use super::{of_path, settings};
use crate::reproduce::edgio::controller::{LowPercentiles, Percentiles, Round};
use crate::reproduce::edgio::edge_name;
use crate::reproduce::edgio::networks::{NETWORKS, POPS, World, scenario};
use crate::reproduce::edgio::outcome::{Check, Event, Outcome};

/// Version of the JSON format.
const VERSION: u32 = 2;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    #[serde(flatten)]
    early: DocumentEarly<'a>,
    world: World,
    headlines: Vec<DocumentHeadline>,
    checks: Vec<Check>,
    settings: String,
    responses: usize,
    failed_responses: u64,
    lateness_p999_us: u128,
    networks: Vec<DocumentNetwork>,
    pops: Vec<DocumentPop>,
}

#[derive(Serialize)]
struct DocumentPop {
    name: &'static str,
    rounds_before: usize,
    rounds_after: usize,
    rounds: Vec<DocumentRound>,
    bundles: Vec<DocumentBundle>,
}

/// A change of an edge's bundle.
#[derive(Serialize)]
struct DocumentBundle {
    at_s: f64,
    edge: String,
    number: Option<u64>,
    rules: Option<u64>,
}

#[derive(Serialize)]
struct DocumentNetwork {
    name: &'static str,
    pop: &'static str,
    prefix: String,
    path: String,
    truth: &'static str,
    reason: Option<String>,
    events: Vec<Event>,
    treated: Option<u64>,
    held_out: Option<u64>,
    goodput_percent: Option<[f64; 3]>,
    retransmitted_points: Option<[f64; 3]>,
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

/// Renders the results as JSON, without the individual responses. An effect is an array of its
/// estimate, low end and high end.
pub fn json(outcome: &Outcome) -> String {
    let document = Document {
        version: VERSION,
        early: outcome.early.as_ref().into(),
        world: outcome.plan.world,
        headlines: document_headlines(&outcome.headlines()),
        checks: outcome.checks(),
        settings: settings(outcome.plan.world),
        responses: outcome.viewer_results.responses.len(),
        failed_responses: outcome.viewer_results.failed,
        lateness_p999_us: outcome.lateness.p999.as_micros(),
        networks: networks(outcome),
        pops: (0..POPS.len()).map(|pop| document_pop(outcome, pop)).collect(),
    };
    serde_json::to_string_pretty(&document).expect("serializing numbers and strings cannot fail") + "\n"
}

fn document_pop(outcome: &Outcome, pop: usize) -> DocumentPop {
    let bundles = outcome.record.pops[pop].bundles.iter().map(|change| DocumentBundle {
        at_s: change.unix_s - outcome.started_unix_s,
        edge: edge_name(pop, change.edge),
        number: change.bundle.number,
        rules: change.bundle.rules,
    });
    DocumentPop {
        name: POPS[pop],
        rounds_before: outcome.before(pop).len(),
        rounds_after: outcome.after(pop).len(),
        rounds: outcome.rounds(pop).iter().map(|it| document_round(outcome, it)).collect(),
        bundles: bundles.collect(),
    }
}

fn networks(outcome: &Outcome) -> Vec<DocumentNetwork> {
    let paths = scenario(outcome.plan.world, outcome.plan.duration / 2).paths;
    let networks = outcome.plan.world.networks();
    let mut all = Vec::new();
    for (index, (prefix, known)) in outcome.record.networks.iter().enumerate() {
        let trial = known.entry.as_ref();
        all.push(DocumentNetwork {
            name: NETWORKS[index].name,
            prefix: prefix.clone(),
            pop: POPS[NETWORKS[index].pop],
            path: of_path(&paths[index], &networks[index]),
            truth: networks[index].truth.name(),
            reason: known.reason.clone(),
            events: outcome.events(index),
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
    let bits = |arms: Percentiles, low: fn(LowPercentiles) -> f64| arms.all.map(|lows| low(lows) * 8.0);
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
