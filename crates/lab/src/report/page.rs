//! Self-contained HTML page, which can be opened from a file or sent by mail.

use std::fmt::Write as _;

/// Style sheet for light and dark colour schemes.
const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:68rem;margin:2rem auto;padding:0 1rem;color:#1a1f24;background:#fff}
h1{font-size:1.6rem}h2{margin-top:2.5rem;font-size:1.2rem;border-bottom:1px solid #d4dae0;padding-bottom:.3rem}
table{display:block;overflow-x:auto;border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .8rem;text-align:right;white-space:nowrap;border-bottom:1px solid #e4e8ec}th{font-weight:600}
td:first-child,th:first-child{text-align:left}
.wins{font-weight:600}.note{color:#5b6670}.warning{color:#a4262c;font-weight:600}
figure{margin:1rem 0;overflow-x:auto}svg{max-width:100%;height:auto}
code{background:#f2f4f6;padding:.1rem .3rem}
@media(prefers-color-scheme:dark){body{background:#14181c;color:#dde3e9}h2{border-color:#39424b}th,td{border-color:#2b333a}
.note{color:#98a4af}.warning{color:#ff8f8a}code{background:#242b31}}";

/// A page, built from top to bottom.
#[derive(Debug)]
pub struct Page {
    html: String,
    charts: usize,
}

impl Page {
    /// Creates an empty page with a title.
    pub fn new(title: &str) -> Self {
        let title = escape(title);
        let html = format!(
            "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n"
        );
        Self { html, charts: 0 }
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: &str) {
        let _ = writeln!(self.html, "<h2>{}</h2>", escape(text));
    }

    /// Adds a paragraph. `class` is a class in the style sheet, or empty.
    pub fn paragraph(&mut self, class: &str, text: &str) {
        let _ = writeln!(self.html, "<p class=\"{class}\">{}</p>", escape(text));
    }

    /// Adds a table. Cells that start with `*` are highlighted.
    pub fn table(&mut self, columns: &[&str], rows: &[Vec<String>]) {
        self.html += "<table><thead><tr>";
        for column in columns {
            let _ = write!(self.html, "<th>{}</th>", escape(column));
        }
        self.html += "</tr></thead><tbody>\n";
        for row in rows {
            self.html += "<tr>";
            for cell in row {
                let _ = match cell.strip_prefix('*') {
                    Some(text) => write!(self.html, "<td class=\"wins\">{}</td>", escape(text)),
                    None => write!(self.html, "<td>{}</td>", escape(cell)),
                };
            }
            self.html += "</tr>\n";
        }
        self.html += "</tbody></table>\n";
    }

    /// Adds an SVG chart. The chart's id in the page consists of its number and its title.
    pub fn chart(&mut self, svg: &str) {
        self.charts += 1;
        let title = between(svg, "<title>", "</title>").map_or("", |(title, _)| title);
        let _ = writeln!(self.html, "{FIGURE}{:02}-{}\">{svg}{FIGURE_END}", self.charts, slug(title));
    }

    /// Returns the complete page.
    pub fn finish(self) -> String {
        self.html + "</html>\n"
    }
}

/// Markup around a chart in a page: before the chart's id, and after the chart.
const FIGURE: &str = "<figure id=\"";
const FIGURE_END: &str = "</figure>";
/// Maximum length of the name returned by [`slug`], without the hyphen before the last word.
const SLUG_MAX: usize = 72;

/// Returns the charts of a finished page as SVG, each with its id, except those that could not be
/// drawn. Text in a page is escaped, so only [`Page::chart`] writes figures.
pub fn charts(page: &str) -> Vec<(&str, &str)> {
    let (mut rest, mut charts) = (page, Vec::new());
    while let Some((figure, after)) = between(rest, FIGURE, FIGURE_END) {
        charts.extend(figure.split_once("\">").filter(|(_, svg)| svg.starts_with("<svg")));
        rest = after;
    }
    charts
}

/// Returns the text between the first `start` and the next `end`, and the text after `end`.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<(&'a str, &'a str)> {
    text.split_once(start)?.1.split_once(end)
}

/// Returns a text's words in lower case, joined by hyphens, for a file name.
fn slug(text: &str) -> String {
    let text: String = text.to_lowercase().replace('%', " percent ");
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.');
    let words: Vec<_> = words.map(|word| word.trim_matches('.')).filter(|word| !word.is_empty()).collect();
    let mut name = String::new();
    for word in words {
        if name.len() + word.len() > SLUG_MAX {
            break;
        }
        name += if name.is_empty() { "" } else { "-" };
        name += word;
    }
    name
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut page = Page::new("a < b");
        page.table(&["x"], &[vec!["*<i>".to_owned()], vec!["&".to_owned()]]);
        let html = page.finish();
        assert!(html.contains("<title>a &lt; b</title>"));
        assert!(html.contains("<td class=\"wins\">&lt;i&gt;</td>") && html.contains("<td>&amp;</td>"));
    }

    #[test]
    fn charts_are_found_by_their_ids() {
        let mut page = Page::new("<figure id=\"x\">no chart</figure>");
        let svgs = ["<svg><title>Waits: 0.5 %, short</title></svg>", "<svg><title>Share</title></svg>"];
        page.chart(svgs[0]);
        page.paragraph("", "<figure id=\"y\">no chart</figure>");
        page.chart("<!-- cannot draw -->");
        page.chart(svgs[1]);
        let names = ["01-waits-0.5-percent-short", "03-share"];
        assert_eq!(charts(&page.finish()), [(names[0], svgs[0]), (names[1], svgs[1])]);
        assert!(slug(&"word ".repeat(100)).len() <= SLUG_MAX + 1);
        assert_eq!(charts("no chart"), []);
    }
}
