//! Read-only views of a PoP or tenant as JSON: key figures, lists of prefixes, and explanations of
//! individual prefixes.

use serde_json::{Value, json};
use thalweg_control::{
    ArmGoodputs, Entry, Evidence, Interval, Phase, Settings, State, Steered, Switchback, explain,
};
use thalweg_record::Prefix;

use crate::store::PrefixChange;

/// Maximum number of prefixes in one response: all steered prefixes first, then those with the most
/// connections.
const PREFIXES_SHOWN_MAX: usize = 5_000;

/// Formats a tenant's key figures at a PoP.
pub(crate) fn scope(
    settings: &Settings,
    pop: &str,
    tenant: &str,
    state: &State,
    bundle: Option<u64>,
) -> Value {
    let count = |is: fn(&Steered) -> bool| state.steered().filter(|(_, steered)| is(steered)).count();
    let pool = state.pool.as_ref();
    json!({
        "pop": pop,
        "tenant": (!tenant.is_empty()).then_some(tenant),
        "window": state.window,
        "window_s": settings.window_s,
        "bundle": bundle,
        "steered": state.steered().count(),
        "on_trial": count(|steered| steered.promise.is_none()),
        "promising": count(|steered| steered.switchback.is_some()),
        "proved": count(|steered| steered.proof.is_some()),
        "explored": count(|steered| steered.is_explored),
        "paused_windows": state.guard.pause_windows,
        "prefixes": state.entries().len(),
        "bottom_bytes_per_s": state.bottom_bytes_per_s,
        "pool": pool.map(|pool| json!({
            "mean": pool.mean,
            "sd": pool.variance.sqrt(),
            "prefixes": pool.prefixes,
        })),
    })
}

/// Formats a tenant's prefixes and the thresholds that apply to them.
pub(crate) fn prefixes(settings: &Settings, state: &State) -> Value {
    let mut entries: Vec<_> = state.entries().iter().collect();
    if entries.len() > PREFIXES_SHOWN_MAX {
        let rank = |entry: &Entry| (entry.steered().is_some(), entry.connections);
        entries
            .sort_by(|one, other| rank(other).partial_cmp(&rank(one)).unwrap_or(std::cmp::Ordering::Equal));
        entries.truncate(PREFIXES_SHOWN_MAX);
        entries.sort_by_key(|entry| entry.prefix);
    }
    let rows: Vec<_> = entries.into_iter().map(|entry| prefix(settings, entry)).collect();
    let Settings { duty_enter, duty_leave, flap_max, .. } = settings;
    json!({
        "prefixes": rows,
        "of": state.entries().len(),
        "limits": { "duty_enter": duty_enter, "duty_leave": duty_leave, "flap_max": flap_max },
    })
}

fn prefix(settings: &Settings, entry: &Entry) -> Value {
    let steered = entry.steered();
    json!({
        "prefix": entry.prefix.to_string(),
        "duty": entry.history.duty_cycle(),
        "flap": entry.history.flap_rate(),
        "observed": entry.history.observed_windows(),
        "connections": entry.connections.round(),
        "steered": steered.is_some(),
        "reason": entry.reason.as_str(),
        "stage": steered.map(stage),
        "effect": steered.and_then(|steered| effect(settings, steered)),
    })
}

fn stage(steered: &Steered) -> &'static str {
    if steered.holdout_millionths == 0 {
        "by duty cycle alone"
    } else if steered.proof.is_some() {
        "helped as a whole"
    } else if steered.switchback.is_some() {
        "promising within the network"
    } else {
        "on trial"
    }
}

/// Formats the effect that the current stage measures: on the network as a whole if the prefix is
/// promising or proved, otherwise within the network.
fn effect(settings: &Settings, steered: &Steered) -> Option<Value> {
    match &steered.promise {
        Some(_) => as_a_whole(settings, steered),
        None => within(settings, steered),
    }
}

/// Formats the effect on goodput within the network, from the trial that made the prefix promising
/// or, while the prefix is on trial, from the evidence so far.
fn within(settings: &Settings, steered: &Steered) -> Option<Value> {
    let (goodput, arms) = match &steered.promise {
        Some(promise) => (&promise.goodput, &promise.arms),
        None => (&steered.evidence.goodput, &steered.evidence.arms),
    };
    Some(percentages(goodput.mean, goodput.interval(settings.false_harm_share)?, arms))
}

/// Formats the effect on goodput of the network as a whole. `None` with too few pairs of blocks.
fn as_a_whole(settings: &Settings, steered: &Steered) -> Option<Value> {
    let switchback = switchback(steered)?;
    let effect = switchback.effect(settings.false_harm_share)?;
    Some(percentages(effect.mean, effect.interval?, &switchback.arms))
}

/// Returns the switchback in progress, or otherwise the switchback on which the proof is based.
fn switchback(steered: &Steered) -> Option<&Switchback> {
    steered.switchback.as_ref().or(steered.proof.as_ref().map(|proof| &proof.switchback))
}

/// Formats an effect on log goodput, and its interval, as percentages, with the 10th percentiles of
/// goodput of both arms.
fn percentages(mean: f64, interval: Interval, arms: &ArmGoodputs) -> Value {
    let percent = |ln: f64| ln.exp_m1() * 100.0;
    let p10 = arms.p10().map(|p10| json!({ "steered": p10.steered, "held_out": p10.held_out }));
    json!({
        "percent": percent(mean),
        "low": percent(interval.low),
        "high": percent(interval.high),
        "p10": p10,
    })
}

/// Explains why a prefix is or is not steered, and lists its past changes.
pub(crate) fn explained(
    settings: &Settings,
    state: &State,
    prefix: Prefix,
    changes: &[PrefixChange],
) -> Value {
    let text = explain(settings, state, prefix);
    let entry = state.entry(prefix);
    let summary =
        text.lines().next().and_then(|line| line.rsplit_once(": ")).map(|(_, text)| text.to_owned());
    let changes: Vec<_> = changes
        .iter()
        .map(|it| json!({ "window": it.window, "unix_s": it.unix_s, "what": it.what, "reason": it.reason }))
        .collect();
    json!({
        "prefix": prefix.to_string(),
        "text": text,
        "reason": entry.map(|entry| entry.reason.as_str()),
        "said": summary,
        "history": entry.map(|entry| entry.history.text(settings.history_windows)),
        "entry": entry.and_then(|entry| evidence(settings, state, entry)),
        "changes": changes,
    })
}

/// Formats a trial's evidence.
fn evidence(settings: &Settings, state: &State, entry: &Entry) -> Option<Value> {
    let Phase::Steered(steered) = &entry.phase else { return None };
    let Evidence { steered: treated, held_out, retransmitted, .. } = &steered.evidence;
    let points = |share: f64| share * 100.0;
    let sent_again = retransmitted.interval(settings.false_harm_share).map(|interval| {
        json!({
            "points": points(retransmitted.mean),
            "low": points(interval.low),
            "high": points(interval.high),
        })
    });
    Some(json!({
        "treated": treated,
        "held_out": held_out,
        "stage": stage(steered),
        "goodput": effect(settings, steered),
        "within": within(settings, steered),
        "as_a_whole": as_a_whole(settings, steered),
        "pairs": switchback(steered).map(Switchback::pairs),
        "voided": switchback(steered).map(|switchback| switchback.voided),
        "retransmitted": sent_again,
        "likely": likely(settings, state, steered),
    }))
}

/// For a prefix that stays steered without proof because it is likely to gain, formats the
/// probability that the effect is too small, and the number of further windows for which the prefix
/// may stay. `None` for any other prefix.
fn likely(settings: &Settings, state: &State, steered: &Steered) -> Option<Value> {
    let windows_left = steered.likely_windows_left(settings)?;
    let probability = steered.probability_worthwhile(settings, state.pool)?;
    Some(json!({
        "error": 1.0 - probability,
        "error_max": 1.0 - settings.pooled_keep,
        "windows_left": windows_left,
    }))
}
