//! Results of the reproduction: gains of pooled connections, and checks on them.

use std::collections::BTreeMap;

use serde::Serialize;
use thalweg_netem::emulation::Lateness;

use super::limit::Round;
use super::{Arm, Conditions, EarlyEnd, Figures, Plan, Run, Times};
use crate::cc::statistics::quantile_of_sorted;
use crate::reproduce::{Headline, PublishedValue};

/// Published gain in throughput at most, in percent.
pub const THROUGHPUT_PERCENT: f64 = 24.0;
/// Published fall of the response time at most, in percent.
pub const RESPONSE_PERCENT: f64 = 27.0;
/// Minimum throughput relative to nginx's.
pub const NGINX_SHARE_MIN: f64 = 0.9;

/// Results of a reproduction.
#[derive(Debug)]
pub struct Outcome {
    /// The measured plan.
    pub plan: Plan,
    /// Reason why measuring ended early; `None` if the plan was completed.
    pub early: Option<EarlyEnd>,
    /// Figures of all finished runs.
    pub runs: BTreeMap<Run, Figures>,
    /// The comparison with nginx.
    pub limit: Vec<Round>,
    /// Lateness of the emulation.
    pub lateness: Lateness,
}

/// What pooled connections change under some conditions. Each is a mean over rounds, as a share of
/// its value with a connection per request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// Rise in throughput, in percent.
    pub throughput_percent: f64,
    /// Fall of the mean response time of segments, in percent.
    pub response_percent: f64,
    /// Fall of the origin's processor time per byte of content, in percent.
    pub cpu_percent: f64,
}

/// A condition on the results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The condition.
    pub what: String,
    /// Whether the condition holds.
    pub holds: bool,
    /// Evidence for or against the condition, for display.
    pub evidence: String,
}

impl Outcome {
    /// Creates an outcome without measurements.
    pub fn new(plan: Plan) -> Self {
        let lateness = Lateness::default();
        Self { plan, early: None, runs: BTreeMap::new(), limit: Vec::new(), lateness }
    }

    /// Returns the finished runs of an arm under some conditions, in order of rounds.
    pub fn rounds(&self, conditions: Conditions, arm: Arm) -> Vec<&Figures> {
        let runs = self.runs.iter();
        let of = runs.filter(|(run, _)| run.conditions == conditions && run.arm == arm);
        of.map(|(_, figures)| figures).collect()
    }

    /// Returns the mean of a quantity over an arm's rounds; `None` if no round has it.
    pub fn mean(
        &self,
        conditions: Conditions,
        arm: Arm,
        of: impl Fn(&Figures) -> Option<f64>,
    ) -> Option<f64> {
        let values: Vec<f64> = self.rounds(conditions, arm).into_iter().filter_map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Returns what pooled connections change; `None` unless both arms were measured.
    pub fn gain(&self, conditions: Conditions) -> Option<Gain> {
        let rise = |of: &dyn Fn(&Figures) -> Option<f64>| {
            let [fresh, pooled] = Arm::ALL.map(|arm| self.mean(conditions, arm, of));
            Some((pooled? / fresh.filter(|fresh| *fresh > 0.0)? - 1.0) * 100.0)
        };
        Some(Gain {
            throughput_percent: rise(&|figures| Some(figures.mbit_per_s()))?,
            response_percent: -rise(&|figures| Some(figures.segments?.mean_ms))?,
            cpu_percent: -rise(&|figures| Some(figures.cpu_s_per_gb()))?,
        })
    }

    /// Returns the gains under all conditions that were measured.
    pub fn gains(&self) -> Vec<Gain> {
        self.plan.conditions().filter_map(|conditions| self.gain(conditions)).collect()
    }

    /// Returns the published figures and those measured here. The publication gives the largest
    /// gains.
    pub fn headlines(&self) -> [Headline; 2] {
        let largest = |of: fn(&Gain) -> f64| self.gains().iter().map(of).reduce(f64::max);
        let headline = |what: &str, published, here| Headline {
            what: what.to_owned(),
            published: PublishedValue::Between(published, published),
            here,
            interval: None,
            caveat: None,
        };
        [
            headline(
                "largest rise in throughput, %",
                THROUGHPUT_PERCENT,
                largest(|gain| gain.throughput_percent),
            ),
            headline(
                "largest fall of segments' response time, %",
                RESPONSE_PERCENT,
                largest(|gain| gain.response_percent),
            ),
        ]
    }

    /// Returns the median over rounds of the origin's throughput relative to nginx's.
    pub fn nginx_share(&self) -> Option<f64> {
        let mut ratios: Vec<f64> = self.limit.iter().map(Round::ratio).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        (!ratios.is_empty()).then(|| quantile_of_sorted(&ratios, 0.5))
    }

    /// Checks the results.
    pub fn checks(&self) -> Vec<Check> {
        let connections = |arm| {
            let runs = self.runs.iter().filter(|(run, _)| run.arm == arm);
            runs.map(|(_, figures)| figures.opened).sum::<u64>()
        };
        let [fresh, pooled] = Arm::ALL.map(connections);
        let errors = self.runs.values().map(|figures| figures.errors).sum::<u64>()
            + self.limit.iter().map(|round| round.errors).sum::<u64>();
        let first = self.runs.values().find_map(|figures| figures.failure.clone());
        let medians = |of: fn(&Gain) -> f64| {
            let mut all: Vec<f64> = self.gains().iter().map(of).collect();
            all.sort_unstable_by(f64::total_cmp);
            (!all.is_empty()).then(|| quantile_of_sorted(&all, 0.5))
        };
        let is_gain = |what: &str, median: Option<f64>| Check {
            what: what.to_owned(),
            holds: median.is_some_and(|percent| percent >= 0.0),
            evidence: median
                .map_or_else(not_measured, |percent| format!("median over conditions: {percent:+.1} %")),
        };
        let share = self.nginx_share();
        vec![
            is_gain("pooled connections do not lower throughput", medians(|gain| gain.throughput_percent)),
            is_gain("pooled connections shorten responses", medians(|gain| gain.response_percent)),
            Check {
                what: "pooled connections are fewer".to_owned(),
                holds: pooled > 0 && pooled < fresh,
                evidence: format!("{pooled} opened instead of {fresh}"),
            },
            Check {
                what: format!("throughput is at least {NGINX_SHARE_MIN} of nginx's"),
                holds: share.is_some_and(|share| share >= NGINX_SHARE_MIN),
                evidence: share.map_or_else(not_measured, |share| format!("median over rounds: {share:.2}")),
            },
            Check {
                what: "no request failed".to_owned(),
                holds: errors == 0,
                evidence: first.unwrap_or_else(|| format!("{errors} failed")),
            },
        ]
    }

    /// Returns the program's exit status: 128 plus the signal number after a signal; 1 if the plan
    /// was not completed or a check fails; otherwise 0.
    pub fn exit_status(&self) -> u8 {
        match &self.early {
            Some(early) => early.exit_status(),
            None => u8::from(!self.checks().iter().all(|check| check.holds)),
        }
    }
}

fn not_measured() -> String {
    "not measured".to_owned()
}

/// Averages response times over rounds. The percentiles are means of the rounds' percentiles.
pub(crate) fn mean_times(times: impl Iterator<Item = Times>) -> Option<Times> {
    let all: Vec<Times> = times.collect();
    let mean = |of: fn(&Times) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    (!all.is_empty()).then(|| Times {
        count: all.iter().map(|times| times.count).sum(),
        mean_ms: mean(|times| times.mean_ms),
        p50_ms: mean(|times| times.p50_ms),
        p95_ms: mean(|times| times.p95_ms),
        p99_ms: mean(|times| times.p99_ms),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::{Format, Store, plan};
    use super::*;

    /// Builds a complete quick outcome in which pooled connections gain 20 % of throughput and 25 %
    /// of response time.
    pub(crate) fn complete() -> Outcome {
        let mut outcome = Outcome::new(plan(true));
        for run in outcome.plan.runs(Store::Versitygw) {
            let is_pooled = run.arm == Arm::Pooled;
            let mean_ms = if is_pooled { 75.0 } else { 100.0 };
            let times = Times { count: 10, mean_ms, p50_ms: mean_ms, p95_ms: 200.0, p99_ms: 300.0 };
            let figures = Figures {
                requests: 20,
                content_bytes: if is_pooled { 120_000_000 } else { 100_000_000 },
                measured_s: 10.0,
                manifests: Some(times),
                segments: Some(times),
                opened: if is_pooled { 8 } else { 20 },
                cpu_s: 1.0,
                ..Figures::default()
            };
            outcome.runs.insert(run, figures);
        }
        let round = |share: f64| Round { origin_bytes_per_s: share * 1e8, nginx_bytes_per_s: 1e8, errors: 0 };
        outcome.limit = [0.5, 0.95, 1.2].map(round).to_vec();
        outcome
    }

    #[test]
    fn gains_are_relative_to_a_connection_per_request() {
        let outcome = complete();
        let gains = outcome.gains();
        assert_eq!(gains.len(), Format::ALL.len());
        assert!((gains[0].throughput_percent - 20.0).abs() < 1e-9);
        assert!((gains[0].response_percent - 25.0).abs() < 1e-9);
        assert!((gains[0].cpu_percent - 100.0 / 6.0).abs() < 1e-9);
        assert_eq!(outcome.headlines().map(|one| one.here.map(f64::round)), [Some(20.0), Some(25.0)]);
        assert_eq!((outcome.nginx_share(), outcome.exit_status()), (Some(0.95), 0));
    }

    #[test]
    fn each_check_can_fail() {
        let failing = |change: fn(&mut Outcome)| {
            let mut outcome = complete();
            change(&mut outcome);
            let checks = outcome.checks();
            let failing: Vec<_> = (0..checks.len()).filter(|index| !checks[*index].holds).collect();
            assert_eq!(outcome.exit_status(), u8::from(!failing.is_empty()));
            failing
        };
        assert_eq!(failing(|_| ()), [] as [usize; 0]);
        assert_eq!(failing(|outcome| outcome.runs.values_mut().for_each(|figures| figures.opened = 9)), [2]);
        assert_eq!(
            failing(|outcome| {
                let pooled = outcome.runs.iter_mut().filter(|(run, _)| run.arm == Arm::Pooled);
                pooled.for_each(|(_, figures)| figures.content_bytes = 1);
            }),
            [0]
        );
        assert_eq!(
            failing(|outcome| {
                let fresh = outcome.runs.iter_mut().filter(|(run, _)| run.arm == Arm::Fresh);
                fresh.for_each(|(_, figures)| {
                    figures.segments = Some(Times { mean_ms: 1.0, ..Times::default() });
                });
            }),
            [1]
        );
        assert_eq!(failing(|outcome| outcome.limit.truncate(1)), [3]);
        assert_eq!(failing(|outcome| outcome.limit.clear()), [3]);
        assert_eq!(failing(|outcome| outcome.limit[0].errors = 1), [4]);
        assert_eq!(failing(|outcome| outcome.runs.clear()), [0, 1, 2]);
    }
}
