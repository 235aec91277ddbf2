//! Figures as text: JSON, which is read back exactly; CSV of percentiles; a table for people.
//!
//! The JSON is a wire format: [`VERSION`] counts up with each change that an older reader would get wrong. Percentiles in it are
//! for other programs; reading takes the histograms, which are in the V2 encoding of HdrHistogram, without deflate, in base64.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Cursor;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use serde::{Deserialize, Serialize};

use super::ErrorKind;
use super::figures::{
    Figures, GOODPUT_KBIT_PER_S_MAX, Period, Run, SIGNIFICANT_DIGITS, Second, TIME_US_MAX, Time,
};
use crate::viewer::figures::Viewers;

/// Of the JSON.
pub const VERSION: u32 = 2;
/// The quantiles that are told, with their names.
pub const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

/// A generator that is later than that at the 99th percentile says so.
const LATENESS_US_MAX: u64 = 1000;

/// Figures as they stand in JSON.
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

/// The figures as JSON, ended by a line feed.
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
            .map(|(unix_s, counts)| WireSecond { unix_s: *unix_s, counts: *counts })
            .collect(),
    };
    let mut text = serde_json::to_string_pretty(&wire).expect("all keys are texts and all numbers finite");
    text.push('\n');
    text
}

fn wire_error(figures: &Figures, kind: ErrorKind, count: u64) -> WireError {
    let (first_us, first) = figures.examples.get(&kind).cloned().unwrap_or_default();
    WireError { count, first_us, first }
}

fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).expect("a vector takes everything");
    STANDARD.encode(bytes)
}

/// Of rates the low ones are told.
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

/// Reads what [`to_json`] has written.
pub fn from_json(text: &str) -> anyhow::Result<Figures> {
    #[derive(Deserialize)]
    struct Version {
        thalweg_lab_load: u32,
    }
    let version: Version = serde_json::from_str(text).context("not figures of thalweg-lab load")?;
    if version.thalweg_lab_load != VERSION {
        bail!("figures of version {}, and this program reads {VERSION}", version.thalweg_lab_load);
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
        seconds: wire.seconds.iter().map(|second| (second.unix_s, second.counts)).collect(),
        ..Figures::default()
    };
    for (number, run) in wire.runs {
        let read = u64::from_str_radix(&number, 16);
        figures.runs.insert(read.with_context(|| format!("runs: {number:?} is no number"))?, run);
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
        bail!("histogram has other bounds than 1 to {most} with {SIGNIFICANT_DIGITS} digits");
    }
    Ok(histogram)
}

/// One line for each kind of time: its count, mean, percentiles and greatest, in microseconds.
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

/// For people: [`summary`], and the times between its parts.
pub fn to_table(figures: &Figures) -> String {
    let mut text = totals(figures);
    push_times(&mut text, figures);
    push_rest(&mut text, figures);
    text
}

/// What is to be said in words, in lines.
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
    // Nothing was measured in no time.
    let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let _ = writeln!(
        text,
        "{requests} requests in {seconds:.2}s by {} clients: {:.1}/s, {} of content, {}",
        figures.clients,
        per_s(requests),
        bytes(figures.content_bytes),
        bit_rate(per_s(figures.content_bytes) * 8.0),
    );
    if requests > 0 {
        let cpu_s = figures.cpu_us as f64 / 1e6;
        let _ = writeln!(
            text,
            "{cpu_s:.2}s of processor time here: {:.2}us a request",
            figures.cpu_us as f64 / requests as f64
        );
    }
    let open = figures.begun.saturating_sub(figures.requests);
    let late_us = figures.time(Time::Lateness).map_or(0, |late| late.value_at_quantile(0.99));
    if late_us > LATENESS_US_MAX {
        let _ = writeln!(
            text,
            "1 % of the requests began {} or more after they were due: no client was free, or this machine is too slow",
            time_text(late_us as f64)
        );
    }
    for (count, what) in [
        (open, "requests were under way when time was up"),
        (
            figures.unsent,
            "requests were due and no client was free for them: the server, or --clients, is too small",
        ),
        (figures.reconnects, "requests were sent again, since the server had closed their idle connection"),
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
    let _ = write!(text, "\n{:<14}{:>10}{:>10}", "", "count", "mean");
    for (name, _) in QUANTILES {
        let _ = write!(text, "{name:>10}");
    }
    let _ = writeln!(text, "{:>10}", "max");
    for (time, histogram) in &figures.times {
        let _ = write!(text, "{:<14}{:>10}{:>10}", time.name(), histogram.len(), time_text(histogram.mean()));
        for (_, quantile) in QUANTILES {
            let _ = write!(text, "{:>10}", time_text(histogram.value_at_quantile(quantile) as f64));
        }
        let _ = writeln!(text, "{:>10}", time_text(histogram.max() as f64));
    }
}

fn push_viewers(text: &mut String, figures: &Figures) {
    if let Some(goodput) = &figures.goodput {
        let at = |quantile| bit_rate(goodput.value_at_quantile(quantile) as f64 * 1e3);
        let _ = writeln!(
            text,
            "{:<14}{:>10}  p1 {}, p5 {}, p50 {}",
            "goodput",
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
        "stalls: {} of {} viewers, {:.3}% of the time, {} in all; {} skipped, {rejoins} joined anew",
        totals.stalls,
        totals.viewers_stalled,
        totals.stall_ratio() * 100.0,
        time_text(totals.stalled_us as f64),
        time_text(totals.skipped_us as f64),
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

/// A time for people, in the unit that gives three to four digits.
pub fn time_text(value_us: f64) -> String {
    match value_us {
        us if us < 1e3 => format!("{us:.0}us"),
        us if us < 1e6 => format!("{:.2}ms", us / 1e3),
        us => format!("{:.2}s", us / 1e6),
    }
}

/// A rate of bits for people.
pub fn bit_rate(bits_per_s: f64) -> String {
    match bits_per_s {
        rate if rate < 1e9 => format!("{:.2}Mbit/s", rate / 1e6),
        rate => format!("{:.2}Gbit/s", rate / 1e9),
    }
}

fn bytes(count: u64) -> String {
    match count as f64 {
        count if count < 1e6 => format!("{:.1}kB", count / 1e3),
        count if count < 1e9 => format!("{:.1}MB", count / 1e6),
        count => format!("{:.2}GB", count / 1e9),
    }
}

#[cfg(test)]
mod tests;
