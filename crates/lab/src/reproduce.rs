//! Reproductions of published results: the published figures, the figures measured here by the same
//! method, and their ratios.
//!
//! - [`varnish`]: congestion control algorithms behind a cache.
//! - [`lumen`]: live segments delivered through a content network while being produced.
//! - [`unified`]: an origin on cloud storage.
//! - [`edgio`]: congestion control tuned by client network.
//! - [`outcomes`]: what clients received, measured at the server.
//!
//! **Invariant:** each reproduction follows the published method as far as it is described.
//! Parameters that the publication leaves open are printed with the figures, along with our
//! choices.

pub mod edgio;
pub mod lumen;
pub mod outcomes;
pub mod unified;
mod usage;
pub mod varnish;

use thalweg_units::table::{Column, Table};

/// A published result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Short name.
    pub name: &'static str,
    /// Publisher, year and subject.
    pub title: &'static str,
    /// Feature that the lab lacks for measuring this result; `None` if it can be measured.
    pub missing: Option<&'static str>,
}

/// All published results.
pub const ALL: [Published; 6] = [
    Published { name: "varnish", title: varnish::TITLE, missing: None },
    Published { name: "lumen", title: lumen::TITLE, missing: None },
    Published { name: "unified", title: unified::TITLE, missing: None },
    Published {
        name: "spotify",
        title: "Spotify, 2018: smoother streaming with BBR",
        missing: Some("the experiment engine, and playback of many viewers over paths"),
    },
    Published { name: "edgio", title: edgio::TITLE, missing: None },
    Published { name: "outcomes", title: outcomes::TITLE, missing: None },
];

/// Reason why a measurement ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EarlyEnd {
    /// A failure, with its cause.
    Failed(String),
    /// A signal, by number.
    Interrupted(i32),
}

impl EarlyEnd {
    /// Returns the reason as a sentence.
    pub(crate) fn words(&self) -> String {
        match self {
            EarlyEnd::Failed(why) => format!("Incomplete measurement: {why}."),
            EarlyEnd::Interrupted(signal) => {
                format!("Incomplete measurement: interrupted by signal {signal}.")
            }
        }
    }

    /// Returns the program's exit status: 128 plus the signal number after a signal, as in a shell,
    /// otherwise 1.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            EarlyEnd::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(1),
            EarlyEnd::Failed(_) => 1,
        }
    }
}

/// The published value of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PublishedValue {
    /// Between these two values.
    Between(f64, f64),
    /// Below this value.
    Under(f64),
    /// Above this value.
    Over(f64),
}

impl PublishedValue {
    /// Returns the lowest and highest value; equal for a bound.
    pub(crate) fn ends(self) -> (f64, f64) {
        match self {
            Self::Between(least, most) => (least, most),
            Self::Under(bound) | Self::Over(bound) => (bound, bound),
        }
    }

    /// Returns the value in words, with its numbers formatted by `number`.
    pub(crate) fn words(self, number: impl Fn(f64) -> String) -> String {
        match self {
            Self::Between(least, most) if least == most => number(least),
            Self::Between(least, most) => format!("{} to {}", number(least), number(most)),
            Self::Under(bound) => format!("under {}", number(bound)),
            Self::Over(bound) => format!("over {}", number(bound)),
        }
    }
}

/// A published ratio of times to those of one algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedRatio {
    /// Kernel name of the algorithm that the others are compared with.
    pub to: &'static str,
    /// The published value.
    pub published: PublishedValue,
}

/// A headline figure of a publication.
#[derive(Debug, Clone, PartialEq)]
pub struct Headline {
    /// Name of the figure, with its unit.
    pub what: String,
    /// The published value.
    pub published: PublishedValue,
    /// The value measured here; `None` if not measured.
    pub here: Option<f64>,
    /// The 95 % interval of `here`, if available.
    pub interval: Option<(f64, f64)>,
    /// Samples excluded from the figure, if any.
    pub caveat: Option<String>,
}

impl Headline {
    /// Returns the measured value divided by the published value. If the published value is a
    /// range, its nearer end counts, and the ratio is 1 inside the range.
    pub fn ratio(&self) -> Option<f64> {
        let here = self.here?;
        Some(match self.published {
            PublishedValue::Between(least, most) => here / here.clamp(least, most),
            PublishedValue::Under(bound) | PublishedValue::Over(bound) => here / bound,
        })
    }

    /// Formats the headline as one string per column in [`COLUMNS`].
    pub fn words(&self) -> [String; 4] {
        let published = self.published.words(number);
        let here = self.here.map_or_else(|| "not measured".to_owned(), number);
        let interval = self.interval.map(|(least, most)| format!(" ({} to {})", number(least), number(most)));
        let caveat = self.caveat.as_ref().map(|caveat| format!(" ({caveat})"));
        let here = [Some(here), interval, caveat].into_iter().flatten().collect();
        let ratio = self.ratio().map_or_else(|| "-".to_owned(), number);
        [self.what.clone(), published, here, ratio]
    }
}

/// Formats the samples excluded from a figure as "`count` of `all` `why`". Returns `None` if
/// `count` is 0.
pub(crate) fn left_out(count: u64, all: u64, why: &str) -> Option<String> {
    (count > 0).then(|| format!("{count} of {all} {why}"))
}

/// Column names of a headline table.
pub const COLUMNS: [&str; 4] = ["", "published", "here", "here / published"];

/// Formats a number with three significant digits, or with all digits of its integer part if they
/// are more.
pub(crate) fn number(value: f64) -> String {
    let digits_before = if value == 0.0 { 1 } else { value.abs().log10().floor() as i32 + 1 };
    let decimals = usize::try_from(3 - digits_before).unwrap_or(0);
    format!("{value:.decimals$}")
}

/// Renders a headline table for a terminal.
pub fn table(headlines: &[Headline]) -> String {
    let rows: Vec<_> = headlines.iter().map(|headline| headline.words().to_vec()).collect();
    columns(&COLUMNS, &rows)
}

/// Renders a table for a terminal, with the first column aligned left and the others right.
pub(crate) fn columns(names: &[&str], rows: &[Vec<String>]) -> String {
    let (first, rest) = names.split_at(1);
    let columns = first.iter().copied().map(Column::text).chain(rest.iter().copied().map(Column::number));
    let mut table = Table::new(columns);
    rows.iter().for_each(|row| table.push(row));
    table.to_string()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn headlines_render_as_a_table() {
        let headline = |published, here, interval| Headline {
            what: "latency, ms".to_owned(),
            published,
            here,
            interval,
            caveat: None,
        };
        let caveat = |headline, failed| Headline { caveat: left_out(failed, 100, "failed"), ..headline };
        let all = [
            headline(PublishedValue::Between(2.0, 3.0), Some(6.0), Some((4.5, 12.25))),
            headline(PublishedValue::Between(2.0, 3.0), Some(2.5), None),
            headline(PublishedValue::Between(500.0, 500.0), Some(250.0), None),
            caveat(headline(PublishedValue::Under(70.0), Some(0.21), None), 2),
            caveat(headline(PublishedValue::Over(50_000.0), None, None), 100),
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
