//! Results for people: charts as SVG in one page that needs nothing else, and the same data for programs.

pub mod cc;
mod chart;
pub mod load;
mod page;

pub use page::Page;
