//! Chart drawing as SVG, with plotters. The legend is above the plot, so it never hides a line.
//!
//! Colours are written for a white background. A style sheet in the SVG replaces them if the reader
//! prefers a dark colour scheme, both in a page and in a separate file.

use std::fmt::Write as _;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::{Axes, Line, Mark, Point, Shape};
use crate::report::page::escape;

/// Width of a chart in CSS pixels.
const WIDTH: u32 = 900;
/// Height of the plot and its axis labels.
const PLOT_HEIGHT: u32 = 350;
/// Height of the title, and of one row of the legend.
const TITLE_HEIGHT: i32 = 34;
const LEGEND_ROW: i32 = 20;
/// Space around the title, the legend and the plot.
const MARGIN: i32 = 14;
/// Length of a legend entry's line, and the space between entries.
const SWATCH: i32 = 20;
const BETWEEN_ENTRIES: i32 = 24;
/// Estimated width of a character of the legend, whose font size is 12 px.
const CHARACTER: i32 = 7;
const FONT: &str = "sans-serif";
/// Font sizes in plotters' unit, 1.24 of which are one CSS pixel.
const TITLE_FONT: i32 = 19;
const TEXT_FONT: i32 = 15;
/// Lengths of the dashes of a published value, and of the gaps between them.
const DASH: (i32, i32) = (7, 4);
/// Opacity of the bands around lines, and of bands of published values.
const BAND: f64 = 0.15;
const MARK_BAND: f64 = 0.2;

const PAPER: RGBColor = RGBColor(255, 255, 255);
const INK: RGBColor = RGBColor(26, 31, 36);
const GRID: RGBColor = RGBColor(226, 230, 234);
const AXIS: RGBColor = RGBColor(120, 130, 140);
/// Colour of published values.
const MARK: RGBColor = RGBColor(91, 102, 112);
/// Line colours that remain distinguishable with colour blindness (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
/// Colours that are replaced on a dark background, with their replacements.
const DARK: [(RGBColor, RGBColor); 7] = [
    (PAPER, RGBColor(20, 24, 28)),
    (INK, RGBColor(221, 227, 233)),
    (GRID, RGBColor(43, 51, 58)),
    (AXIS, RGBColor(138, 148, 158)),
    (MARK, RGBColor(178, 188, 198)),
    (COLOURS[0], RGBColor(60, 155, 220)),
    (COLOURS[1], RGBColor(240, 128, 48)),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plot<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
/// Error returned by plotters.
type Failed<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// Draws lines with their bands over published values; both axes start at zero.
pub(super) fn svg(axes: Axes<'_>, lines: &[Line], marks: &[Mark]) -> String {
    let mut svg = String::new();
    match draw(&mut svg, axes, lines, marks) {
        Ok(()) => svg.replacen('>', &format!(">{}", head(axes.title)), 1),
        // Put the error in a comment: a page that lacks one chart is better than no page.
        Err(error) => format!("<!-- {} -->", error.replace("--", "- -")),
    }
}

/// Returns the SVG's title and style sheet.
fn head(title: &str) -> String {
    let mut rules = String::new();
    for (light, dark) in DARK {
        let [light, dark] = [light, dark].map(|RGBColor(r, g, b)| format!("#{r:02X}{g:02X}{b:02X}"));
        let _ =
            write!(rules, "svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}");
    }
    format!("\n<title>{}</title>\n<style>@media(prefers-color-scheme:dark){{{rules}}}</style>", escape(title))
}

fn draw(svg: &mut String, axes: Axes<'_>, lines: &[Line], marks: &[Mark]) -> Result<(), String> {
    let entries: Vec<Entry<'_>> = entries(lines, marks);
    let rows = entries.last().map_or(0, |last| last.row + 1);
    let head_height = TITLE_HEIGHT + rows * LEGEND_ROW;
    let size = (WIDTH, PLOT_HEIGHT + head_height.unsigned_abs());
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    let drawn = (|| {
        area.fill(&PAPER)?;
        let (head, plot) = area.split_vertically(head_height);
        let style = (FONT, TITLE_FONT).into_font().color(&INK);
        head.draw(&Text::new(axes.title.to_owned(), (MARGIN, MARGIN), style))?;
        entries.iter().try_for_each(|entry| draw_entry(&head, entry))?;
        draw_plot(&plot, axes, lines, marks)?;
        area.present()
    })();
    drawn.map_err(|error: Failed<'_>| error.to_string())
}

/// An entry of the legend.
struct Entry<'a> {
    name: &'a str,
    key: Key,
    /// Position of its left end, in pixels.
    x: i32,
    row: i32,
}

/// What a legend entry shows.
#[derive(Clone, Copy)]
enum Key {
    Line(RGBColor),
    Value,
    Band,
}

/// Arranges the legend in rows.
fn entries<'a>(lines: &'a [Line], marks: &'a [Mark]) -> Vec<Entry<'a>> {
    let of_lines = lines.iter().zip(colours()).map(|(line, colour)| (&*line.name, Key::Line(colour)));
    let of_marks =
        marks.iter().map(|mark| (&*mark.name, if mark.shape.is_value() { Key::Value } else { Key::Band }));
    let (mut x, mut row, mut entries) = (MARGIN, 0, Vec::new());
    for (name, key) in of_lines.chain(of_marks) {
        let characters = i32::try_from(name.chars().count()).unwrap_or(i32::MAX / CHARACTER / 2);
        let end = x + SWATCH + MARGIN / 2 + characters * CHARACTER;
        if end > WIDTH.cast_signed() && x > MARGIN {
            (x, row) = (MARGIN, row + 1);
        }
        entries.push(Entry { name, key, x, row });
        x += SWATCH + MARGIN / 2 + characters * CHARACTER + BETWEEN_ENTRIES;
    }
    entries
}

/// Returns the colours of lines, in order.
fn colours() -> impl Iterator<Item = RGBColor> {
    COLOURS.into_iter().cycle()
}

fn draw_entry<'a>(area: &Area<'a>, entry: &Entry<'_>) -> Result<(), Failed<'a>> {
    let y = TITLE_HEIGHT + entry.row * LEGEND_ROW + LEGEND_ROW / 2;
    let line = |from, to| vec![(entry.x + from, y), (entry.x + to, y)];
    match entry.key {
        Key::Line(colour) => area.draw(&PathElement::new(line(0, SWATCH), colour.stroke_width(3)))?,
        Key::Value => {
            let (dash, gap) = DASH;
            area.draw(&PathElement::new(line(0, dash), MARK.stroke_width(2)))?;
            area.draw(&PathElement::new(line(dash + gap, dash + gap + dash), MARK.stroke_width(2)))?;
        }
        Key::Band => {
            let corners = [(entry.x, y - 6), (entry.x + SWATCH, y + 6)];
            area.draw(&Rectangle::new(corners, MARK.mix(MARK_BAND).filled()))?;
        }
    }
    let style = (FONT, TEXT_FONT).into_font().color(&INK);
    area.draw(&Text::new(entry.name.to_owned(), (entry.x + SWATCH + MARGIN / 2, y - 6), style))
}

fn draw_plot<'a>(area: &Area<'a>, axes: Axes<'_>, lines: &[Line], marks: &[Mark]) -> Result<(), Failed<'a>> {
    let most = |of: fn(&Point) -> f64, of_mark: fn(&Shape) -> f64| {
        let values = lines.iter().flat_map(|line| &line.points).map(of);
        let values = values.chain(marks.iter().map(|mark| of_mark(&mark.shape)));
        values.fold(0.0_f64, f64::max).max(f64::MIN_POSITIVE)
    };
    let x_end = most(|point| point.x, Shape::x_max) * 1.02;
    let y_end = most(|point| point.y.max(point.band.1), Shape::y_max) * 1.05;
    let mut plot = ChartBuilder::on(area)
        .margin(MARGIN)
        .margin_top(4)
        .margin_right(2 * MARGIN)
        .x_label_area_size(42)
        .y_label_area_size(62)
        .build_cartesian_2d(0.0..x_end, 0.0..y_end)?;
    plot.configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(&label)
        .y_label_formatter(&label)
        .label_style((FONT, TEXT_FONT, &INK))
        .axis_desc_style((FONT, TEXT_FONT, &INK))
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(AXIS)
        .draw()?;
    for mark in marks {
        draw_mark(&mut plot, &mark.shape, (x_end, y_end))?;
    }
    for (line, colour) in lines.iter().zip(colours()) {
        draw_band(&mut plot, &line.points, colour)?;
    }
    for (line, colour) in lines.iter().zip(colours()) {
        let points = line.points.iter().map(|point| (point.x, point.y));
        plot.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    Ok(())
}

/// Formats a number on an axis, without the noise of binary fractions.
fn label(value: &f64) -> String {
    ((value * 1e6).round() / 1e6).to_string()
}

/// Draws a published value up to the ends of the axes.
fn draw_mark<'a>(
    plot: &mut Plot<'a, '_>,
    shape: &Shape,
    (x_end, y_end): (f64, f64),
) -> Result<(), Failed<'a>> {
    let corners = match shape {
        Shape::X(span) => [(span.from, 0.0), (span.to, y_end)],
        Shape::Y(span) => [(0.0, span.from), (x_end, span.to)],
        Shape::Along(points) => {
            let band = Polygon::new(band(points), MARK.mix(MARK_BAND).filled());
            return plot.draw_series(std::iter::once(band)).map(drop);
        }
    };
    if shape.is_value() {
        let (dash, gap) = DASH;
        let line = DashedLineSeries::new(corners, dash, gap, MARK.stroke_width(2));
        return plot.draw_series(line).map(drop);
    }
    plot.draw_series(std::iter::once(Rectangle::new(corners, MARK.mix(MARK_BAND).filled()))).map(drop)
}

fn draw_band<'a>(plot: &mut Plot<'a, '_>, points: &[Point], colour: RGBColor) -> Result<(), Failed<'a>> {
    if points.iter().all(|point| point.band.0 == point.band.1) {
        return Ok(());
    }
    plot.draw_series(std::iter::once(Polygon::new(band(points), colour.mix(BAND).filled()))).map(drop)
}

/// Returns the outline of the band around points. Values below zero are raised to zero.
fn band(points: &[Point]) -> Vec<(f64, f64)> {
    let lower = points.iter().rev().map(|point| (point.x, point.band.0.max(0.0)));
    points.iter().map(|point| (point.x, point.band.1.max(0.0))).chain(lower).collect()
}
