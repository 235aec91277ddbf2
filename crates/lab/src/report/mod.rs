//! Results for people: charts as SVG in one page that needs nothing else, and the same data for programs.

pub mod cc;
mod chart;
pub mod load;
pub mod lumen;
mod page;

pub use page::Page;

use crate::reproduce::{COLUMNS, Headline};

/// The beginning of a publication's page: its headlines, and what it left open.
fn published(title: &str, open: &str, headlines: &[Headline]) -> Page {
    let mut page = Page::new(title);
    page.table(&COLUMNS, &headlines.iter().map(|headline| headline.words().to_vec()).collect::<Vec<_>>());
    page.paragraph("note", open);
    page
}
