//! What a reproduction of Lumen's publication has found: tables, histograms of the wait before and after, and every time taken.

use std::fmt::Write as _;

use serde::Serialize;

use super::chart::{Axes, Line, cumulative, histogram, lines};
use super::{DocumentHeadline, document_headlines, published};
use crate::reproduce::lumen::audience::{Seen, Step};
use crate::reproduce::lumen::{
    Cache, Early, Fill, OPEN, Outcome, Quantiles, SEGMENT, SHORT, TITLE, headlines,
};
use crate::reproduce::{columns, number};

/// The version of the JSON.
const VERSION: u32 = 2;
/// Waits are counted in bins of this.
const BIN_MS: f64 = 50.0;

/// A row of times: what they are of, their quantiles, and how many are left out.
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
        let numbers = [Some(p50), p95, p99, Some(max)].map(told);
        [name.clone(), count.to_string(), left_out.to_string()].into_iter().chain(numbers).collect()
    };
    times.iter().map(row).collect()
}

fn told(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

const STEPS: [&str; 16] = [
    "viewers",
    "playing",
    "stalled",
    "lost",
    "stalls",
    "stall %",
    "errors",
    "startup p50 ms",
    "p99 ms",
    "latency p50 s",
    "p99 s",
    "Gbit/s",
    "edges' cores",
    "edges' MiB",
    "clients' cores",
    "clients' MiB",
];

fn words_of_steps(steps: &[Step]) -> Vec<Vec<String>> {
    let seconds = |ms: Option<f64>| told(ms.map(|ms| ms / 1e3));
    let row = |step: &Step| {
        let Step { viewers, crowd, at_edge, edges, clients } = step;
        vec![
            viewers.to_string(),
            crowd.playing.to_string(),
            crowd.stalled.to_string(),
            crowd.lost.to_string(),
            crowd.stalls.to_string(),
            number(crowd.stall_ratio * 100.0),
            (crowd.errors + at_edge.errors).to_string(),
            told(crowd.startup_p50_ms),
            told(crowd.startup_p99_ms),
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
        "One edge sent {} Gbit/s of content with {} cores and {} MiB; its clients took {} cores.",
        number(sent.gbit_per_s),
        number(sent.edge.cores),
        mib(sent.edge.memory_bytes),
        number(sent.clients.cores)
    )
}

const JOINERS: &str = "Time to first byte of clients that join a fill";
const CHUNKS: &str = "Delay of a chunk over two tiers";
const VIEWERS: &str = "Live viewers at offsets, over three edges";

/// What each table is about.
const OF_JOINERS: &str = "\
From the last byte of the request to the first byte of the response. thalweg is with fills from memory, nginx with its cache lock: \
after and before, in the publication's order of things. Left out are those who asked when the fill had ended, by the first client's last byte.";
const OF_CHUNKS: &str = "\
From when a chunk was sent by the backend, or asked for if that was later, to its last byte at a client; all clients ask as the segment \
begins. At nginx all but the first wait for the whole segment, and at each tier what does not fill a buffer waits for what follows it.";
const OF_VIEWERS: &str = "\
Startup and stalls of all viewers, live latency of those at no offset; errors are failed requests of both. Playing, stalled and lost are \
how many were so at the end. Once all had joined: Gbit/s, cores and memory of the edges, and of the \
processes of viewers, together.";

/// All tables for a terminal.
pub fn table(outcome: &Outcome) -> String {
    let early = outcome.early.as_ref().map(|early| early.words() + "\n").unwrap_or_default();
    format!(
        "{JOINERS}\n{}\n{CHUNKS}\n{}\n{VIEWERS}\n{}\n{}\n{early}",
        columns(&TIMES, &words_of_times(&joiners(outcome))),
        columns(&TIMES, &words_of_times(&chunks(outcome))),
        columns(&STEPS, &words_of_steps(&outcome.steps)),
        words_of_throughput(outcome)
    )
}

/// The page.
pub fn page(outcome: &Outcome) -> String {
    let mut page = published(TITLE, OPEN, &headlines(outcome));
    if let Some(early) = &outcome.early {
        page.paragraph("warning", &early.words());
    }
    page.heading(JOINERS);
    page.paragraph("note", OF_JOINERS);
    page.table(&TIMES, &words_of_times(&joiners(outcome)));
    for fill in [SHORT, SEGMENT] {
        let waits = Cache::ALL.map(|cache| histogram(cache.name(), BIN_MS, &outcome.waits_ms(cache, fill)));
        let title = format!("Joiners by their wait: {}", fill.name);
        page.chart(&lines(Axes { title: &title, x: "wait, ms, in bins of 50", y: "joiners" }, &waits));
    }
    page.heading(CHUNKS);
    page.paragraph("note", OF_CHUNKS);
    page.table(&TIMES, &words_of_times(&chunks(outcome)));
    for cache in Cache::ALL {
        let title = format!("Share of chunks that have come: {}", tiers(cache));
        let line: Line = cumulative(cache.name(), &outcome.delays_ms(cache), 0);
        page.chart(&lines(Axes { title: &title, x: "delay, ms", y: "share" }, &[line]));
    }
    page.heading(VIEWERS);
    page.paragraph("note", OF_VIEWERS);
    page.table(&STEPS, &words_of_steps(&outcome.steps));
    page.heading("Throughput of one edge");
    page.paragraph("", &words_of_throughput(outcome));
    page.finish()
}

/// Each joiner and each chunk as CSV, one a line.
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
    failed: Option<&'a str>,
    interrupted_by_signal: Option<i32>,
    headlines: Vec<DocumentHeadline>,
    joiners: Vec<DocumentTimes>,
    chunks: Vec<DocumentTimes>,
    viewers: Vec<DocumentStep>,
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
struct DocumentStep {
    viewers: u64,
    crowd: DocumentSeen,
    at_edge: DocumentSeen,
    edges_cores: f64,
    edges_memory_bytes: u64,
    clients_cores: f64,
    clients_memory_bytes: u64,
}

#[derive(Serialize)]
struct DocumentSeen {
    playing: u64,
    stalled: u64,
    lost: u64,
    stalls: u64,
    stall_ratio: f64,
    startup_p50_ms: Option<f64>,
    startup_p99_ms: Option<f64>,
    latency_p50_ms: Option<f64>,
    latency_p99_ms: Option<f64>,
    gbit_per_s: f64,
    errors: u64,
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

impl From<&Step> for DocumentStep {
    fn from(step: &Step) -> Self {
        Self {
            viewers: step.viewers,
            crowd: (&step.crowd).into(),
            at_edge: (&step.at_edge).into(),
            edges_cores: step.edges.cores,
            edges_memory_bytes: step.edges.memory_bytes,
            clients_cores: step.clients.cores,
            clients_memory_bytes: step.clients.memory_bytes,
        }
    }
}

impl From<&Seen> for DocumentSeen {
    fn from(seen: &Seen) -> Self {
        Self {
            playing: seen.playing,
            stalled: seen.stalled,
            lost: seen.lost,
            stalls: seen.stalls,
            stall_ratio: seen.stall_ratio,
            startup_p50_ms: seen.startup_p50_ms,
            startup_p99_ms: seen.startup_p99_ms,
            latency_p50_ms: seen.latency_p50_ms,
            latency_p99_ms: seen.latency_p99_ms,
            gbit_per_s: seen.gbit_per_s,
            errors: seen.errors,
        }
    }
}

/// The tables as JSON.
pub fn json(outcome: &Outcome) -> String {
    let (failed, interrupted_by_signal) = match &outcome.early {
        Some(Early::Failed(why)) => (Some(why.as_str()), None),
        Some(Early::Interrupted(signal)) => (None, Some(*signal)),
        None => (None, None),
    };
    let document = Document {
        version: VERSION,
        failed,
        interrupted_by_signal,
        headlines: document_headlines(&headlines(outcome)),
        joiners: joiners(outcome).into_iter().map(DocumentTimes::from).collect(),
        chunks: chunks(outcome).into_iter().map(DocumentTimes::from).collect(),
        viewers: outcome.steps.iter().map(DocumentStep::from).collect(),
        throughput: outcome.throughput.map(|sent| DocumentThroughput {
            gbit_per_s: sent.gbit_per_s,
            edge_cores: sent.edge.cores,
            edge_memory_bytes: sent.edge.memory_bytes,
            clients_cores: sent.clients.cores,
        }),
    };
    serde_json::to_string_pretty(&document).expect("numbers and texts are JSON") + "\n"
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::reproduce::lumen::joiners::Joiner;
    use crate::reproduce::lumen::plan;

    /// Joiners of a short fill at the edge, of whom two came late, and then a failure.
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
            early: Some(Early::Failed("chunks over two tiers of nginx: status 502".to_owned())),
            ..Outcome::new(plan(true))
        }
    }

    #[test]
    fn what_is_there_is_told_with_what_failed() {
        let mut outcome = partial();
        assert_eq!(outcome.exit_status(), 1);
        let row = "thalweg, short, 200 ms     80         2";
        for text in [table(&outcome), page(&outcome)] {
            assert!(text.contains("chunks over two tiers of nginx: status 502"), "{text}");
        }
        assert!(table(&outcome).contains(row), "{}", table(&outcome));
        assert_eq!(csv(&outcome).lines().filter(|line| line.starts_with("ttfb-late,")).count(), 2);
        outcome.early = Some(Early::Interrupted(15));
        let document: serde_json::Value = serde_json::from_str(&json(&outcome)).unwrap();
        assert_eq!((outcome.exit_status(), &document["interrupted_by_signal"]), (143, &15.into()));
        let here = |index: usize| &document["headlines"][index]["here"];
        assert_eq!((0..7).filter(|index| here(*index).is_null()).collect::<Vec<_>>(), [0, 2, 3, 4, 5, 6]);
        assert_eq!((here(1), &document["headlines"][1]["but"]), (&2.0.into(), &"2 of 82 came late".into()));
    }
}
