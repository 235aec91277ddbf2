//! What is known of a prefix, for people: its history, the thresholds that it was compared with, and why.

use std::fmt::Write as _;

use thalweg_record::Prefix;

use crate::entry::{CoolingOff, Entry, Phase, Steered};
use crate::left_alone::LeftAlone;
use crate::reason::Reason;
use crate::sequential::Mean;
use crate::settings::Settings;
use crate::state::State;

/// The text about `prefix`, some lines.
pub fn explain(settings: &Settings, state: &State, prefix: Prefix) -> String {
    let mut text = String::new();
    let Some(entry) = state.entry(prefix) else {
        if LeftAlone::new(&settings.left_alone).meets(prefix) {
            return format!("{prefix}: {}: {}\n", Reason::LeftAlone, about(settings, Reason::LeftAlone));
        }
        return format!("{prefix}: it was ranked in none of the last {} windows\n", settings.history_windows);
    };
    // A String takes every write.
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
    writeln!(text, "  observed    {observed} of {history_windows} windows; asked for: {observed_min}")?;
    let duty_cycle = entry.history.duty_cycle();
    writeln!(text, "  duty cycle  {duty_cycle:.2}; enters from {duty_enter:.2}, leaves at {duty_leave:.2}")?;
    writeln!(text, "  flap rate   {:.2}; enters up to {flap_max:.2}", entry.history.flap_rate())?;
    if let Some(min_rtt_us) = entry.min_rtt_us {
        let (own, least) = (f64::from(min_rtt_us) / 1e3, settings.min_rtt_us_min as f64 / 1e3);
        writeln!(text, "  min rtt     {own:.1} ms; left alone below {least:.1} ms")?;
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
    let share = f64::from(steered.holdout_millionths) / 1e4;
    let (windows, windows_max) = (steered.windows, settings.trial_windows_max);
    let since = if steered.proof.is_some() { "evidence since" } else { "on trial for" };
    writeln!(text, "  proof       {share} % held out, {since} {windows} windows of {windows_max}")?;
    let (of, held) = (evidence.steered, evidence.held_out);
    writeln!(
        text,
        "  connections {of} steered, {held} held out; asked for: {}",
        settings.evidence_connections_min
    )?;
    let alpha = settings.false_harm_share;
    let percent = |ln: f64| format!("{:+.1} %", ln.exp_m1() * 100.0);
    if let Some(effect) = interval(&evidence.goodput, alpha, percent) {
        writeln!(text, "  goodput     {effect}; worth it from {}", percent(settings.effect_min))?;
    }
    let points = |share: f64| format!("{:+.2} points", share * 100.0);
    if let Some(effect) = interval(&evidence.retransmitted, alpha, points) {
        writeln!(text, "  sent again  {effect}; at most {}", points(settings.retransmitted_rise_max))?;
    }
    if let Some((pool, own)) = state.pool.zip(steered.estimate(settings)) {
        let shrunken = pool.shrink(own);
        writeln!(
            text,
            "  shrunken    {} towards {} over {} prefixes; worth it with probability {:.2}, kept from {:.2}",
            percent(shrunken.effect),
            percent(pool.mean),
            pool.prefixes,
            shrunken.probability_above(settings.effect_min),
            settings.pooled_keep
        )?;
    }
    let Some(proof) = &steered.proof else { return Ok(()) };
    let effect = interval(&proof.goodput, alpha, percent).unwrap_or_default();
    writeln!(text, "  shown       {effect}, by an e-value of {:.0}", proof.ln_e.exp())
}

/// A mean with its interval, in the words of `unit`.
fn interval(mean: &Mean, alpha: f64, unit: impl Fn(f64) -> String) -> Option<String> {
    let interval = mean.interval(alpha)?;
    let share = (1.0 - alpha) * 100.0;
    Some(format!(
        "{} [{}, {}], {share:.0} % at every look",
        unit(mean.mean),
        unit(interval.low),
        unit(interval.high)
    ))
}

fn cooled(text: &mut String, settings: &Settings, cooling: &CoolingOff) -> std::fmt::Result {
    let CoolingOff { left, rounds, rounds_min, failures, .. } = cooling;
    writeln!(text, "  left        {left}: {}", about(settings, *left))?;
    writeln!(text, "  cool-off    left {rounds} rounds ago; may enter again after {rounds_min}")?;
    writeln!(text, "  failed      {failures} trials one after the other")
}

/// What a reason means, with the settings that it is about.
fn about(settings: &Settings, reason: Reason) -> String {
    let text = match reason {
        Reason::TooFew => "not steered, too few windows in which it could be ranked",
        Reason::NotSlow => "not steered, its duty cycle is too low",
        Reason::Flapping => "not steered, it enters and leaves the bottom group too often",
        Reason::LowRtt => "not steered, its round trips are short",
        Reason::LeftAlone => "not steered, its network is to be left alone",
        Reason::Full => return format!("not steered, {} prefixes are", settings.steered_max),
        Reason::RoundFull => "not steered yet, as many have changed in this round as may",
        Reason::Paused => "not steered yet, the guardrail has stopped the rounds for a while",
        Reason::CoolingOff => "not steered, it has left and may not come back yet",
        Reason::Slow => "steered as a slow one, nothing shown yet",
        Reason::Explored => "steered to find out, though it is not slow, nothing shown yet",
        Reason::Renewed => "steered, on trial again after it was shown to be helped",
        Reason::Likely => "steered, not shown by itself, but likely to be helped after what all show",
        Reason::Helped => "steered, shown to be helped",
        Reason::NoLongerSlow => "has left, it was no longer slow",
        Reason::NotHelped => "has left, not shown to be helped, or by less than is worth it",
        Reason::Harmed => "has left, shown to be harmed",
        Reason::Retransmits => "has left, more was sent again than may be",
        Reason::Skewed => "has left, the share held out was not the rule's: its arms cannot be compared",
        Reason::Guardrail => "has left, over all trials more was sent again than may be",
        Reason::Gone => "has left, no connection came from it any more",
        Reason::Changed => "has left, another congestion control is tried now",
        Reason::OverLimit => "has left, fewer may be steered than were",
        Reason::RolledBack => "has left, the bundle that brought it was rolled back",
    };
    text.to_owned()
}
