//! A load while it runs: on a terminal a few lines that are written anew each second, else a line now and then.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stderr};

use hdrhistogram::Histogram;
use thalweg_lab::load::engine::Moment;
use thalweg_lab::load::figures::{Figures, Time};
use thalweg_lab::load::report::{bit_rate, time_text};

/// Where nobody looks on, a line so often.
const LINE_EVERY_S: u64 = 10;
/// The bars of a histogram.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// How many of them are side by side.
const COLUMNS: usize = 40;

/// Tells of it on standard error.
#[derive(Debug)]
pub(super) struct Progress {
    is_terminal: bool,
    /// Lines that stand on the terminal.
    lines: usize,
}

impl Progress {
    pub(super) fn begin() -> Self {
        Self { is_terminal: stderr().is_terminal(), lines: 0 }
    }

    /// Tells of this moment.
    pub(super) fn tell(&mut self, moment: &Moment<'_>) {
        let line = line(moment);
        if !self.is_terminal {
            if moment.elapsed.as_secs().is_multiple_of(LINE_EVERY_S) {
                eprintln!("{line}");
            }
            return;
        }
        let mut lines = vec![line];
        lines.extend(viewers(moment.figures));
        let kinds = [Time::Ttfb, Time::Ttlb, Time::LiveLatency];
        lines.extend(kinds.iter().filter_map(|time| Some(bars(*time, &moment.since(*time)?))));
        // A line that is too long for the terminal is cut, not wrapped: it would be two.
        let mut text = self.back() + "\x1b[?7l";
        for line in &lines {
            let _ = writeln!(text, "{line}\x1b[K");
        }
        text += "\x1b[?7h";
        let _ = stderr().write_all(text.as_bytes());
        self.lines = lines.len();
    }

    /// Takes what stands on the terminal away.
    pub(super) fn end(&mut self) {
        let _ = stderr().write_all(self.back().as_bytes());
        self.lines = 0;
    }

    /// To the first line that stands there, all of them erased.
    fn back(&self) -> String {
        if self.lines == 0 { String::new() } else { format!("\x1b[{}A\x1b[J", self.lines) }
    }
}

fn line(moment: &Moment<'_>) -> String {
    let clients = moment.figures.clients_now();
    let mut line = format!("{:>4}s  {clients} clients", moment.elapsed.as_secs());
    if !moment.is_counted {
        return line + "  warming up";
    }
    let _ = write!(
        line,
        "  {:.0} requests/s  {}  {} errors",
        moment.per_s(|figures| figures.requests),
        bit_rate(moment.per_s(|figures| figures.content_bytes) * 8.0),
        moment.figures.errors_total(),
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
        time_text(totals.stalled_us as f64),
    ))
}

/// The times of the last second as a row of bars, between their least and their greatest, in equal steps of their logarithm.
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
        time_text(least),
        counts.iter().map(bar).collect::<String>(),
        time_text(most),
        time_text(times.value_at_quantile(0.5) as f64),
        time_text(times.value_at_quantile(0.99) as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stand_where_the_times_are() {
        let mut times = Histogram::new_with_bounds(1, 3_600_000_000, 3).unwrap();
        times.record_n(100, 8).unwrap();
        times.record_n(10_000, 4).unwrap();
        let row = bars(Time::Ttlb, &times);
        let inner: Vec<char> = row.chars().skip(22).take(COLUMNS).collect();
        assert_eq!((inner[0], inner[COLUMNS - 1]), ('█', '▄'), "{row}");
        assert!(inner[1..COLUMNS - 1].iter().all(|bar| *bar == ' '), "{row}");
    }
}
