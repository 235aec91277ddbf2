//! The table of who suffers: a line for each path.

use std::fmt::Write;

use thalweg_lab::load::figures::{Figures, Time};
use thalweg_lab::load::report::{bit_rate, time_text};

/// One path's part.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) path: &'a str,
    pub(super) prefix: String,
    pub(super) viewers: usize,
    /// Of those who are there, and of all.
    pub(super) figures: (Figures, Figures),
}

/// A head and a line for each. The latency is the median of those who are there, since they came; the rest is of the whole time, but
/// for how many play and stall now.
pub(super) fn table(rows: &[Row<'_>]) -> String {
    let mut out = format!(
        "{:<14}{:<24}{:>8}{:>9}{:>9}{:>9}{:>10}{:>13}{:>9}\n",
        "path", "prefix", "viewers", "playing", "stalled", "stalls", "latency", "goodput", "errors"
    );
    for Row { path, prefix, viewers, figures: (present, all) } in rows {
        let latency =
            present.time(Time::LiveLatency).map(|times| time_text(times.value_at_quantile(0.5) as f64));
        let goodput = all.goodput.as_ref().map(|rates| bit_rate(rates.value_at_quantile(0.5) as f64 * 1e3));
        let seen = all.viewers.unwrap_or_default();
        let _ = writeln!(
            out,
            "{path:<14}{prefix:<24}{viewers:>8}{:>9}{:>9}{:>8.1}%{:>10}{:>13}{:>9}",
            seen.now.playing,
            seen.now.stalled,
            seen.totals.stall_ratio() * 100.0,
            latency.as_deref().unwrap_or("-"),
            goodput.as_deref().unwrap_or("-"),
            all.errors_total(),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::time::Duration;
    use thalweg_lab::load::ErrorKind;
    use thalweg_lab::viewer::figures::Viewers;
    use thalweg_lab::viewer::playhead::{Account, State};

    #[test]
    fn a_line_for_each_path() {
        let second = Duration::from_secs(1);
        let account = Account { stalls: 1, stalled: second, played: second * 7, ..Account::default() };
        let mut viewers = Viewers::default();
        viewers.look(Some(State::Playing), &account);
        viewers.look(Some(State::Stalled), &Account::default());
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
            path          prefix                   viewers  playing  stalled   stalls   latency      goodput   errors
            lte           198.18.1.0/24                  6        1        1    12.5%     2.00s   8.00Mbit/s        1
            fibre         198.18.1.0/24                  0        0        0     0.0%         -            -        0
        "#]]
        .assert_eq(&table(&[row("lte", 6, figures), row("fibre", 0, Figures::default())]));
    }
}
