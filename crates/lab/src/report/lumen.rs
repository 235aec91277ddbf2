//! Report of the Lumen reproduction: tables, charts of waits at both caches and of TTFB over time,
//! and every measured time.

mod charts;

use std::fmt::Write as _;

use serde::Serialize;

use super::{DocumentEarly, DocumentHeadline, document_headlines, published};
use crate::reproduce::lumen::audience::{Step, TtfbSecond, ViewerStats};
use crate::reproduce::lumen::script::Scripted;
use crate::reproduce::lumen::{Cache, Fill, OPEN, Outcome, Quantiles, SEGMENT, SHORT, TITLE, headlines};
use crate::reproduce::{columns, number};

/// Version of the JSON format.
const VERSION: u32 = 2;

/// A row of times: name, quantiles, and number of excluded times.
type Times = (String, Quantiles, usize);

fn joiners(outcome: &Outcome) -> Vec<Times> {
    let all = [SHORT, SEGMENT].into_iter().flat_map(|fill| Cache::ALL.map(|cache| (fill, cache)));
    let of = |(fill, cache): (Fill, Cache)| {
        let quantiles = Quantiles::of(&outcome.waits_ms(cache, fill))?;
        Some((format!("{}, {}", cache.name(), fill.name), quantiles, outcome.late(cache, fill).0))
    };
    all.filter_map(of).collect()
}

fn chunks(outcome: &Outcome) -> Vec<Times> {
    let of = |cache: Cache| Some((tiers(cache), Quantiles::of(&outcome.delays_ms(cache))?, 0));
    Cache::ALL.into_iter().filter_map(of).collect()
}

fn tiers(cache: Cache) -> String {
    format!("{0} before {0}", cache.name())
}

const TIMES: [&str; 7] = ["", "count", "left out", "p50 ms", "p95 ms", "p99 ms", "max ms"];

fn words_of_times(times: &[Times]) -> Vec<Vec<String>> {
    let row = |(name, quantiles, left_out): &Times| {
        let Quantiles { count, p50, p95, p99, max } = *quantiles;
        let numbers = [Some(p50), p95, p99, Some(max)].map(number_or_dash);
        [name.clone(), count.to_string(), left_out.to_string()].into_iter().chain(numbers).collect()
    };
    times.iter().map(row).collect()
}

fn number_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

const STEPS: [&str; 17] = [
    "viewers",
    "playing",
    "stalled",
    "lost",
    "stalls",
    "stall %",
    "errors",
    "startup p50 ms",
    "p99 ms",
    "TTFB p95 ms",
    "latency p50 s",
    "p99 s",
    "Gbit/s",
    "edges' cores",
    "edges' MiB",
    "clients' cores",
    "clients' MiB",
];

fn words_of_steps(steps: &[Step]) -> Vec<Vec<String>> {
    let seconds = |ms: Option<f64>| number_or_dash(ms.map(|ms| ms / 1e3));
    let row = |step: &Step| {
        let Step { viewers, crowd, at_edge, edges, clients, .. } = step;
        vec![
            viewers.to_string(),
            crowd.playing.to_string(),
            crowd.stalled.to_string(),
            crowd.lost.to_string(),
            crowd.stalls.to_string(),
            number(crowd.stall_ratio * 100.0),
            (crowd.errors + at_edge.errors).to_string(),
            number_or_dash(crowd.startup_p50_ms),
            number_or_dash(crowd.startup_p99_ms),
            number_or_dash(crowd.ttfb_p95_ms),
            seconds(at_edge.latency_p50_ms),
            seconds(at_edge.latency_p99_ms),
            number(crowd.gbit_per_s),
            number(edges.cores),
            mib(edges.memory_bytes),
            number(clients.cores),
            mib(clients.memory_bytes),
        ]
    };
    steps.iter().map(row).collect()
}

fn mib(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / f64::from(1 << 20))
}

fn words_of_throughput(outcome: &Outcome) -> String {
    let Some(sent) = outcome.throughput else {
        return "The throughput of one edge was not measured.".to_owned();
    };
    format!(
        "One edge sent {} Gbit/s of content using {} cores and {} MiB; its clients used {} cores.",
        number(sent.gbit_per_s),
        number(sent.edge.cores),
        mib(sent.edge.memory_bytes),
        number(sent.clients.cores)
    )
}

fn words_of_script(outcome: &Outcome) -> String {
    let Some(Scripted { clients, requests, errors, content_bytes, ttfb }) = outcome.script else {
        return "The wrk script was not measured.".to_owned();
    };
    let [p50, p95, p99] =
        [ttfb.map(|ttfb| ttfb.p50), ttfb.and_then(|ttfb| ttfb.p95), ttfb.and_then(|ttfb| ttfb.p99)];
    format!(
        "{clients} clients of a wrk script that reads the manifest: {requests} requests, {errors} errors, {} MiB of content; TTFB \
         p50 {} ms, p95 {} ms, p99 {} ms.",
        mib(content_bytes),
        number_or_dash(p50),
        number_or_dash(p95),
        number_or_dash(p99)
    )
}

const JOINERS: &str = "Time to first byte of clients that join a fill";
const CHUNKS: &str = "Delay of a chunk over two tiers";
const VIEWERS: &str = "Live viewers at offsets, over three edges";

/// Notes below the tables.
const OF_JOINERS: &str = "\
Time from the last byte of the request to the first byte of the response. thalweg fills from memory, as the publication does after \
its change; nginx uses its cache lock, as the publication did before. Clients that sent their request after the end of the fill \
(the first client's last byte) are excluded.";
const OF_CHUNKS: &str = "\
Time from the backend sending a chunk (or the client's request, if later) to its last byte at the client. All clients send their \
requests as the segment starts. At nginx, all but the first wait for the whole segment, and at each tier a partly filled buffer \
waits for the next bytes.";
const OF_VIEWERS: &str = "\
Startup, stalls and TTFB cover the viewers at offsets, and live latency only those at no offset; errors are the failed requests of both groups. \
Playing, stalled and lost are counts at the end. Gbit/s, and the cores and memory of all edges and viewer processes, are measured \
once all viewers have joined.";

/// Renders the tables for a terminal.
pub fn table(outcome: &Outcome) -> String {
    let early = outcome.early.as_ref().map(|early| early.words() + "\n").unwrap_or_default();
    format!(
        "{JOINERS}\n{}\n{CHUNKS}\n{}\n{VIEWERS}\n{}\n{}\n{}\n{early}",
        columns(&TIMES, &words_of_times(&joiners(outcome))),
        columns(&TIMES, &words_of_times(&chunks(outcome))),
        columns(&STEPS, &words_of_steps(&outcome.steps)),
        words_of_script(outcome),
        words_of_throughput(outcome)
    )
}

/// Renders the HTML page.
pub fn page(outcome: &Outcome) -> String {
    let mut page = published(TITLE, OPEN, &headlines(outcome));
    if let Some(early) = &outcome.early {
        page.paragraph("warning", &early.words());
    }
    page.heading(JOINERS);
    page.paragraph("note", OF_JOINERS);
    page.table(&TIMES, &words_of_times(&joiners(outcome)));
    charts::waits(&mut page, outcome);
    page.heading(CHUNKS);
    page.paragraph("note", OF_CHUNKS);
    page.table(&TIMES, &words_of_times(&chunks(outcome)));
    charts::delays(&mut page, outcome);
    page.heading(VIEWERS);
    page.paragraph("note", OF_VIEWERS);
    page.table(&STEPS, &words_of_steps(&outcome.steps));
    charts::ttfb_over_time(&mut page, outcome);
    page.heading("Clients of a wrk script");
    page.paragraph("", &words_of_script(outcome));
    page.heading("Throughput of one edge");
    page.paragraph("", &words_of_throughput(outcome));
    page.finish()
}

/// Renders all joiners and chunks as CSV, one per line.
pub fn csv(outcome: &Outcome) -> String {
    let mut text = "measure,cache,of,round,number,at_us,time_us\n".to_owned();
    for (number, joiner) in outcome.joiners.iter().enumerate() {
        let _ = writeln!(
            text,
            "{},{},\"{}\",{},{number},{},{}",
            if joiner.is_late { "ttfb-late" } else { "ttfb" },
            joiner.cache.name(),
            joiner.fill.name,
            joiner.round,
            joiner.joined.as_micros(),
            joiner.ttfb.as_micros()
        );
    }
    for chunk in &outcome.chunks {
        let at = SEGMENT.every * u32::try_from(chunk.chunk).unwrap_or(u32::MAX);
        let _ = writeln!(
            text,
            "chunk,{},\"{}\",{},{},{},{}",
            chunk.cache.name(),
            tiers(chunk.cache),
            chunk.segment,
            chunk.chunk,
            at.as_micros(),
            chunk.delay.as_micros()
        );
    }
    text
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    #[serde(flatten)]
    early: DocumentEarly<'a>,
    headlines: Vec<DocumentHeadline>,
    joiners: Vec<DocumentTimes>,
    chunks: Vec<DocumentTimes>,
    viewers: Vec<DocumentStep<'a>>,
    script: Option<DocumentScript>,
    throughput: Option<DocumentThroughput>,
}

#[derive(Serialize)]
struct DocumentTimes {
    of: String,
    count: usize,
    left_out: usize,
    p50_ms: f64,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: f64,
}

#[derive(Serialize)]
struct DocumentStep<'a> {
    viewers: u64,
    crowd: ViewerStats,
    at_edge: ViewerStats,
    /// TTFB of the crowd, second by second.
    ttfb_p95: &'a [TtfbSecond],
    edges_cores: f64,
    edges_memory_bytes: u64,
    clients_cores: f64,
    clients_memory_bytes: u64,
}

#[derive(Serialize)]
struct DocumentScript {
    clients: u64,
    requests: u64,
    errors: u64,
    content_bytes: u64,
    ttfb_p50_ms: Option<f64>,
    ttfb_p95_ms: Option<f64>,
    ttfb_p99_ms: Option<f64>,
}

#[derive(Serialize)]
struct DocumentThroughput {
    gbit_per_s: f64,
    edge_cores: f64,
    edge_memory_bytes: u64,
    clients_cores: f64,
}

impl From<Times> for DocumentTimes {
    fn from((of, Quantiles { count, p50, p95, p99, max }, left_out): Times) -> Self {
        Self { of, count, left_out, p50_ms: p50, p95_ms: p95, p99_ms: p99, max_ms: max }
    }
}

impl From<Scripted> for DocumentScript {
    fn from(script: Scripted) -> Self {
        let Scripted { clients, requests, errors, content_bytes, ttfb } = script;
        Self {
            clients,
            requests,
            errors,
            content_bytes,
            ttfb_p50_ms: ttfb.map(|ttfb| ttfb.p50),
            ttfb_p95_ms: ttfb.and_then(|ttfb| ttfb.p95),
            ttfb_p99_ms: ttfb.and_then(|ttfb| ttfb.p99),
        }
    }
}

impl<'a> From<&'a Step> for DocumentStep<'a> {
    fn from(step: &'a Step) -> Self {
        Self {
            viewers: step.viewers,
            crowd: step.crowd,
            at_edge: step.at_edge,
            ttfb_p95: &step.ttfb_p95,
            edges_cores: step.edges.cores,
            edges_memory_bytes: step.edges.memory_bytes,
            clients_cores: step.clients.cores,
            clients_memory_bytes: step.clients.memory_bytes,
        }
    }
}

/// Renders the tables as JSON.
pub fn json(outcome: &Outcome) -> String {
    let document = Document {
        version: VERSION,
        early: outcome.early.as_ref().into(),
        headlines: document_headlines(&headlines(outcome)),
        joiners: joiners(outcome).into_iter().map(DocumentTimes::from).collect(),
        chunks: chunks(outcome).into_iter().map(DocumentTimes::from).collect(),
        viewers: outcome.steps.iter().map(DocumentStep::from).collect(),
        script: outcome.script.map(DocumentScript::from),
        throughput: outcome.throughput.map(|sent| DocumentThroughput {
            gbit_per_s: sent.gbit_per_s,
            edge_cores: sent.edge.cores,
            edge_memory_bytes: sent.edge.memory_bytes,
            clients_cores: sent.clients.cores,
        }),
    };
    serde_json::to_string_pretty(&document).expect("serializing numbers and strings cannot fail") + "\n"
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::reproduce::EarlyEnd;
    use crate::reproduce::lumen::joiners::Joiner;
    use crate::reproduce::lumen::plan;

    /// Builds an outcome with joiners of a short fill at the edge, two of them late, followed by a
    /// failure.
    fn partial() -> Outcome {
        let joiner = |number: u64| Joiner {
            cache: Cache::Thalweg,
            fill: SHORT,
            round: 0,
            joined: Duration::from_millis(number),
            ttfb: Duration::from_millis(if number < 80 { 2 } else { 1 }),
            is_late: number >= 80,
        };
        Outcome {
            joiners: (0..82).map(joiner).collect(),
            early: Some(EarlyEnd::Failed("chunks over two tiers of nginx: status 502".to_owned())),
            ..Outcome::new(plan(true))
        }
    }

    #[test]
    fn partial_results_are_reported_with_the_failure() {
        let mut outcome = partial();
        assert_eq!(outcome.exit_status(), 1);
        let row = "thalweg, short, 200 ms     80         2";
        for text in [table(&outcome), page(&outcome)] {
            assert!(text.contains("chunks over two tiers of nginx: status 502"), "{text}");
        }
        assert!(table(&outcome).contains(row), "{}", table(&outcome));
        assert_eq!(csv(&outcome).lines().filter(|line| line.starts_with("ttfb-late,")).count(), 2);
        outcome.early = Some(EarlyEnd::Interrupted(15));
        let document: serde_json::Value = serde_json::from_str(&json(&outcome)).unwrap();
        assert_eq!((outcome.exit_status(), &document["interrupted_by_signal"]), (143, &15.into()));
        let here = |index: usize| &document["headlines"][index]["here"];
        assert_eq!(
            (0..9).filter(|index| here(*index).is_null()).collect::<Vec<_>>(),
            [0, 2, 3, 4, 5, 6, 7, 8]
        );
        assert_eq!((here(1), &document["headlines"][1]["but"]), (&2.0.into(), &"2 of 82 came late".into()));
    }
}
