//! Paired paths: goodput under control, compared with all CUBIC and all BBR on the same
//! connections.
//!
//! `paths.csv` states which of its figures are measured. A connection's noise is the same in all
//! three cases, so only the decisions cause differences.

use super::*;

/// Number of windows in each part of a simulation: 2 hours.
pub(super) const PART_WINDOWS: u64 = 24;

/// The three cases of a [`Score`].
const CASES: [&str; 3] = ["control", "all CUBIC", "all BBR"];

/// Goodput and log goodput in each of [`CASES`], summed over connections.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Score {
    connections: f64,
    ln_goodput: [f64; 3],
    goodput: [f64; 3],
    /// Total log goodput lost by steered connections on paths where BBR does harm.
    lost: f64,
}

impl Score {
    /// Adds a connection with this log goodput under CUBIC.
    pub(super) fn add(&mut self, ln_goodput: f64, gain: f64, is_steered: bool) {
        self.connections += 1.0;
        self.lost -= if is_steered { gain.min(0.0) } else { 0.0 };
        for (at, has_gain) in [is_steered, false, true].into_iter().enumerate() {
            let ln_goodput = ln_goodput + if has_gain { gain } else { 0.0 };
            self.ln_goodput[at] += ln_goodput;
            self.goodput[at] += ln_goodput.exp();
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.connections += other.connections;
        self.lost += other.lost;
        for at in 0..CASES.len() {
            self.ln_goodput[at] += other.ln_goodput[at];
            self.goodput[at] += other.goodput[at];
        }
    }

    /// Returns how much better control is than the better of "all CUBIC" and "all BBR": in mean log
    /// goodput, and in the logarithm of total goodput.
    fn gains(&self) -> [f64; 2] {
        let [control, cubic, bbr] = self.ln_goodput.map(|sum| sum / self.connections);
        let [control_sum, cubic_sum, bbr_sum] = self.goodput.map(f64::ln);
        [control - cubic.max(bbr), control_sum - cubic_sum.max(bbr_sum)]
    }

    /// Returns the log goodput lost by steering paths where BBR does harm, averaged over the
    /// connections of all paths.
    fn cost(&self) -> f64 {
        self.lost / self.connections
    }
}

/// Returns the change of log goodput under BBR on each path.
fn gains() -> Vec<f64> {
    let lines = include_str!("paths.csv").lines().filter(|line| !line.starts_with('#')).skip(1);
    let percent = |line: &str| line.rsplit_once(',').unwrap().1.parse::<f64>().unwrap();
    lines.map(|line| (percent(line) / 100.0).ln_1p()).collect()
}

/// Returns the gain of the prefix with this index. Each path has a /24 and a /56.
pub(super) fn gain(at: u32) -> f64 {
    let gains = gains();
    gains[(at / 2) as usize % gains.len()]
}

/// Simulates the paths, and prints the gains relative to "all CUBIC". Returns the score of each
/// part.
fn run(prefixes: u32, clients: f64, parts: u64) -> Vec<Score> {
    let plan = Plan {
        truth: Truth::Paired,
        prefixes,
        clients,
        windows: parts * PART_WINDOWS,
        kept: 0.1,
        min_rtt_us: 40_000,
        retransmitted: None,
        seed: 1,
    };
    let verdicts = plan.run();
    let Verdicts { trials, promising, proved, left, scores, .. } = &verdicts;
    println!("{trials} trials, {promising} promising, {proved} helped, withdrawn: {left:?}");
    let percent = |ln: f64| ln.exp_m1() * 100.0;
    for (at, score) in scores.iter().enumerate().filter(|(at, _)| at % 4 == 3 || *at < 4) {
        let over_cubic = |sums: [f64; 3]| [0, 2].map(|case| percent(sums[case] - sums[1]));
        let [control, bbr] = over_cubic(score.ln_goodput.map(|sum| sum / score.connections));
        let [control_sum, bbr_sum] = over_cubic(score.goodput.map(f64::ln));
        println!(
            "{:>3} h: log goodput {control:+.1} % ({} {bbr:+.1} %), total goodput {control_sum:+.1} % ({bbr_sum:+.1} %), lost where BBR harms {:.2} %",
            (at as u64 + 1) * PART_WINDOWS * 300 / 3_600,
            CASES[2],
            percent(score.cost()),
        );
    }
    verdicts.scores
}

/// Asserts that over the whole simulation, control is better than both "all CUBIC" and "all BBR",
/// that trials cost at most `cost_max` in any part, and that this cost falls to a fifth.
fn check(scores: &[Score], cost_max: f64) {
    let mut whole = Score::default();
    for score in scores {
        assert!(score.gains().iter().all(|gain| *gain >= -cost_max), "{score:?}");
        assert!(score.cost() <= cost_max, "{score:?}");
        whole.merge(*score);
    }
    assert!(whole.gains().iter().all(|gain| *gain > 0.0), "{whole:?}");
    let (first, last) = (&scores[0], &scores[scores.len() - 1]);
    assert!(last.gains().iter().all(|gain| *gain > 0.0), "{last:?}");
    assert!(first.cost() > 0.0 && last.cost() < 0.2 * first.cost(), "{first:?} {last:?}");
}

#[test]
fn paths_have_the_measured_numbers_of_gains_and_losses() {
    let count = |is: fn(f64) -> bool| gains().into_iter().filter(|gain| is(gain.exp_m1())).count();
    assert_eq!([count(|it| it > 0.1), count(|it| it.abs() <= 0.1), count(|it| it < -0.1)], [10; 3]);
}

#[test]
fn control_is_not_worse_than_all_cubic_or_all_bbr() {
    check(&run(60, 12.0, 24), 0.05);
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn long_week_of_control_is_not_worse_than_all_cubic_or_all_bbr() {
    check(&run(600, 30.0, 84), 0.05);
}
