//! Table of an audience: one line per path.

use hdrhistogram::Histogram;
use thalweg_load::figures::{Figures, Time};
use thalweg_units::table::{Column, Table};
use thalweg_units::{bit_rate, micros, or_dash};

/// The line for one path.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) path: &'a str,
    pub(super) prefix: String,
    pub(super) viewers: usize,
    /// Figures of the current viewers, then of all viewers so far.
    pub(super) figures: (Figures, Figures),
}

/// Renders the table. Latency is the median across current viewers; playing and stalled are current
/// counts; other columns cover all viewers so far.
pub(super) fn table(rows: &[Row<'_>]) -> Table<'static> {
    let names = ["viewers", "playing", "stalled", "stalls", "latency", "goodput", "errors"];
    let texts = [Column::text("path"), Column::text("prefix")];
    let mut table = Table::new(texts.into_iter().chain(names.map(Column::number)));
    for Row { path, prefix, viewers, figures: (present, all) } in rows {
        let median = |times: &Histogram<u64>| times.value_at_quantile(0.5);
        let seen = all.viewers.unwrap_or_default();
        table.push([
            (*path).to_owned(),
            prefix.clone(),
            viewers.to_string(),
            seen.now.playing.to_string(),
            seen.now.stalled.to_string(),
            format!("{:.1}%", seen.totals.stall_ratio() * 100.0),
            or_dash(present.time(Time::LiveLatency), |times| micros(median(times))),
            or_dash(all.goodput.as_ref(), |rates| bit_rate(median(rates) as f64 * 1e3)),
            all.errors_total().to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::time::Duration;
    use thalweg_load::ErrorKind;
    use thalweg_load::viewer::figures::Viewers;
    use thalweg_load::viewer::playhead::{Account, State};

    #[test]
    fn table_has_one_line_per_path() {
        let second = Duration::from_secs(1);
        let account = Account { stalls: 1, stalled: second, played: second * 7, ..Account::default() };
        let mut viewers = Viewers::default();
        viewers.add_viewer(Some(State::Playing), &account);
        viewers.add_viewer(Some(State::Stalled), &Account::default());
        let mut figures = Figures { viewers: Some(viewers), ..Figures::default() };
        figures.record(Time::LiveLatency, 2_000_000);
        figures.record_goodput(8000);
        figures.fail(ErrorKind::Status4xx, 1, "404");
        let row = |path, viewers, figures: Figures| Row {
            path,
            prefix: "198.18.1.0/24".to_owned(),
            viewers,
            figures: (figures.clone(), figures),
        };
        expect![[r#"
            path   prefix         viewers  playing  stalled  stalls  latency     goodput  errors
            lte    198.18.1.0/24        6        1        1   12.5%    2.00s  8.00Mbit/s       1
            fibre  198.18.1.0/24        0        0        0    0.0%        -           -       0
        "#]]
        .assert_eq(&table(&[row("lte", 6, figures), row("fibre", 0, Figures::default())]).to_string());
    }
}
