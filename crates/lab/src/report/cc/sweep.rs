//! Charts over loss, for each set of paths that differ only in loss: mean times, and their ratios
//! to those of one algorithm if a ratio was published.

use thalweg_netem::scenario::{Direction, Path};

use crate::cc::statistics::{mean, ratio};
use crate::cc::{Cell, Report, Request};
use crate::report::Page;
use crate::report::chart::{Axes, Line, Mark, Point, marked_lines};
use crate::reproduce::PublishedRatio;

/// Adds the charts over loss for one kind of request.
pub(super) fn charts(page: &mut Page, report: &Report, request: Request, published: Option<PublishedRatio>) {
    for set in sets(report) {
        let sweep = Sweep { report, request, set };
        if sweep.has_two_losses() {
            page.heading(&format!("Loss, {}: {}", request.name(), sweep.names()));
            sweep.mean_times(page, published);
            published.into_iter().for_each(|published| sweep.ratios(page, published));
        }
    }
}

/// Returns the sets of paths that differ only in loss, each sorted by loss.
fn sets(report: &Report) -> Vec<Vec<usize>> {
    let mut sets: Vec<Vec<usize>> = Vec::new();
    let paths = &report.plan.scenario.paths;
    for (index, path) in paths.iter().enumerate() {
        match sets.iter_mut().find(|set| differ_in_loss_alone(&paths[set[0]], path)) {
            Some(set) => set.push(index),
            None => sets.push(vec![index]),
        }
    }
    let loss = |path: &usize| paths[*path].down.loss.mean();
    sets.iter_mut().for_each(|set| set.sort_by(|a, b| loss(a).total_cmp(&loss(b))));
    sets
}

fn differ_in_loss_alone(one: &Path, other: &Path) -> bool {
    let down = Direction { loss: one.down.loss, ..other.down.clone() };
    (&one.down, &one.up) == (&down, &other.up)
}

/// One kind of request over paths that differ only in loss.
struct Sweep<'a> {
    report: &'a Report,
    request: Request,
    /// Indices of the paths, in ascending order of loss.
    set: Vec<usize>,
}

impl Sweep<'_> {
    fn names(&self) -> String {
        let name = |path: &usize| self.report.plan.scenario.paths[*path].name.as_str();
        self.set.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    fn loss_percent(&self, path: usize) -> f64 {
        self.report.plan.scenario.paths[path].down.loss.mean() * 100.0
    }

    /// Returns whether an algorithm has samples at two different losses.
    fn has_two_losses(&self) -> bool {
        self.report
            .plan
            .algorithms
            .iter()
            .any(|algorithm| self.times(algorithm).points.windows(2).any(|two| two[0].x != two[1].x))
    }

    /// Returns the times of an algorithm on a path; `None` without samples.
    fn seconds(&self, path: usize, algorithm: &str) -> Option<Vec<f64>> {
        let cell = Cell { path, request: self.request, algorithm: algorithm.to_owned() };
        Some(self.report.seconds_of(&cell)).filter(|seconds| !seconds.is_empty())
    }

    /// Returns the mean times of an algorithm with their intervals.
    fn times(&self, algorithm: &str) -> Line {
        let point = |path: &usize| {
            let mean = mean(&self.seconds(*path, algorithm)?);
            let margin = mean.margin.unwrap_or_default();
            let band = ((mean.mean - margin).max(0.0), mean.mean + margin);
            Some(Point { x: self.loss_percent(*path), y: mean.mean, band })
        };
        Line { name: algorithm.to_owned(), points: self.set.iter().filter_map(point).collect() }
    }

    fn mean_times(&self, page: &mut Page, published: Option<PublishedRatio>) {
        let all: Vec<Line> =
            self.report.plan.algorithms.iter().map(|algorithm| self.times(algorithm)).collect();
        let mark = published.map(|published| {
            let unit = format!("times {}", published.to);
            Mark::times_line(published.published, &self.times(published.to), &unit)
        });
        let title = format!("{}: mean time to fetch, with its 95 % interval", self.request.name());
        let axes = Axes { title: &title, x: "loss, %", y: "seconds" };
        page.chart(&marked_lines(axes, &all, mark.as_slice()));
    }

    /// Adds the chart of the ratios, each with Fieller's interval. The algorithm that the others
    /// are compared with is a line at 1.
    fn ratios(&self, page: &mut Page, published: PublishedRatio) {
        let line = |algorithm: &String| {
            let is_divisor = algorithm == published.to;
            let point = |path: &usize| {
                let found = ratio(&self.seconds(*path, algorithm)?, &self.seconds(*path, published.to)?);
                let band = found.interval.filter(|_| !is_divisor).unwrap_or((found.ratio, found.ratio));
                Some(Point { x: self.loss_percent(*path), y: found.ratio, band })
            };
            let name =
                if is_divisor { published.to.to_owned() } else { format!("{algorithm} / {}", published.to) };
            Line { name, points: self.set.iter().filter_map(point).collect() }
        };
        let size = self.request.name();
        let title = format!("{size}: mean time divided by that of {}, with its 95 % interval", published.to);
        let axes = Axes { title: &title, x: "loss, %", y: "ratio" };
        let mark = Mark::at_y(published.published, &format!("times {}", published.to));
        let all: Vec<Line> = self.report.plan.algorithms.iter().map(line).collect();
        page.chart(&marked_lines(axes, &all, &[mark]));
    }
}
