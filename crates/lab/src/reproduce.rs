//! The field's published results, measured again: what was published, what is measured here by the same method, and the ratio.
//!
//! - [`varnish`]: algorithms of congestion control behind a cache.
//! - [`lumen`]: live segments through a content network while they are made.
//! - [`edgio`]: congestion control tuned by client network.
//!
//! **Invariant:** a publication's method is followed as far as it says; what it leaves open, and what was chosen, is told beside
//! the figures.

pub mod edgio;
pub mod lumen;
pub mod varnish;

use std::fmt::Write as _;

/// A published system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Its short name.
    pub name: &'static str,
    /// Who published what.
    pub title: &'static str,
    /// What is missing here to measure it; `None` where nothing is.
    pub missing: Option<&'static str>,
}

/// All of them.
pub const ALL: [Published; 5] = [
    Published { name: "varnish", title: varnish::TITLE, missing: None },
    Published { name: "lumen", title: lumen::TITLE, missing: None },
    Published {
        name: "unified",
        title: "Unified Streaming, 2020: an origin on cloud storage",
        missing: Some("an origin on object storage"),
    },
    Published {
        name: "spotify",
        title: "Spotify, 2018: smoother streaming with BBR",
        missing: Some("the experiment engine, and playback of many viewers over paths"),
    },
    Published { name: "edgio", title: edgio::TITLE, missing: None },
];

/// What ended a measuring before all was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Early {
    /// A failure: of what, and why.
    Failed(String),
    /// A signal, by its number.
    Interrupted(i32),
}

impl Early {
    /// Why it is not all, in words.
    pub(crate) fn words(&self) -> String {
        match self {
            Early::Failed(why) => format!("Not all was measured: {why}."),
            Early::Interrupted(signal) => format!("Not all was measured: interrupted by signal {signal}."),
        }
    }

    /// The program's exit status: of a signal as the shell has it.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Early::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(1),
            Early::Failed(_) => 1,
        }
    }
}

/// What a publication says of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Said {
    /// It lies between these two.
    Between(f64, f64),
    /// It is less.
    Under(f64),
    /// It is more.
    Over(f64),
}

/// A headline figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Headline {
    /// What it is of, with its unit.
    pub what: String,
    /// What was published.
    pub published: Said,
    /// What was measured; `None` where it was not.
    pub here: Option<f64>,
    /// The 95 % interval of that, where it has one.
    pub interval: Option<(f64, f64)>,
    /// What it leaves out, where it does.
    pub but: Option<String>,
}

impl Headline {
    /// What was measured by what was published: by the nearer end of a range, within which it is 1; else by the bound.
    pub fn ratio(&self) -> Option<f64> {
        let here = self.here?;
        Some(match self.published {
            Said::Between(least, most) => here / here.clamp(least, most),
            Said::Under(bound) | Said::Over(bound) => here / bound,
        })
    }

    /// In words, of these [`COLUMNS`].
    pub fn words(&self) -> [String; 4] {
        let published = match self.published {
            Said::Between(least, most) if least == most => number(least),
            Said::Between(least, most) => format!("{} to {}", number(least), number(most)),
            Said::Under(bound) => format!("under {}", number(bound)),
            Said::Over(bound) => format!("over {}", number(bound)),
        };
        let here = self.here.map_or_else(|| "not measured".to_owned(), number);
        let interval = self.interval.map(|(least, most)| format!(" ({} to {})", number(least), number(most)));
        let but = self.but.as_ref().map(|but| format!(" ({but})"));
        let here = [Some(here), interval, but].into_iter().flatten().collect();
        let ratio = self.ratio().map_or_else(|| "-".to_owned(), number);
        [self.what.clone(), published, here, ratio]
    }
}

/// So many of all, if any: what a figure leaves out.
pub(crate) fn left_out(count: u64, all: u64, why: &str) -> Option<String> {
    (count > 0).then(|| format!("{count} of {all} {why}"))
}

/// The columns of headlines.
pub const COLUMNS: [&str; 4] = ["", "published", "here", "here / published"];

/// A number to three digits, none of those before the point left out.
pub(crate) fn number(value: f64) -> String {
    let digits_before = if value == 0.0 { 1 } else { value.abs().log10().floor() as i32 + 1 };
    let decimals = usize::try_from(3 - digits_before).unwrap_or(0);
    format!("{value:.decimals$}")
}

/// Headlines for a terminal.
pub fn table(headlines: &[Headline]) -> String {
    let rows: Vec<_> = headlines.iter().map(|headline| headline.words().to_vec()).collect();
    columns(&COLUMNS, &rows)
}

/// A table for a terminal: the first column to the left, the others to the right, each as wide as it has to be.
pub(crate) fn columns(names: &[&str], rows: &[Vec<String>]) -> String {
    let mut all = vec![names.iter().map(|name| (*name).to_owned()).collect()];
    all.extend_from_slice(rows);
    let width = |column: usize| all.iter().map(|row: &Vec<String>| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..names.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &all {
        let _ = write!(text, "{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn headlines_in_words() {
        let headline = |published, here, interval| Headline {
            what: "latency, ms".to_owned(),
            published,
            here,
            interval,
            but: None,
        };
        let but = |headline, failed| Headline { but: left_out(failed, 100, "failed"), ..headline };
        let all = [
            headline(Said::Between(2.0, 3.0), Some(6.0), Some((4.5, 12.25))),
            headline(Said::Between(2.0, 3.0), Some(2.5), None),
            headline(Said::Between(500.0, 500.0), Some(250.0), None),
            but(headline(Said::Under(70.0), Some(0.21), None), 2),
            but(headline(Said::Over(50_000.0), None, None), 100),
        ];
        expect![[r#"
                            published                              here  here / published
            latency, ms  2.00 to 3.00               6.00 (4.50 to 12.2)              2.00
            latency, ms  2.00 to 3.00                              2.50              1.00
            latency, ms           500                               250             0.500
            latency, ms    under 70.0           0.210 (2 of 100 failed)           0.00300
            latency, ms    over 50000  not measured (100 of 100 failed)                 -
        "#]]
        .assert_eq(&table(&all));
    }
}
