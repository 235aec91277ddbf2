//! Results for people: charts as SVG in one page that needs nothing else, and the same data for programs.

pub mod cc;
mod chart;
pub mod edgio;
pub mod load;
pub mod lumen;
mod page;

pub use page::Page;

use serde::Serialize;

use crate::reproduce::{COLUMNS, Headline};

/// The beginning of a publication's page: its headlines, and what it left open.
fn published(title: &str, open: &str, headlines: &[Headline]) -> Page {
    let mut page = Page::new(title);
    page.table(&COLUMNS, &headlines.iter().map(|headline| headline.words().to_vec()).collect::<Vec<_>>());
    page.paragraph("note", open);
    page
}

/// A headline for programs. What was not measured is null; `but` is what the figure leaves out.
#[derive(Serialize)]
struct DocumentHeadline {
    what: String,
    published: String,
    here: Option<f64>,
    interval: Option<(f64, f64)>,
    ratio: Option<f64>,
    but: Option<String>,
}

fn document_headlines(headlines: &[Headline]) -> Vec<DocumentHeadline> {
    let document = |headline: &Headline| {
        let [what, published, ..] = headline.words();
        let Headline { here, interval, but, .. } = headline.clone();
        DocumentHeadline { what, published, here, interval, ratio: headline.ratio(), but }
    };
    headlines.iter().map(document).collect()
}
