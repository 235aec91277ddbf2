//! Selection: which prefixes are in a window's bottom group, and which may be tried.

use thalweg_record::{Prefix, Sketch};

use crate::entry::Entry;
use crate::left_alone::LeftAlone;
use crate::reason::Reason;
use crate::settings::{Measure, Settings};
use crate::window::{ArmSample, Sample, Window};

/// Minimum number of ranked prefixes for a bottom group.
const RANKED_MIN: usize = 5;

/// Ranks a prefix in a window: takes the median of each connection's samples, then the median over
/// connections. Returns `None` with too few connections.
///
/// The outer median is over connections, not samples, because a long connection has hundreds of
/// samples. A low percentile would let one slow client represent its network, and a mean would let
/// one fast client do so.
///
/// If help must be proved, a steered prefix is ranked by its held-out connections, which show
/// whether the prefix would be slow without steering. In an idle prefix, connections still steered
/// by an earlier rule do not count.
pub(crate) fn rank(settings: &Settings, sample: &Sample, is_steered: bool) -> Option<f64> {
    let arms: &[&ArmSample] = match (settings.has_proof(), is_steered) {
        (false, _) => &[&sample.other, &sample.steered, &sample.held_out],
        (true, true) => &[&sample.held_out],
        (true, false) => &[&sample.other, &sample.held_out],
    };
    let connections: u64 = arms.iter().map(|arm| sketch(settings.measure, arm).count()).sum();
    if connections < settings.connections_min.into() {
        return None;
    }
    median(settings.measure, arms)
}

fn sketch(measure: Measure, arm: &ArmSample) -> &Sketch {
    match measure {
        Measure::DeliveryRate => &arm.delivery_rate,
        Measure::Goodput => &arm.goodput,
    }
}

fn median(measure: Measure, arms: &[&ArmSample]) -> Option<f64> {
    let mut some = arms.iter().map(|arm| sketch(measure, arm)).filter(|sketch| sketch.count() > 0);
    let first = some.next()?;
    let Some(second) = some.next() else { return first.quantile(0.5) };
    let mut all = first.clone();
    all.merge(second);
    some.for_each(|sketch| all.merge(sketch));
    all.quantile(0.5)
}

/// Returns each prefix's rank, by its index in the window, and the largest rank in the bottom
/// group.
pub(crate) fn bottom_group(
    settings: &Settings,
    left_alone: &LeftAlone,
    window: &Window,
    is_steered: impl Fn(Prefix) -> bool,
) -> (Vec<Option<f64>>, Option<f64>) {
    let ranks: Vec<_> = window
        .prefixes
        .iter()
        .map(|(prefix, sample)| {
            let rank = rank(settings, sample, is_steered(*prefix))?;
            (!left_alone.meets(*prefix)).then_some(rank)
        })
        .collect();
    let mut ranked: Vec<f64> = ranks.iter().copied().flatten().collect();
    if ranked.len() < RANKED_MIN {
        return (vec![None; ranks.len()], None);
    }
    let last = (settings.bottom_share * ranked.len() as f64).ceil() as usize;
    let (_, bottom, _) = ranked.select_nth_unstable_by(last.max(1) - 1, f64::total_cmp);
    let bottom = *bottom;
    (ranks, Some(bottom))
}

/// Returns the reason why an idle prefix cannot be tried as slow, or `None` if it can.
pub(crate) fn obstacle(settings: &Settings, left_alone: &LeftAlone, entry: &Entry) -> Option<Reason> {
    if left_alone.meets(entry.prefix) {
        Some(Reason::LeftAlone)
    } else if entry.is_cooling_off() {
        Some(Reason::CoolingOff)
    } else if entry.history.observed_windows() < settings.observed_windows_min {
        Some(Reason::TooFew)
    } else if entry.min_rtt_us.is_some_and(|min_rtt_us| u64::from(min_rtt_us) < settings.min_rtt_us_min) {
        Some(Reason::LowRtt)
    } else if entry.history.duty_cycle() < settings.duty_enter {
        Some(Reason::NotSlow)
    } else if entry.history.flap_rate() > settings.flap_max {
        Some(Reason::Flapping)
    } else {
        None
    }
}

/// Returns whether a steered prefix has been fast long enough to stop steering it.
pub(crate) fn is_no_longer_slow(settings: &Settings, entry: &Entry) -> bool {
    entry.history.observed_windows() >= settings.observed_windows_min
        && entry.history.duty_cycle() <= settings.duty_leave
}
