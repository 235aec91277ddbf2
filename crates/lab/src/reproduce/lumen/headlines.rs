//! Headline figures: published values and those measured here.

use super::audience::Step;
use super::{Cache, Fill, Outcome, Quantiles, SEGMENT, SHORT};
use crate::reproduce::{Headline, PublishedValue, left_out};

/// Published upper bound on the 95th percentile of TTFB, in milliseconds.
pub const TTFB_P95_MS: PublishedValue = PublishedValue::Under(70.0);
/// Published TTFB at which nginx's lock causes a bump, in milliseconds.
pub const LOCK_MS: PublishedValue = PublishedValue::Between(500.0, 500.0);
/// Published upper bound on glass-to-glass latency.
const LATENCY_S: f64 = 5.0;
/// Published number of concurrent clients.
const CLIENTS: f64 = 50_000.0;
/// Published total throughput.
const GBIT_PER_S: f64 = 100.0;

/// Returns all headline figures, measured or not.
pub fn headlines(outcome: &Outcome) -> Vec<Headline> {
    let mut all = vec![wait(
        outcome,
        (Cache::Nginx, SHORT),
        "nginx's lock: median TTFB of joiners of a short fill, ms".to_owned(),
        LOCK_MS,
        |quantiles| Some(quantiles.p50),
    )];
    all.extend([SHORT, SEGMENT].map(|fill| {
        let what = format!("filling from memory: TTFB p95 of joiners ({}), ms", fill.name);
        wait(outcome, (Cache::Thalweg, fill), what, TTFB_P95_MS, |quantiles| quantiles.p95)
    }));
    all.push(of_script(outcome));
    all.extend(of_viewers(outcome));
    all.push(Headline {
        what: "Gbit/s of 5 MB segments, one edge".to_owned(),
        published: PublishedValue::Over(GBIT_PER_S),
        here: outcome.throughput.map(|sent| sent.gbit_per_s),
        interval: None,
        caveat: None,
    });
    all
}

/// Returns the headline for a quantile of the joiners' waits, with the share of late joiners.
fn wait(
    outcome: &Outcome,
    (cache, fill): (Cache, Fill),
    what: String,
    published: PublishedValue,
    quantile: impl Fn(Quantiles) -> Option<f64>,
) -> Headline {
    let here = Quantiles::of(&outcome.waits_ms(cache, fill)).and_then(quantile);
    let (late, all) = outcome.late(cache, fill);
    Headline { what, published, here, interval: None, caveat: left_out(late as u64, all as u64, "came late") }
}

/// Returns the headline for the clients of the wrk script.
fn of_script(outcome: &Outcome) -> Headline {
    let script = outcome.script.as_ref();
    Headline {
        what: "filling from memory: TTFB p95 of the wrk script's clients, ms".to_owned(),
        published: TTFB_P95_MS,
        here: script.and_then(|script| script.ttfb?.p95),
        interval: None,
        caveat: script.and_then(|script| left_out(script.errors, script.requests, "failed")),
    }
}

/// Returns the headlines for the largest number of viewers measured.
fn of_viewers(outcome: &Outcome) -> [Headline; 4] {
    let step = outcome.steps.iter().max_by_key(|step| step.viewers);
    let planned = outcome.plan.steps.iter().max().copied().unwrap_or_default();
    let smaller = step.filter(|step| step.viewers < planned);
    let smaller = smaller.map(|step| format!("with {} viewers, not {planned}", step.viewers));
    let headline =
        |what: &str, published, here: &dyn Fn(&Step) -> Option<f64>, lost: Option<String>| Headline {
            what: what.to_owned(),
            published,
            here: step.and_then(here),
            interval: None,
            caveat: smaller.clone().or(lost),
        };
    let lost = |all: u64, lost: u64| left_out(lost, all, "lost");
    let of_crowd = step.and_then(|step| lost(step.viewers, step.crowd.lost));
    let at_edge = step.and_then(|step| lost(outcome.plan.audience.at_edge, step.at_edge.lost));
    [
        headline(
            "filling from memory: TTFB p95 of live viewers at offsets, ms",
            TTFB_P95_MS,
            &|step| step.crowd.ttfb_p95_ms,
            of_crowd.clone(),
        ),
        headline(
            "live latency p99, source to playhead, s",
            PublishedValue::Under(LATENCY_S),
            &|step| Some(step.at_edge.latency_p99_ms? / 1e3),
            at_edge,
        ),
        headline(
            "viewers at once, stalled ones included",
            PublishedValue::Over(CLIENTS),
            &|step| Some((step.crowd.playing + step.crowd.stalled) as f64),
            of_crowd.clone(),
        ),
        headline(
            "Gbit/s to viewers",
            PublishedValue::Over(GBIT_PER_S),
            &|step| Some(step.crowd.gbit_per_s),
            of_crowd,
        ),
    ]
}
