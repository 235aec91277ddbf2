//! Charts of lines with bands, drawn as SVG by plotters.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::cc::statistics::quantile_of_sorted;

/// Chart size in CSS pixels.
const SIZE: (u32, u32) = (900, 380);
/// Line colours that remain distinguishable with colour blindness (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

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

/// Error returned by plotters.
type Failed<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// Draws lines with their bands; both axes start at zero.
pub(super) fn lines(axes: Axes<'_>, lines: &[Line]) -> String {
    let mut svg = String::new();
    let drawn = draw(SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(), axes, lines);
    match drawn {
        Ok(()) => svg,
        // Put the error in a comment: a page that lacks one chart is better than no page.
        Err(error) => format!("<!-- {} -->", error.to_string().replace("--", "- -")),
    }
}

fn draw<'a>(
    area: DrawingArea<SVGBackend<'a>, Shift>,
    axes: Axes<'_>,
    lines: &[Line],
) -> Result<(), Failed<'a>> {
    area.fill(&WHITE)?;
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = |of: fn(&Point) -> f64| points().map(of).fold(0.0_f64, f64::max).max(f64::MIN_POSITIVE);
    let (x_max, y_max) = (most(|point| point.x), most(|point| point.y.max(point.band.1)));
    let mut chart = ChartBuilder::on(&area)
        .caption(axes.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..x_max * 1.02, 0.0..y_max * 1.05)?;
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(226, 230, 234))
        .axis_style(RGBColor(120, 130, 140))
        .draw()?;
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let (points, colour) = (&line.points, *colour);
        let lower = points.iter().rev().map(|point| (point.x, point.band.0));
        let band: Vec<_> = points.iter().map(|point| (point.x, point.band.1)).chain(lower).collect();
        chart.draw_series(std::iter::once(Polygon::new(band, colour.mix(0.15).filled())))?;
        chart
            .draw_series(LineSeries::new(
                points.iter().map(|point| (point.x, point.y)),
                colour.stroke_width(2),
            ))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 206, 212))
        .position(SeriesLabelPosition::LowerRight)
        .draw()?;
    area.present()
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

/// Returns the number of samples in each bin, starting at zero, as steps filled down to the axis.
pub(super) fn histogram(name: &str, bin: f64, samples: &[f64]) -> Line {
    let mut counts = vec![0.0; 1];
    for sample in samples {
        // The cast is safe: times are never negative, and even an hour spans few bins.
        let index = (sample / bin) as usize;
        counts.resize(counts.len().max(index + 1), 0.0);
        counts[index] += 1.0;
    }
    let point = |edge: usize, count: f64| Point { x: bin * edge as f64, y: count, band: (0.0, count) };
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
        assert!(["bbr", "cubic", "seconds", "share"].iter().all(|word| svg.contains(word)), "{svg}");
        assert_eq!(svg.matches("<polygon").count(), 2, "one band for each line");
        assert!(lines(Axes { title: "", x: "", y: "" }, &[]).starts_with("<svg"), "a chart without lines");
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
        let line = histogram("", 50.0, &[0.0, 49.9, 50.0, 120.0]);
        let points: Vec<_> = line.points.iter().map(|point| (point.x, point.y)).collect();
        let steps =
            [(0.0, 2.0), (50.0, 2.0), (50.0, 1.0), (100.0, 1.0), (100.0, 1.0), (150.0, 1.0), (150.0, 0.0)];
        assert_eq!(points, steps);
        assert_eq!(line.points[2].band, (0.0, 1.0));
        assert_eq!(histogram("", 50.0, &[]).points.len(), 3, "a histogram without samples");
    }

    #[test]
    fn ended_series_count_as_zero_in_medians() {
        let line = medians("", 0.5, &[vec![1.0, 5.0], vec![3.0], vec![2.0]]);
        assert_eq!(line.points[0], Point { x: 0.5, y: 2.0, band: (1.5, 2.5) });
        assert_eq!(line.points[1].y, 0.0);
    }
}
