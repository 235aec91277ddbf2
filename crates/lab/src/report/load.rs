//! Page of a load: figures, percentiles of each kind of time, and charts over time.

use hdrhistogram::Histogram;
use thalweg_load::coarse::CoarseHistogram;
use thalweg_load::figures::{Figures, Second, Time};
use thalweg_load::report::{QUANTILES, summary, time_cells};

use super::chart::{Axes, Line, lines};
use super::page::Page;

/// Maximum nines on the percentile axis. With few values, the axis has fewer.
const NINES_MAX: f64 = 5.0;
/// Maximum points on a line over time.
const POINTS_MAX: u64 = 1000;
/// Number of points per nine on a percentile curve.
const POINTS_PER_NINE: u32 = 20;

/// Renders the page of one run, or of several merged runs.
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
    let row = |(time, histogram): (&Time, &Histogram<u64>)| {
        [time.name().to_owned()].into_iter().chain(time_cells(histogram)).collect::<Vec<_>>()
    };
    let rows = figures.times.iter().map(row);
    page.table(&columns, &rows.collect::<Vec<_>>());
}

/// Adds charts over all completely measured seconds.
fn seconds(page: &mut Page, figures: &Figures) {
    let Some(period) = figures.period else { return };
    let (first, end) = (period.begin_us.div_ceil(1_000_000), period.end_us / 1_000_000);
    if end <= first {
        return;
    }
    page.heading("Second by second");
    let step = (end - first).div_ceil(POINTS_MAX);
    let steps = || (first..end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    let line = |name: &str, of: &dyn Fn(&Second) -> f64| {
        let points = steps().map(|from| {
            let sum: f64 = figures.seconds.range(from..from + step).map(|(_, second)| of(second)).sum();
            ((from - first) as f64, sum / step.min(end - from) as f64)
        });
        Line::plain(name, points)
    };
    let axes = |title, y| Axes { title, x: "seconds", y };
    let counts =
        [line("requests", &|second| second.requests as f64), line("errors", &|second| second.errors as f64)];
    page.chart(&lines(axes("Requests and errors per second", "per second"), &counts));
    let goodput = [line("goodput", &|second| second.content_bytes as f64 * 8e-6)];
    page.chart(&lines(axes("Content received", "Mbit/s"), &goodput));
    let ttfb = steps().filter_map(|from| {
        let mut whole = CoarseHistogram::default();
        figures.seconds.range(from..from + step).for_each(|(_, second)| whole.merge(&second.ttfb));
        Some(((from - first) as f64, whole.quantile(0.95)? as f64 / 1e3))
    });
    let ttfb = Line::plain("p95", ttfb);
    if !ttfb.points.is_empty() {
        page.chart(&lines(axes("TTFB: 95th percentile", "ms"), &[ttfb]));
    }
    let (mut counted, mut present) = (0, 0.0);
    let points = steps().map(|from| {
        for (_, second) in figures.seconds.range(counted..from + step) {
            present += second.clients_begun as f64 - second.clients_ended as f64;
        }
        counted = from + step;
        ((from - first) as f64, present)
    });
    page.chart(&lines(axes("Clients", "clients"), &[Line::plain("clients", points)]));
}

/// Returns the curve of times in milliseconds over percentiles, on a logarithmic axis in nines.
fn percentiles(name: &str, times: &Histogram<u64>) -> Line {
    let most = (times.len() as f64).log10().min(NINES_MAX);
    let step = f64::from(POINTS_PER_NINE).recip();
    let points = (0..)
        .map(|number| f64::from(number) * step)
        .take_while(|nines| *nines <= most)
        .map(|nines| (nines, times.value_at_quantile(1.0 - 10_f64.powf(-nines)) as f64 / 1e3));
    Line::plain(name, points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_load::figures::{Period, Time};

    #[test]
    fn percentile_curve_ends_where_values_do() {
        let mut figures = Figures::default();
        (1..=1000).for_each(|value_ms| figures.record(Time::Ttlb, value_ms * 1000));
        let line = percentiles("ttlb", figures.time(Time::Ttlb).unwrap());
        assert_eq!((line.points.len(), line.points[0].y.round()), (61, 1.0));
        let at_99 = line.points[40];
        assert!((at_99.x - 2.0).abs() < 1e-9 && (at_99.y - 990.0).abs() < 1.0, "{at_99:?}");
    }

    #[test]
    fn page_has_charts_and_figures() {
        let mut figures =
            Figures { period: Some(Period { begin_us: 500_000, end_us: 4_000_000 }), ..Figures::default() };
        figures.record(Time::Ttfb, 1500);
        figures.second(0).clients_begun = 2;
        figures.second(2).requests = 7;
        assert_eq!(page(&figures).matches("<svg").count(), 4, "no TTFB over time");
        figures.second(2).ttfb.record(1500);
        let html = page(&figures);
        assert_eq!(html.matches("<svg").count(), 5, "{html}");
        assert!(html.contains("<td>1.50ms</td>") && html.contains("Clients"));
        assert!(page(&Figures::default()).contains("</html>"), "a page without figures");
    }
}
