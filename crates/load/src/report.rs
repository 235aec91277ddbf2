//! Output formats for figures: JSON, which can be parsed back without loss; CSV with percentiles;
//! and a table for a terminal.
//!
//! The JSON is a wire format: [`VERSION`] increases with each change that older readers would
//! misread. Its percentiles are for other programs only: [`from_json`] parses the histograms, which
//! are base64 strings of HdrHistogram's V2 encoding without compression.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Cursor;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use serde::{Deserialize, Serialize};

use thalweg_units::table::{Column, Table};
use thalweg_units::{bit_rate, micros, size};

use super::ErrorKind;
use super::figures::{
    Figures, GOODPUT_KBIT_PER_S_MAX, Period, Run, SIGNIFICANT_DIGITS, Second, TIME_US_MAX, Time,
};
use crate::viewer::figures::Viewers;

/// Version of the JSON format.
pub const VERSION: u32 = 2;
/// Names and values of the reported quantiles.
pub const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

/// 99th percentile of lateness above which the table warns about late requests.
const LATENESS_US_MAX: u64 = 1000;

/// Figures in their JSON form.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    thalweg_lab_load: u32,
    runs: BTreeMap<String, Run>,
    period: Option<Period>,
    clients: u64,
    begun: u64,
    requests: u64,
    unsent: u64,
    reconnects: u64,
    content_bytes: u64,
    cpu_us: u64,
    statuses: BTreeMap<u16, u64>,
    errors: BTreeMap<ErrorKind, WireError>,
    times: BTreeMap<Time, WireTimes>,
    goodput: Option<WireGoodput>,
    viewers: Option<Viewers>,
    seconds: Vec<WireSecond>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireError {
    count: u64,
    first_us: u64,
    first: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTimes {
    count: u64,
    mean_us: f64,
    p50_us: u64,
    p95_us: u64,
    p99_us: u64,
    #[serde(rename = "p99.9_us")]
    p999_us: u64,
    max_us: u64,
    histogram: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireGoodput {
    count: u64,
    mean_kbit_per_s: f64,
    p1_kbit_per_s: u64,
    p5_kbit_per_s: u64,
    p50_kbit_per_s: u64,
    histogram: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireSecond {
    unix_s: u64,
    #[serde(flatten)]
    counts: Second,
}

/// Renders figures as JSON, followed by a line feed.
pub fn to_json(figures: &Figures) -> String {
    let wire = Wire {
        thalweg_lab_load: VERSION,
        runs: figures.runs.iter().map(|(number, run)| (format!("{number:016x}"), run.clone())).collect(),
        period: figures.period,
        clients: figures.clients,
        begun: figures.begun,
        requests: figures.requests,
        unsent: figures.unsent,
        reconnects: figures.reconnects,
        content_bytes: figures.content_bytes,
        cpu_us: figures.cpu_us,
        statuses: figures.statuses.clone(),
        errors: figures
            .errors
            .iter()
            .map(|(kind, count)| (*kind, wire_error(figures, *kind, *count)))
            .collect(),
        times: figures.times.iter().map(|(time, histogram)| (*time, wire_times(histogram))).collect(),
        goodput: figures.goodput.as_ref().map(wire_goodput),
        viewers: figures.viewers,
        seconds: figures
            .seconds
            .iter()
            .map(|(unix_s, counts)| WireSecond { unix_s: *unix_s, counts: counts.clone() })
            .collect(),
    };
    let mut text = serde_json::to_string_pretty(&wire).expect("all keys are strings and numbers are finite");
    text.push('\n');
    text
}

fn wire_error(figures: &Figures, kind: ErrorKind, count: u64) -> WireError {
    let (first_us, first) = figures.examples.get(&kind).cloned().unwrap_or_default();
    WireError { count, first_us, first }
}

fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).expect("writing to a Vec cannot fail");
    STANDARD.encode(bytes)
}

/// Converts goodput to its JSON form. It has low percentiles, because the worst goodput is the
/// lowest.
fn wire_goodput(histogram: &Histogram<u64>) -> WireGoodput {
    let at = |quantile| histogram.value_at_quantile(quantile);
    WireGoodput {
        count: histogram.len(),
        mean_kbit_per_s: histogram.mean(),
        p1_kbit_per_s: at(0.01),
        p5_kbit_per_s: at(0.05),
        p50_kbit_per_s: at(0.5),
        histogram: encode(histogram),
    }
}

fn wire_times(histogram: &Histogram<u64>) -> WireTimes {
    let [p50_us, p95_us, p99_us, p999_us] =
        QUANTILES.map(|(_, quantile)| histogram.value_at_quantile(quantile));
    WireTimes {
        count: histogram.len(),
        mean_us: histogram.mean(),
        p50_us,
        p95_us,
        p99_us,
        p999_us,
        max_us: histogram.max(),
        histogram: encode(histogram),
    }
}

/// Parses the output of [`to_json`].
pub fn from_json(text: &str) -> anyhow::Result<Figures> {
    #[derive(Deserialize)]
    struct Version {
        thalweg_lab_load: u32,
    }
    let version: Version = serde_json::from_str(text).context("not a report of thalweg-lab load")?;
    if version.thalweg_lab_load != VERSION {
        bail!("report has version {}, but this program reads version {VERSION}", version.thalweg_lab_load);
    }
    let wire: Wire = serde_json::from_str(text)?;
    let mut figures = Figures {
        period: wire.period,
        clients: wire.clients,
        begun: wire.begun,
        requests: wire.requests,
        unsent: wire.unsent,
        reconnects: wire.reconnects,
        content_bytes: wire.content_bytes,
        cpu_us: wire.cpu_us,
        statuses: wire.statuses,
        viewers: wire.viewers,
        seconds: wire.seconds.into_iter().map(|second| (second.unix_s, second.counts)).collect(),
        ..Figures::default()
    };
    for (number, run) in wire.runs {
        let read = u64::from_str_radix(&number, 16);
        figures
            .runs
            .insert(read.with_context(|| format!("runs: {number:?} is not a hexadecimal number"))?, run);
    }
    for (kind, error) in wire.errors {
        figures.errors.insert(kind, error.count);
        figures.examples.insert(kind, (error.first_us, error.first));
    }
    for (time, times) in wire.times {
        let histogram = read_histogram(&times.histogram, TIME_US_MAX);
        figures.times.insert(time, histogram.with_context(|| format!("times.{}", time.name()))?);
    }
    if let Some(goodput) = wire.goodput {
        let histogram = read_histogram(&goodput.histogram, GOODPUT_KBIT_PER_S_MAX);
        figures.goodput = Some(histogram.context("goodput")?);
    }
    Ok(figures)
}

fn read_histogram(text: &str, most: u64) -> anyhow::Result<Histogram<u64>> {
    let bytes = STANDARD.decode(text).context("histogram is not base64")?;
    let histogram: Histogram<u64> = Deserializer::new()
        .deserialize(&mut Cursor::new(bytes))
        .map_err(|error| anyhow::anyhow!("histogram is not in the V2 encoding: {error}"))?;
    if (histogram.low(), histogram.high(), histogram.sigfig()) != (1, most, SIGNIFICANT_DIGITS) {
        bail!("histogram bounds must be 1 to {most}, with {SIGNIFICANT_DIGITS} significant digits");
    }
    Ok(histogram)
}

/// Renders one CSV line per kind of time: count, mean, percentiles and maximum, in microseconds.
pub fn to_csv(figures: &Figures) -> String {
    let mut text = "time,count,mean_us,p50_us,p95_us,p99_us,p99.9_us,max_us\n".to_owned();
    for (time, histogram) in &figures.times {
        let _ = write!(text, "{},{},{:.1}", time.name(), histogram.len(), histogram.mean());
        for (_, quantile) in QUANTILES {
            let _ = write!(text, ",{}", histogram.value_at_quantile(quantile));
        }
        let _ = writeln!(text, ",{}", histogram.max());
    }
    text
}

/// Renders the table for a terminal: the [`summary`], with the times between its parts.
pub fn to_table(figures: &Figures) -> String {
    let mut text = totals(figures);
    push_times(&mut text, figures);
    push_rest(&mut text, figures);
    text
}

/// Renders the summary as text, one statement per line.
pub fn summary(figures: &Figures) -> String {
    let mut text = totals(figures);
    push_rest(&mut text, figures);
    text
}

fn push_rest(text: &mut String, figures: &Figures) {
    push_viewers(text, figures);
    push_errors(text, figures);
}

fn totals(figures: &Figures) -> String {
    let mut text = String::new();
    let (seconds, requests) = (figures.measured_s(), figures.requests);
    // Avoid dividing by zero if no time was measured.
    let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let _ = writeln!(
        text,
        "{requests} requests in {seconds:.2}s by {} clients: {:.1}/s, {} of content, {}",
        figures.clients,
        per_s(requests),
        size(figures.content_bytes),
        bit_rate(per_s(figures.content_bytes) * 8.0),
    );
    if requests > 0 {
        let cpu_s = figures.cpu_us as f64 / 1e6;
        let _ = writeln!(
            text,
            "{cpu_s:.2}s of processor time here: {:.2}us per request",
            figures.cpu_us as f64 / requests as f64
        );
    }
    let open = figures.begun.saturating_sub(figures.requests);
    let late_us = figures.time(Time::Lateness).map_or(0, |late| late.value_at_quantile(0.99));
    if late_us > LATENESS_US_MAX {
        let _ = writeln!(
            text,
            "1 % of the requests started {} or more after they were due: no client was free or this machine is too slow",
            micros(late_us)
        );
    }
    for (count, what) in [
        (open, "requests were in flight when time was up"),
        (
            figures.unsent,
            "requests were due but found no free client: the server is too slow, or --clients too small",
        ),
        (figures.reconnects, "requests were retried because the server had closed their idle connection"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{count} {what}");
        }
    }
    text
}

fn push_times(text: &mut String, figures: &Figures) {
    if figures.times.is_empty() {
        return;
    }
    let quantiles = QUANTILES.map(|(name, _)| name);
    let names = ["count", "mean"].into_iter().chain(quantiles).chain(["max"]);
    let mut table = Table::new([Column::text("")].into_iter().chain(names.map(Column::number)));
    for (time, histogram) in &figures.times {
        table.push([time.name().to_owned()].into_iter().chain(time_cells(histogram)));
    }
    let _ = write!(text, "\n{table}");
}

/// Formats the count, mean, quantiles and maximum of times as table cells.
pub fn time_cells(times: &Histogram<u64>) -> impl Iterator<Item = String> {
    let quantiles = QUANTILES.map(|(_, share)| micros(times.value_at_quantile(share)));
    let mean = micros(times.mean().round() as u64);
    [times.len().to_string(), mean].into_iter().chain(quantiles).chain([micros(times.max())])
}

fn push_viewers(text: &mut String, figures: &Figures) {
    if let Some(goodput) = &figures.goodput {
        let at = |quantile| bit_rate(goodput.value_at_quantile(quantile) as f64 * 1e3);
        let _ = writeln!(
            text,
            "\ngoodput: {} measured, p1 {}, p5 {}, p50 {}",
            goodput.len(),
            at(0.01),
            at(0.05),
            at(0.5)
        );
    }
    let Some(Viewers { now, totals, segments, chunks, switches_up, switches_down, rejoins }) =
        &figures.viewers
    else {
        return;
    };
    let _ = writeln!(
        text,
        "\nviewers: {} playing, {} stalled, {} starting, {} at the end, {} gave up",
        now.playing, now.stalled, now.starting, now.ended, now.gone
    );
    let _ = writeln!(
        text,
        "stalls: {} of {} viewers, {:.3}% of the time, {} in total; {} skipped, {rejoins} rejoined",
        totals.stalls,
        totals.viewers_stalled,
        totals.stall_ratio() * 100.0,
        micros(totals.stalled_us),
        micros(totals.skipped_us),
    );
    let _ = writeln!(
        text,
        "media: {segments} segments, {chunks} chunks; {switches_up} switches up, {switches_down} down"
    );
}

fn push_errors(text: &mut String, figures: &Figures) {
    let statuses: Vec<String> =
        figures.statuses.iter().map(|(status, count)| format!("{count} of {status}")).collect();
    if !statuses.is_empty() {
        let _ = writeln!(text, "\nresponses: {}", statuses.join(", "));
    }
    for (kind, count) in &figures.errors {
        let first = figures.examples.get(kind).map_or("", |(_, first)| first);
        let _ = writeln!(text, "errors: {count} {:<18}{first}", kind.name());
    }
}

#[cfg(test)]
mod tests;
