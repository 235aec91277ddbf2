//! Charts of lines with bands, and of the published values to compare them with, as SVG.

mod draw;

use crate::cc::statistics::quantile_of_sorted;
use crate::reproduce::PublishedValue;

/// A point on a line, with the band around it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Lower and upper ends of the band.
    pub(super) band: (f64, f64),
}

/// A named line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
}

impl Line {
    /// Creates a line without a band.
    pub(super) fn plain(name: &str, points: impl Iterator<Item = (f64, f64)>) -> Self {
        Self { name: name.to_owned(), points: points.map(|(x, y)| Point { x, y, band: (y, y) }).collect() }
    }
}

/// Labels of a chart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axes<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
}

/// A published value, drawn in grey behind the lines.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mark {
    name: String,
    shape: Shape,
}

/// Where a published value is drawn.
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    /// Across the chart, at these values of the x axis.
    X(Span),
    /// Across the chart, at these values of the y axis.
    Y(Span),
    /// The bands of these points.
    Along(Vec<Point>),
}

/// A range of values. Both ends are equal for a single value.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Span {
    from: f64,
    to: f64,
}

impl From<PublishedValue> for Span {
    fn from(published: PublishedValue) -> Self {
        let (from, to) = published.ends();
        Self { from, to }
    }
}

impl Mark {
    /// Marks a value of the x axis. `unit` follows the value in the legend.
    pub(super) fn at_x(published: PublishedValue, unit: &str) -> Self {
        Self { name: Self::name(published, unit), shape: Shape::X(published.into()) }
    }

    /// Marks a value of the y axis.
    pub(super) fn at_y(published: PublishedValue, unit: &str) -> Self {
        Self { name: Self::name(published, unit), shape: Shape::Y(published.into()) }
    }

    /// Marks multiples of a value of the x axis, such as an algorithm's mean time. `unit` names
    /// that value.
    pub(super) fn times_x(published: PublishedValue, value: f64, unit: &str) -> Self {
        let (from, to) = published.ends();
        let shape = Shape::X(Span { from: from * value, to: to * value });
        Self { name: Self::name(published, unit), shape }
    }

    /// Marks multiples of a line's values.
    pub(super) fn times_line(published: PublishedValue, line: &Line, unit: &str) -> Self {
        let (from, to) = published.ends();
        let points = line.points.iter();
        let points = points.map(|point| Point { band: (point.y * from, point.y * to), ..*point });
        Self { name: Self::name(published, unit), shape: Shape::Along(points.collect()) }
    }

    fn name(published: PublishedValue, unit: &str) -> String {
        format!("published: {} {unit}", published.words(|value| value.to_string()))
    }
}

impl Shape {
    /// Returns whether this is a single value.
    fn is_value(&self) -> bool {
        matches!(self, Self::X(span) | Self::Y(span) if span.from == span.to)
    }

    /// Returns the largest value on the x axis.
    fn x_max(&self) -> f64 {
        match self {
            Self::X(span) => span.to,
            Self::Y(_) => 0.0,
            Self::Along(points) => points.iter().map(|point| point.x).fold(0.0, f64::max),
        }
    }

    /// Returns the largest value on the y axis.
    fn y_max(&self) -> f64 {
        match self {
            Self::X(_) => 0.0,
            Self::Y(span) => span.to,
            Self::Along(points) => points.iter().map(|point| point.band.1).fold(0.0, f64::max),
        }
    }
}

/// Draws lines with their bands; both axes start at zero.
pub(super) fn lines(axes: Axes<'_>, lines: &[Line]) -> String {
    draw::svg(axes, lines, &[])
}

/// Draws lines with their bands over published values; both axes start at zero.
pub(super) fn marked_lines(axes: Axes<'_>, lines: &[Line], marks: &[Mark]) -> String {
    draw::svg(axes, lines, marks)
}

/// Returns the cumulative share of samples; the total includes failed samples. The band contains
/// the entire true line with 95 % confidence (Dvoretzky, Kiefer and Wolfowitz).
pub(super) fn cumulative(name: &str, samples: &[f64], failed: usize) -> Line {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let count = (sorted.len() + failed) as f64;
    let margin = ((2.0 / 0.05_f64).ln() / (2.0 * count)).sqrt();
    let point = |x: f64, share: f64| Point {
        x,
        y: share,
        band: ((share - margin).max(0.0), (share + margin).min(1.0)),
    };
    let steps = sorted.iter().zip(0..).flat_map(|(value, number)| {
        let number = f64::from(number);
        [point(*value, number / count), point(*value, (number + 1.0) / count)]
    });
    Line { name: name.to_owned(), points: steps.collect() }
}

/// Returns the number of samples in each bin, as steps filled down to the axis. Bins are centred on
/// multiples of `bin`, so that times around a multiple are in one bin; the first one is half as
/// wide.
pub(super) fn histogram(name: &str, bin: f64, samples: &[f64]) -> Line {
    let mut counts = vec![0.0; 1];
    for sample in samples {
        // The cast is safe: times are never negative, and even an hour spans few bins.
        let index = (sample / bin).round() as usize;
        counts.resize(counts.len().max(index + 1), 0.0);
        counts[index] += 1.0;
    }
    let point = |edge: usize, count: f64| Point {
        x: (edge as f64 - 0.5).max(0.0) * bin,
        y: count,
        band: (0.0, count),
    };
    let steps =
        counts.iter().enumerate().flat_map(|(index, count)| [point(index, *count), point(index + 1, *count)]);
    let last = point(counts.len(), 0.0);
    Line { name: name.to_owned(), points: steps.chain([last]).collect() }
}

/// Returns the median of several series at each step, with a band between the quartiles. A series
/// counts as zero after its end.
pub(super) fn medians(name: &str, step: f64, series: &[Vec<f64>]) -> Line {
    let length = series.iter().map(Vec::len).max().unwrap_or_default();
    let points = (0..length).map(|index| {
        let mut values: Vec<f64> =
            series.iter().map(|one| one.get(index).copied().unwrap_or_default()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let at = |quantile| quantile_of_sorted(&values, quantile);
        Point { x: step * (index + 1) as f64, y: at(0.5), band: (at(0.25), at(0.75)) }
    });
    Line { name: name.to_owned(), points: points.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_has_lines_bands_and_labels() {
        let all = [cumulative("bbr", &[1.0, 2.0, 3.0], 0), cumulative("cubic", &[2.0, 4.0], 0)];
        let svg = lines(Axes { title: "t", x: "seconds", y: "share" }, &all);
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(
            ["bbr", "cubic", "seconds", "share", "\n0.5\n"].iter().all(|word| svg.contains(word)),
            "{svg}"
        );
        assert_eq!(svg.matches("<polygon").count(), 2, "one band for each line");
        assert!(svg.contains("<title>t</title>") && svg.contains("prefers-color-scheme:dark"));
        assert!(lines(Axes { title: "", x: "", y: "" }, &[]).starts_with("<svg"), "a chart without lines");
    }

    #[test]
    fn published_values_are_drawn_and_named() {
        let line = Line::plain("reno", [(0.0, 1.0), (1.0, 4.0)].into_iter());
        let axes = Axes { title: "t", x: "loss, %", y: "seconds" };
        let svg = |mark: Mark| marked_lines(axes, std::slice::from_ref(&line), &[mark]);
        let plain = lines(axes, std::slice::from_ref(&line));
        let band = svg(Mark::at_y(PublishedValue::Between(2.0, 3.0), "times bbr"));
        assert!(band.contains("published: 2 to 3 times bbr"), "{band}");
        // One rectangle in the plot, and one in the legend.
        assert_eq!(band.matches("<rect").count(), plain.matches("<rect").count() + 2);
        let value = svg(Mark::at_x(PublishedValue::Under(70.0), "ms"));
        assert!(value.contains("published: under 70 ms"), "{value}");
        assert!(value.matches("<polyline").count() > plain.matches("<polyline").count() + 10, "dashes");
        let along = Mark::times_line(PublishedValue::Between(2.0, 3.0), &line, "times bbr");
        assert_eq!((along.shape.x_max(), along.shape.y_max()), (1.0, 12.0));
        assert_eq!(svg(along).matches("<polygon").count(), 1);
        let times = Mark::times_x(PublishedValue::Between(2.0, 3.0), 1.5, "times bbr");
        assert_eq!(times.shape, Shape::X(Span { from: 3.0, to: 4.5 }));
    }

    #[test]
    fn legend_wraps_instead_of_leaving_the_chart() {
        let name = "a name that takes about a third of the width";
        let all: Vec<Line> = (0..4).map(|_| Line::plain(name, [(1.0, 1.0)].into_iter())).collect();
        let height = |svg: String| -> u32 {
            svg.split_once("height=\"").unwrap().1.split_once('"').unwrap().0.parse().unwrap()
        };
        let axes = Axes { title: "t", x: "x", y: "y" };
        let [few, many] = [&all[..2], &all[..]].map(|some| height(lines(axes, some)));
        assert!(few < many, "{few} {many}");
    }

    #[test]
    fn cumulative_share_reaches_one_unless_samples_failed() {
        let line = cumulative("", &[3.0, 1.0], 0);
        let points: Vec<_> = line.points.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(points, [(1.0, 0.0), (1.0, 0.5), (3.0, 0.5), (3.0, 1.0)]);
        assert_eq!(line.points[3].band.1, 1.0);
        assert_eq!(cumulative("", &[3.0, 1.0], 6).points[3].y, 0.25);
    }

    #[test]
    fn each_sample_is_in_its_bin() {
        let line = histogram("", 50.0, &[0.0, 24.9, 25.0, 74.9, 75.0]);
        let points: Vec<_> = line.points.iter().map(|point| (point.x, point.y)).collect();
        let steps =
            [(0.0, 2.0), (25.0, 2.0), (25.0, 2.0), (75.0, 2.0), (75.0, 1.0), (125.0, 1.0), (125.0, 0.0)];
        assert_eq!(points, steps);
        assert_eq!(line.points[4].band, (0.0, 1.0));
        assert_eq!(histogram("", 50.0, &[]).points.len(), 3, "a histogram without samples");
    }

    #[test]
    fn ended_series_count_as_zero_in_medians() {
        let line = medians("", 0.5, &[vec![1.0, 5.0], vec![3.0], vec![2.0]]);
        assert_eq!(line.points[0], Point { x: 0.5, y: 2.0, band: (1.5, 2.5) });
        assert_eq!(line.points[1].y, 0.0);
    }
}
