//! Progress of a running load: redrawn every second on a terminal, otherwise printed as one line
//! every few seconds.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stderr};

use hdrhistogram::Histogram;
use thalweg_load::engine::Snapshot;
use thalweg_load::figures::{Figures, Time};
use thalweg_units::{bit_rate, micros};

/// Seconds between progress lines when standard error is not a terminal.
const LINE_EVERY_S: u64 = 10;
/// Histogram bars, lowest first.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Histogram width in columns.
const COLUMNS: usize = 40;

/// Writes progress to standard error.
#[derive(Debug)]
pub(super) struct Progress {
    is_terminal: bool,
    /// Number of lines currently shown on the terminal.
    lines: usize,
}

impl Progress {
    pub(super) fn start() -> Self {
        Self { is_terminal: stderr().is_terminal(), lines: 0 }
    }

    /// Shows one snapshot of the load.
    pub(super) fn show(&mut self, snapshot: &Snapshot<'_>) {
        let line = line(snapshot);
        if !self.is_terminal {
            if snapshot.elapsed.as_secs().is_multiple_of(LINE_EVERY_S) {
                eprintln!("{line}");
            }
            return;
        }
        let mut lines = vec![line];
        lines.extend(viewers(snapshot.figures));
        let kinds = [Time::Ttfb, Time::Ttlb, Time::LiveLatency];
        lines.extend(kinds.iter().filter_map(|time| Some(bars(*time, &snapshot.since(*time)?))));
        // Turn off wrapping: a wrapped line would take two rows and break the next redraw.
        let mut text = self.back() + "\x1b[?7l";
        for line in &lines {
            let _ = writeln!(text, "{line}\x1b[K");
        }
        text += "\x1b[?7h";
        let _ = stderr().write_all(text.as_bytes());
        self.lines = lines.len();
    }

    /// Erases the progress lines from the terminal.
    pub(super) fn end(&mut self) {
        let _ = stderr().write_all(self.back().as_bytes());
        self.lines = 0;
    }

    /// Returns the control sequence that erases all progress lines and moves to the first.
    fn back(&self) -> String {
        if self.lines == 0 { String::new() } else { format!("\x1b[{}A\x1b[J", self.lines) }
    }
}

fn line(snapshot: &Snapshot<'_>) -> String {
    let clients = snapshot.figures.clients_now();
    let mut line = format!("{:>4}s  {clients} clients", snapshot.elapsed.as_secs());
    if !snapshot.is_counted {
        return line + "  warming up";
    }
    let _ = write!(
        line,
        "  {:.0} requests/s  {}  {} errors",
        snapshot.per_s(|figures| figures.requests),
        bit_rate(snapshot.per_s(|figures| figures.content_bytes) * 8.0),
        snapshot.figures.errors_total(),
    );
    line
}

fn viewers(figures: &Figures) -> Option<String> {
    let viewers = figures.viewers.as_ref()?;
    let (now, totals) = (&viewers.now, &viewers.totals);
    Some(format!(
        "       playing {}  stalled {}  starting {}  at the end {}  gave up {}  stalls {} in {}",
        now.playing,
        now.stalled,
        now.starting,
        now.ended,
        now.gone,
        totals.stalls,
        micros(totals.stalled_us),
    ))
}

/// Draws a histogram of the last second's times, from minimum to maximum in equal logarithmic
/// steps.
fn bars(time: Time, times: &Histogram<u64>) -> String {
    let (least, most) = (times.min().max(1) as f64, times.max().max(2) as f64);
    let step = ((most / least).ln() / COLUMNS as f64).max(f64::MIN_POSITIVE);
    let mut counts = [0; COLUMNS];
    for value in times.iter_recorded() {
        let column = ((value.value_iterated_to() as f64 / least).ln() / step) as usize;
        counts[column.min(COLUMNS - 1)] += value.count_at_value();
    }
    let highest = counts.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: &u64| match count {
        0 => ' ',
        count => BARS[((count * BARS.len() as u64).div_ceil(highest) as usize).clamp(1, BARS.len()) - 1],
    };
    format!(
        "{:<13}{:>8} {} {:<8}  p50 {}  p99 {}",
        time.name(),
        micros(least as u64),
        counts.iter().map(bar).collect::<String>(),
        micros(most as u64),
        micros(times.value_at_quantile(0.5)),
        micros(times.value_at_quantile(0.99)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_its_column() {
        let mut times = Histogram::new_with_bounds(1, 3_600_000_000, 3).unwrap();
        times.record_n(100, 8).unwrap();
        times.record_n(10_000, 4).unwrap();
        let row = bars(Time::Ttlb, &times);
        let inner: Vec<char> = row.chars().skip(22).take(COLUMNS).collect();
        assert_eq!((inner[0], inner[COLUMNS - 1]), ('█', '▄'), "{row}");
        assert!(inner[1..COLUMNS - 1].iter().all(|bar| *bar == ' '), "{row}");
    }
}
