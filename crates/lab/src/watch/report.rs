//! The figures as a line while viewers watch, and as a table and JSON at the end.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};
use thalweg_lab::viewer::crowd::Orders;
use thalweg_lab::viewer::figures::{Figures, Times};

/// What is told of each histogram.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

/// One line of how they are now.
pub(crate) fn line(at: Duration, figures: &Figures, bytes: u64) -> String {
    let now = &figures.now;
    let latency = |share| {
        let time = figures.live_latency_now.quantile(share);
        time.map_or_else(|| "-".to_owned(), |time| format!("{:.2}s", time.as_secs_f64()))
    };
    let errors: u64 = figures.errors.values().sum();
    format!(
        "{:4}s  playing {}  stalled {}  starting {}  waiting {}  latency p50 {} p95 {}  stalls {}  {:.1} Mbit/s  errors {errors}",
        at.as_secs(),
        now.playing,
        now.stalled,
        now.starting,
        now.waiting,
        latency(0.5),
        latency(0.95),
        figures.account.stalls,
        bytes as f64 * 8e-6,
    )
}

/// The table, on standard output.
pub(crate) fn print(figures: &Figures, took: Duration) {
    let mut out = String::from("\n");
    let _ = writeln!(
        out,
        "{:<14}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "", "count", "p50", "p95", "p99", "p99.9", "max"
    );
    for (name, times) in times(figures) {
        let _ = write!(out, "{name:<14}{:>10}", times.count());
        for (_, share) in QUANTILES {
            let _ = write!(out, "{:>10}", short(times.quantile(share)));
        }
        let _ = writeln!(out, "{:>10}", short(times.longest()));
    }
    let rate = |share| {
        figures
            .throughput
            .quantile(share)
            .map_or_else(|| "-".to_owned(), |k| format!("{:.1}M", k as f64 / 1e3))
    };
    // Of rates the low ones are told.
    let _ = writeln!(
        out,
        "{:<14}{:>10}{:>10}{:>10}{:>10}  bit/s at p50, p5, p1",
        "throughput",
        figures.throughput.count(),
        rate(0.5),
        rate(0.05),
        rate(0.01)
    );
    let (account, now) = (&figures.account, &figures.now);
    let _ = writeln!(
        out,
        "\nviewers        {} playing, {} stalled, {} starting, {} waiting, {} ended, {} gave up",
        now.playing, now.stalled, now.starting, now.waiting, now.ended, now.gone
    );
    let _ = writeln!(
        out,
        "stalls         {} of {} viewers, {:.3} % of the time, {:.3} s in all; {:.3} s skipped, {} joined anew",
        account.stalls,
        figures.viewers_stalled,
        account.stall_ratio() * 100.0,
        account.stalled.as_secs_f64(),
        account.skipped.as_secs_f64(),
        figures.rejoins
    );
    let _ = writeln!(
        out,
        "came           {} segments, {} chunks, {} responses, {:.1} Mbit/s; {} switches up, {} down",
        figures.segments,
        figures.chunks,
        figures.requests,
        figures.bytes as f64 * 8e-6 / took.as_secs_f64(),
        figures.switches_up,
        figures.switches_down
    );
    let errors: Vec<String> =
        figures.errors.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
    let _ = writeln!(
        out,
        "errors         {}",
        if errors.is_empty() { "none".to_owned() } else { errors.join(", ") }
    );
    let _ = std::io::Write::write_all(&mut std::io::stdout(), out.as_bytes());
}

/// Everything, for programs. Times are in microseconds.
pub(crate) fn json(figures: &Figures, orders: &Orders, took: Duration) -> String {
    let mut all = serde_json::Map::new();
    for (name, times) in times(figures) {
        all.insert(format!("{}_us", name.replace(' ', "_")), quantiles(times));
    }
    let (account, now) = (&figures.account, &figures.now);
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let rest = json!({
        "viewers": orders.viewers,
        "offsets": orders.offsets.to_string(),
        "took_us": us(took),
        "playing": now.playing, "stalled": now.stalled, "starting": now.starting, "waiting": now.waiting,
        "ended": now.ended, "gave_up": now.gone,
        "stalls": account.stalls,
        "viewers_stalled": figures.viewers_stalled,
        "stall_ratio": account.stall_ratio(),
        "started_after_us": us(account.startup),
        "played_us": us(account.played),
        "stalled_us": us(account.stalled),
        "skipped_us": us(account.skipped),
        "rejoins": figures.rejoins,
        "segments": figures.segments,
        "chunks": figures.chunks,
        "responses": figures.requests,
        "content_bytes": figures.bytes,
        "switches_up": figures.switches_up,
        "switches_down": figures.switches_down,
        "throughput_kbit_per_s": {
            "count": figures.throughput.count(),
            "p1": figures.throughput.quantile(0.01),
            "p5": figures.throughput.quantile(0.05),
            "p50": figures.throughput.quantile(0.5),
        },
        "errors": figures.errors,
    });
    if let Value::Object(rest) = rest {
        all.extend(rest);
    }
    format!("{:#}\n", Value::Object(all))
}

fn quantiles(times: &Times) -> Value {
    let us = |time: Option<Duration>| time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    let mut out = serde_json::Map::new();
    out.insert("count".to_owned(), times.count().into());
    out.insert("mean".to_owned(), us(times.mean()).into());
    for (name, share) in QUANTILES {
        out.insert(name.to_owned(), us(times.quantile(share)).into());
    }
    out.insert("max".to_owned(), us(times.longest()).into());
    Value::Object(out)
}

fn times(figures: &Figures) -> [(&'static str, &Times); 5] {
    [
        ("startup", &figures.startup),
        ("live latency", &figures.live_latency),
        ("stall", &figures.stall),
        ("ttfb", &figures.ttfb),
        ("chunk gap", &figures.chunk_gap),
    ]
}

/// With three or four digits.
fn short(time: Option<Duration>) -> String {
    let Some(time) = time else { return "-".to_owned() };
    let us = time.as_secs_f64() * 1e6;
    match () {
        () if us < 1e3 => format!("{us:.0}us"),
        () if us < 1e6 => format!("{:.1}ms", us / 1e3),
        () => format!("{:.3}s", us / 1e6),
    }
}
