//! What a load measured, as one page: the figures, each kind of time by percentiles, and how it went second by second.

use hdrhistogram::Histogram;

use super::chart::{Axes, Line, Point, lines};
use super::page::Page;
use crate::load::figures::{Figures, Second};
use crate::load::report::{QUANTILES, summary, time_text};

/// Percentiles are drawn up to that many nines, as far as there are values for them.
const NINES_MAX: f64 = 5.0;
/// Points of a line over time.
const POINTS_MAX: u64 = 1000;
/// Points of a curve for each nine.
const POINTS_PER_NINE: u32 = 20;

/// The page of a run, or of several merged.
pub fn page(figures: &Figures) -> String {
    let model = figures.runs.values().next().map_or("nothing", |run| run.model.name());
    let mut page = Page::new(&format!("Load: {model}"));
    for run in figures.runs.values() {
        page.paragraph("note", &format!("thalweg-lab {}", run.arguments.join(" ")));
    }
    for line in summary(figures).lines().filter(|line| !line.is_empty()) {
        page.paragraph("", line);
    }
    times(&mut page, figures);
    seconds(&mut page, figures);
    for (time, histogram) in &figures.times {
        let title = format!("{}, by percentile", time.name());
        let axes = Axes { title: &title, x: "nines: 1 is 90 %, 2 is 99 %, 3 is 99.9 %", y: "ms" };
        page.chart(&lines(axes, &[percentiles(time.name(), histogram)]));
    }
    page.finish()
}

fn times(page: &mut Page, figures: &Figures) {
    if figures.times.is_empty() {
        return;
    }
    page.heading("Times");
    let columns: Vec<&str> =
        ["", "count", "mean"].into_iter().chain(QUANTILES.map(|(name, _)| name)).chain(["max"]).collect();
    let rows = figures.times.iter().map(|(time, histogram)| {
        let mut row = vec![time.name().to_owned(), histogram.len().to_string(), time_text(histogram.mean())];
        row.extend(QUANTILES.map(|(_, share)| time_text(histogram.value_at_quantile(share) as f64)));
        row.push(time_text(histogram.max() as f64));
        row
    });
    page.table(&columns, &rows.collect::<Vec<_>>());
}

/// Of the seconds that were measured whole.
fn seconds(page: &mut Page, figures: &Figures) {
    let Some(period) = figures.period else { return };
    let (first, end) = (period.begin_us.div_ceil(1_000_000), period.end_us / 1_000_000);
    if end <= first {
        return;
    }
    page.heading("Second by second");
    let step = (end - first).div_ceil(POINTS_MAX);
    let steps = || (first..end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    // The mean of each step.
    let line = |name: &str, of: &dyn Fn(&Second) -> f64| {
        let points = steps().map(|from| {
            let sum: f64 = figures.seconds.range(from..from + step).map(|(_, second)| of(second)).sum();
            flat((from - first) as f64, sum / step.min(end - from) as f64)
        });
        Line { name: name.to_owned(), points: points.collect() }
    };
    let axes = |title| Axes { title, x: "seconds", y: "" };
    let counts =
        [line("requests", &|second| second.requests as f64), line("errors", &|second| second.errors as f64)];
    page.chart(&lines(axes("Requests and errors a second"), &counts));
    let goodput = [line("goodput", &|second| second.content_bytes as f64 * 8e-6)];
    page.chart(&lines(axes("Mbit/s of content"), &goodput));
    let (mut counted, mut present) = (0, 0.0);
    let points = steps().map(|from| {
        for (_, second) in figures.seconds.range(counted..from + step) {
            present += second.clients_begun as f64 - second.clients_ended as f64;
        }
        counted = from + step;
        flat((from - first) as f64, present)
    });
    page.chart(&lines(axes("Clients"), &[Line { name: "clients".to_owned(), points: points.collect() }]));
}

/// A point without a band.
fn flat(x: f64, y: f64) -> Point {
    Point { x, y, band: (y, y) }
}

/// The times by how many nines of all are no longer, in milliseconds.
fn percentiles(name: &str, times: &Histogram<u64>) -> Line {
    let most = (times.len() as f64).log10().min(NINES_MAX);
    let step = f64::from(POINTS_PER_NINE).recip();
    let points = (0..)
        .map(|number| f64::from(number) * step)
        .take_while(|nines| *nines <= most)
        .map(|nines| flat(nines, times.value_at_quantile(1.0 - 10_f64.powf(-nines)) as f64 / 1e3));
    Line { name: name.to_owned(), points: points.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::figures::{Period, Time};

    #[test]
    fn percentiles_go_as_far_as_there_are_values() {
        let mut figures = Figures::default();
        (1..=1000).for_each(|value_ms| figures.record(Time::Ttlb, value_ms * 1000));
        let line = percentiles("ttlb", figures.time(Time::Ttlb).unwrap());
        assert_eq!((line.points.len(), line.points[0].y.round()), (61, 1.0));
        let at_99 = line.points[40];
        assert!((at_99.x - 2.0).abs() < 1e-9 && (at_99.y - 990.0).abs() < 1.0, "{at_99:?}");
    }

    #[test]
    fn a_page_has_its_charts_and_says_what_was_run() {
        let mut figures =
            Figures { period: Some(Period { begin_us: 500_000, end_us: 4_000_000 }), ..Figures::default() };
        figures.record(Time::Ttfb, 1500);
        figures.second(0).clients_begun = 2;
        figures.second(2).requests = 7;
        let html = page(&figures);
        assert_eq!(html.matches("<svg").count(), 4, "{html}");
        assert!(html.contains("<td>1.50ms</td>") && html.contains("Clients"));
        assert!(page(&Figures::default()).contains("</html>"), "also of nothing");
    }
}
