//! The table of who suffers: a line for each path.

use std::fmt::Write;

use thalweg_lab::viewer::figures::Figures;

/// One path's part.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) path: &'a str,
    pub(super) prefix: String,
    pub(super) viewers: u64,
    pub(super) figures: Figures,
}

/// A head and a line for each. The latency is that of the last second, the rest of the whole time.
pub(super) fn table(rows: &[Row<'_>]) -> String {
    let mut out = format!(
        "{:<14}{:<24}{:>8}{:>9}{:>9}{:>9}{:>10}{:>13}{:>9}\n",
        "path", "prefix", "viewers", "playing", "stalled", "stalls", "latency", "goodput", "errors"
    );
    for Row { path, prefix, viewers, figures } in rows {
        let now = &figures.now;
        let latency = figures.live_latency_now.quantile(0.5);
        let latency = latency.map_or_else(|| "-".to_owned(), |time| format!("{:.1}s", time.as_secs_f64()));
        let goodput = figures.throughput.quantile(0.5);
        let goodput = goodput
            .map_or_else(|| "-".to_owned(), |kbit_per_s| format!("{:.1}Mbit/s", kbit_per_s as f64 / 1e3));
        let errors: u64 = figures.errors.values().sum();
        let _ = writeln!(
            out,
            "{path:<14}{prefix:<24}{viewers:>8}{:>9}{:>9}{:>8.1}%{latency:>10}{goodput:>13}{errors:>9}",
            now.playing,
            now.stalled,
            figures.account.stall_ratio() * 100.0,
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::time::Duration;
    use thalweg_lab::viewer::playhead::{Account, State};

    #[test]
    fn a_line_for_each_path() {
        let mut figures = Figures::default();
        let second = Duration::from_secs(1);
        let account = Account { stalls: 1, stalled: second, played: second * 7, ..Account::default() };
        figures.look(State::Playing, &account, Some(second * 2));
        figures.look(State::Stalled, &Account::default(), None);
        figures.throughput.record(1_000_000, second);
        figures.error("status 404");
        let row = |path, viewers, figures| Row { path, prefix: "198.18.1.0/24".to_owned(), viewers, figures };
        expect![[r#"
            path          prefix                   viewers  playing  stalled   stalls   latency      goodput   errors
            lte           198.18.1.0/24                  6        1        1    12.5%      2.0s    8.0Mbit/s        1
            fibre         198.18.1.0/24                  0        0        0     0.0%         -            -        0
        "#]]
        .assert_eq(&table(&[row("lte", 6, figures), row("fibre", 0, Figures::default())]));
    }
}
