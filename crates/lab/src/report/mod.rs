//! Reports: a self-contained page with SVG charts, and the same data in machine-readable form.

pub mod cc;
mod chart;
pub mod edgio;
pub mod load;
pub mod lumen;
mod page;
pub mod unified;

pub use page::{Page, charts};

use serde::Serialize;

use crate::reproduce::{COLUMNS, EarlyEnd, Headline};

/// Starts the page of a publication with its headlines and our choices for open parameters.
fn published(title: &str, open: &str, headlines: &[Headline]) -> Page {
    let mut page = Page::new(title);
    if !headlines.is_empty() {
        page.table(&COLUMNS, &headlines.iter().map(|headline| headline.words().to_vec()).collect::<Vec<_>>());
    }
    page.paragraph("note", open);
    page
}

/// JSON form of the reason why a measurement ended early.
#[derive(Default, Serialize)]
struct DocumentEarly<'a> {
    failed: Option<&'a str>,
    interrupted_by_signal: Option<i32>,
}

impl<'a> From<Option<&'a EarlyEnd>> for DocumentEarly<'a> {
    fn from(early: Option<&'a EarlyEnd>) -> Self {
        match early {
            Some(EarlyEnd::Failed(why)) => Self { failed: Some(why), ..Self::default() },
            Some(EarlyEnd::Interrupted(signal)) => {
                Self { interrupted_by_signal: Some(*signal), ..Self::default() }
            }
            None => Self::default(),
        }
    }
}

/// JSON form of a headline. `here` is null if not measured; `but` describes the samples excluded
/// from the figure.
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
        let Headline { here, interval, caveat, .. } = headline.clone();
        DocumentHeadline { what, published, here, interval, ratio: headline.ratio(), but: caveat }
    };
    headlines.iter().map(document).collect()
}
