//! Self-contained HTML page, which can be opened from a file or sent by mail.

use std::fmt::Write as _;

/// Style sheet for light and dark colour schemes.
const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:68rem;margin:2rem auto;padding:0 1rem;color:#1a1f24;background:#fff}
h1{font-size:1.6rem}h2{margin-top:2.5rem;font-size:1.2rem;border-bottom:1px solid #d4dae0;padding-bottom:.3rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .8rem;text-align:right;white-space:nowrap;border-bottom:1px solid #e4e8ec}th{font-weight:600}
td:first-child,th:first-child{text-align:left}
.wins{font-weight:600}.note{color:#5b6670}.warning{color:#a4262c;font-weight:600}
figure{margin:1rem 0;overflow-x:auto}svg{max-width:100%;height:auto;background:#fff}
code{background:#f2f4f6;padding:.1rem .3rem}
@media(prefers-color-scheme:dark){body{background:#14181c;color:#dde3e9}h2{border-color:#39424b}th,td{border-color:#2b333a}
.note{color:#98a4af}.warning{color:#ff8f8a}code{background:#242b31}}";

/// A page, built from top to bottom.
#[derive(Debug)]
pub struct Page {
    html: String,
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
        Self { html }
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

    /// Adds an SVG chart.
    pub fn chart(&mut self, svg: &str) {
        let _ = writeln!(self.html, "<figure>{svg}</figure>");
    }

    /// Returns the complete page.
    pub fn finish(self) -> String {
        self.html + "</html>\n"
    }
}

fn escape(text: &str) -> String {
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
}
