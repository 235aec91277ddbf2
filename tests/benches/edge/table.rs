//! Results of several rounds: as a text table with ratios and targets, and as JSON.
//!
//! A ratio compares Thalweg with a peer within one round, so that a drift in the machine's speed
//! affects both alike. Printed values are medians over the rounds, with the lowest and the highest.

use std::fmt;

use serde_json::{Value, json};

use crate::servers::Kind;

/// A measured quantity.
pub(crate) struct Metric {
    pub(crate) key: &'static str,
    pub(crate) name: &'static str,
    pub(crate) decimals: usize,
}

/// Median and range of values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    low: f64,
    high: f64,
    decimals: usize,
}

impl Spread {
    fn of(figures: impl IntoIterator<Item = f64>, decimals: usize) -> Option<Self> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (low, high) = (*figures.first()?, *figures.last()?);
        let (below, above) = (figures[(figures.len() - 1) / 2], figures[figures.len() / 2]);
        Some(Self { median: f64::midpoint(below, above), low, high, decimals })
    }

    fn json(&self) -> Value {
        json!({ "median": self.median, "low": self.low, "high": self.high })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, low, high, decimals } = self;
        write!(f, "{median:.decimals$} ({low:.decimals$}–{high:.decimals$})")
    }
}

/// A server's values: for each round, one per metric.
struct Row {
    kind: Kind,
    rounds: Vec<Vec<f64>>,
}

/// An upper bound for one of thalweg's values.
enum Target {
    /// At most this many times a peer's value.
    Of(Kind, f64),
    Most(f64),
}

/// The outcome of a target.
pub(crate) struct Verdict {
    pub(crate) text: String,
    pub(crate) met: bool,
    json: Value,
}

/// A comparison of servers in one case.
pub(crate) struct Table {
    case: &'static str,
    pub(crate) title: String,
    metrics: &'static [Metric],
    rows: Vec<Row>,
    pub(crate) verdicts: Vec<Verdict>,
}

impl Table {
    pub(crate) fn new(case: &'static str, title: String, metrics: &'static [Metric], kinds: &[Kind]) -> Self {
        let rows = kinds.iter().map(|kind| Row { kind: *kind, rounds: Vec::new() }).collect();
        Self { case, title, metrics, rows, verdicts: Vec::new() }
    }

    pub(crate) fn kinds(&self) -> Vec<Kind> {
        self.rows.iter().map(|row| row.kind).collect()
    }

    /// Adds a server's values in one round: one per metric, in order.
    pub(crate) fn add(&mut self, kind: Kind, figures: Vec<f64>) {
        assert_eq!(figures.len(), self.metrics.len(), "a round must have one value per metric");
        let row = self.rows.iter_mut().find(|row| row.kind == kind).expect("every server has a row");
        row.rounds.push(figures);
    }

    /// Requires thalweg's `metric` to be at most `times` the peer's.
    pub(crate) fn at_most_of(&mut self, metric: usize, peer: Kind, times: f64) {
        self.check_target(metric, &Target::Of(peer, times));
    }

    /// Requires thalweg's `metric` to be at most `most`.
    pub(crate) fn at_most(&mut self, metric: usize, most: f64) {
        self.check_target(metric, &Target::Most(most));
    }

    fn check_target(&mut self, at: usize, target: &Target) {
        let metric = &self.metrics[at];
        let (figure, most, wanted) = match *target {
            Target::Of(peer, times) => {
                (self.ratio(peer, at), times, format!("{} at most {times} of {}'s", metric.name, peer.name()))
            }
            Target::Most(most) => {
                (self.figure(Kind::Thalweg, at), most, format!("{} at most {most}", metric.name))
            }
        };
        let Some(figure) = figure else { return };
        let met = figure.median <= most;
        let word = if met { "met" } else { "MISSED" };
        let json = json!({
            "case": self.case, "of": self.title, "target": wanted, "most": most, "figure": figure.json(), "met": met,
        });
        self.verdicts.push(Verdict { text: format!("{wanted}: {figure}: {word}"), met, json });
    }

    fn row(&self, kind: Kind) -> Option<&Row> {
        self.rows.iter().find(|row| row.kind == kind)
    }

    fn figure(&self, kind: Kind, at: usize) -> Option<Spread> {
        let rounds = &self.row(kind)?.rounds;
        Spread::of(rounds.iter().map(|figures| figures[at]), self.metrics[at].decimals)
    }

    /// Returns thalweg's value divided by the peer's.
    fn ratio(&self, peer: Kind, at: usize) -> Option<Spread> {
        let (ours, theirs) = (&self.row(Kind::Thalweg)?.rounds, &self.row(peer)?.rounds);
        Spread::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours[at] / theirs[at]), 2)
    }

    fn peers(&self) -> impl Iterator<Item = Kind> {
        self.kinds().into_iter().filter(|kind| *kind != Kind::Thalweg)
    }

    fn json(&self) -> Value {
        let spreads = |spread: &dyn Fn(usize) -> Option<Spread>| -> Value {
            let of = |(at, metric): (usize, &Metric)| Some((metric.key.to_owned(), spread(at)?.json()));
            Value::Object(self.metrics.iter().enumerate().filter_map(of).collect())
        };
        let rounds = |row: &Row| json!(row.rounds);
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "server": row.kind.name(),
                    "figures": spreads(&|at| self.figure(row.kind, at)),
                    "ours_to_it": spreads(&|at| self.ratio(row.kind, at)),
                    "rounds": rounds(row),
                })
            })
            .collect();
        let keys: Vec<&str> = self.metrics.iter().map(|metric| metric.key).collect();
        json!({ "case": self.case, "of": self.title, "metrics": keys, "servers": rows })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![vec![String::new()]];
        lines[0].extend(self.metrics.iter().map(|metric| metric.name.to_owned()));
        let cells = |name: String, spread: &dyn Fn(usize) -> Option<Spread>| {
            let text = |at| spread(at).map_or_else(|| "-".to_owned(), |spread| spread.to_string());
            std::iter::once(name).chain((0..self.metrics.len()).map(text)).collect::<Vec<_>>()
        };
        for row in &self.rows {
            lines.push(cells(row.kind.name().to_owned(), &|at| self.figure(row.kind, at)));
        }
        for peer in self.peers() {
            lines.push(cells(format!("ours / {}", peer.name()), &|at| self.ratio(peer, at)));
        }
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..=self.metrics.len()).map(width).collect();
        writeln!(f, "{}: {}", self.case, self.title)?;
        for line in &lines {
            write!(f, "  {:<width$}", line[0], width = widths[0])?;
            for (cell, width) in line.iter().zip(&widths).skip(1) {
                write!(f, "  {cell:>width$}")?;
            }
            writeln!(f)?;
        }
        for verdict in &self.verdicts {
            writeln!(f, "  target: {}", verdict.text)?;
        }
        Ok(())
    }
}

/// Formats all tables and the conditions of the measurement as JSON.
pub(crate) fn json(conditions: &[(&str, String)], tables: &[Table]) -> Value {
    let conditions = conditions.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    json!({
        "conditions": Value::Object(conditions),
        "tables": tables.iter().map(Table::json).collect::<Vec<_>>(),
        "targets": tables.iter().flat_map(|table| &table.verdicts).map(|verdict| &verdict.json).collect::<Vec<_>>(),
    })
}
