//! Human-readable explanation of a prefix's state: history, thresholds and reason.

use std::fmt::Write as _;

use thalweg_record::Prefix;

use crate::arms::ArmGoodputs;
use crate::entry::{CoolingOff, Entry, Phase, Steered};
use crate::left_alone::LeftAlone;
use crate::reason::Reason;
use crate::sequential::{Interval, Mean};
use crate::settings::Settings;
use crate::state::State;
use crate::switchback::{Switchback, Voided};

/// Explains the state of `prefix` in a few lines of text.
pub fn explain(settings: &Settings, state: &State, prefix: Prefix) -> String {
    let mut text = String::new();
    let Some(entry) = state.entry(prefix) else {
        if LeftAlone::new(&settings.left_alone).meets(prefix) {
            return format!("{prefix}: {}: {}\n", Reason::LeftAlone, about(settings, Reason::LeftAlone));
        }
        return format!("{prefix}: not ranked in the last {} windows\n", settings.history_windows);
    };
    // Writing to a String cannot fail.
    let _ = lines(&mut text, settings, state, entry);
    text
}

fn lines(text: &mut String, settings: &Settings, state: &State, entry: &Entry) -> std::fmt::Result {
    let Settings { history_windows, duty_enter, duty_leave, flap_max, .. } = settings;
    writeln!(text, "{}: {}: {}", entry.prefix, entry.reason, about(settings, entry.reason))?;
    writeln!(text, "  windows     {}", entry.history.text(*history_windows))?;
    writeln!(
        text,
        "              oldest first: # in the bottom group, . not, - too few samples or connections"
    )?;
    let (observed, observed_min) = (entry.history.observed_windows(), settings.observed_windows_min);
    writeln!(text, "  observed    {observed} of {history_windows} windows; minimum {observed_min}")?;
    let duty_cycle = entry.history.duty_cycle();
    writeln!(
        text,
        "  duty cycle  {duty_cycle:.2}; enters at {duty_enter:.2} or more, leaves at {duty_leave:.2} or less"
    )?;
    writeln!(text, "  flap rate   {:.2}; enters at {flap_max:.2} or less", entry.history.flap_rate())?;
    if let Some(min_rtt_us) = entry.min_rtt_us {
        let (own, least) = (f64::from(min_rtt_us) / 1e3, settings.min_rtt_us_min as f64 / 1e3);
        writeln!(text, "  min rtt     {own:.1} ms; tried only for exploration below {least:.1} ms")?;
    }
    if let Some(bottom) = state.bottom_bytes_per_s {
        writeln!(text, "  group       up to {:.2} Mbit/s in the newest window", bottom * 8.0 / 1e6)?;
    }
    match &entry.phase {
        Phase::Idle => Ok(()),
        Phase::Steered(steered) => trial(text, settings, state, steered),
        Phase::CoolingOff(cooling) => cooled(text, settings, cooling),
    }
}

fn trial(text: &mut String, settings: &Settings, state: &State, steered: &Steered) -> std::fmt::Result {
    let evidence = &steered.evidence;
    if steered.holdout_millionths == 0 {
        return writeln!(text, "  proof       none: no connection is held out");
    }
    let alpha = settings.false_harm_share;
    if let Some(promise) = &steered.promise {
        let effect = interval(&promise.goodput, alpha, percent).unwrap_or_default();
        writeln!(text, "  within      {effect}, by an e-value of {:.0}", promise.ln_e.exp())?;
        low_goodputs(text, &promise.arms)?;
    }
    if let Some(switchback) = &steered.switchback {
        let (windows, windows_max) = (switchback.windows, settings.switchback_windows_max);
        let block_windows = switchback.block_windows;
        writeln!(
            text,
            "  proof       steered in one of two blocks of {block_windows} windows, for {windows} of {windows_max}"
        )?;
        return as_a_whole(text, settings, switchback);
    }
    if let Some(proof) = &steered.proof {
        as_a_whole(text, settings, &proof.switchback)?;
    }
    let share = f64::from(steered.holdout_millionths) / 1e4;
    let (windows, windows_max) = (steered.windows, settings.trial_windows_max);
    let since = if steered.proof.is_some() { "evidence since" } else { "on trial for" };
    writeln!(text, "  proof       {share} % held out, {since} {windows} windows of {windows_max}")?;
    let (of, held) = (evidence.steered, evidence.held_out);
    writeln!(
        text,
        "  clients     {of} steered, {held} held out; minimum {} each",
        settings.evidence_connections_min
    )?;
    if let Some(effect) = interval(&evidence.goodput, alpha, percent) {
        writeln!(text, "  goodput     {effect}; worthwhile from {}", percent(settings.effect_min))?;
    }
    low_goodputs(text, &evidence.arms)?;
    let points = |share: f64| format!("{:+.2} points", share * 100.0);
    if let Some(effect) = interval(&evidence.retransmitted, alpha, points) {
        writeln!(text, "  retransmits {effect}; at most {}", points(settings.retransmitted_rise_max))?;
    }
    if let Some((pool, own)) = state.pool.zip(steered.estimate(settings)) {
        let shrunken = pool.shrink(own);
        writeln!(
            text,
            "  shrunken    {} towards {} over {} prefixes; worthwhile with probability {:.2}, kept from {:.2}",
            percent(shrunken.effect),
            percent(pool.mean),
            pool.prefixes,
            shrunken.probability_above(settings.effect_min),
            settings.pooled_keep
        )?;
        if let Some(windows) = steered.likely_windows_left(settings) {
            let error = 1.0 - shrunken.probability_above(settings.effect_min);
            let error_max = 1.0 - settings.pooled_keep;
            writeln!(
                text,
                "  likely      wrong with probability {error:.2}, at most {error_max:.2}; leaves in {windows} windows without proof"
            )?;
        }
    }
    Ok(())
}

/// Writes the effect on the prefix as a whole.
fn as_a_whole(text: &mut String, settings: &Settings, switchback: &Switchback) -> std::fmt::Result {
    let Some(effect) = switchback.effect(settings.false_harm_share) else {
        writeln!(text, "  as a whole  no pair of blocks yet")?;
        return voided(text, &switchback.voided);
    };
    let interval = effect.interval.map_or_else(
        || "too few pairs for an interval".to_owned(),
        |it| ends(it, settings.false_harm_share, percent),
    );
    let (mean, pairs, e) = (percent(effect.mean), effect.pairs, switchback.ln_e_helped().exp());
    writeln!(text, "  as a whole  {mean} {interval}, over {pairs} pairs of blocks, by an e-value of {e:.1}")?;
    low_goodputs(text, &switchback.arms)?;
    voided(text, &switchback.voided)
}

/// Writes how many pairs do not count, by cause.
fn voided(text: &mut String, voided: &Voided) -> std::fmt::Result {
    if voided.total() == 0 {
        return Ok(());
    }
    let Voided { mixed, leftover, few } = voided;
    let causes = [
        (mixed, "decided by another rule, for example on an edge without the bundle"),
        (leftover, "with connections left over from the other arm"),
        (few, "with too few clients"),
    ];
    let causes = causes.iter().filter(|(pairs, _)| **pairs > 0);
    let causes: Vec<_> = causes.map(|(pairs, cause)| format!("{pairs} {cause}")).collect();
    writeln!(text, "  excluded    pairs of blocks: {}", causes.join(", "))
}

/// Writes the 10th percentiles of goodput on a line below the effect of the same trial.
fn low_goodputs(text: &mut String, arms: &ArmGoodputs) -> std::fmt::Result {
    let Some(p10) = arms.p10() else { return Ok(()) };
    let mbit = |rate: f64| rate * 8.0 / 1e6;
    writeln!(
        text,
        "              p10 of goodput: {:.2} Mbit/s steered, {:.2} Mbit/s held out",
        mbit(p10.steered),
        mbit(p10.held_out)
    )
}

/// Formats an effect on log goodput.
fn percent(ln: f64) -> String {
    format!("{:+.1} %", ln.exp_m1() * 100.0)
}

/// Formats a mean and its interval; `unit` formats each number.
fn interval(mean: &Mean, alpha: f64, unit: impl Fn(f64) -> String) -> Option<String> {
    let interval = mean.interval(alpha)?;
    Some(format!("{} {}", unit(mean.mean), ends(interval, alpha, unit)))
}

fn ends(interval: Interval, alpha: f64, unit: impl Fn(f64) -> String) -> String {
    let share = (1.0 - alpha) * 100.0;
    format!("[{}, {}], {share:.0} % at every look", unit(interval.low), unit(interval.high))
}

fn cooled(text: &mut String, settings: &Settings, cooling: &CoolingOff) -> std::fmt::Result {
    let CoolingOff { left, rounds, rounds_min, failures, .. } = cooling;
    writeln!(text, "  left        {left}: {}", about(settings, *left))?;
    writeln!(text, "  cool-off    withdrawn {rounds} rounds ago; may re-enter after {rounds_min}")?;
    writeln!(text, "  failed      {failures} consecutive trials")
}

/// Describes a reason, including the value of the setting behind it.
fn about(settings: &Settings, reason: Reason) -> String {
    match reason {
        Reason::Full => {
            format!("not steered, the limit of {} steered prefixes is reached", settings.steered_max)
        }
        reason => reason.text().to_owned(),
    }
}
