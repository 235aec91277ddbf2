//! Observation: updates each prefix's entry from a window.

use crate::entry::Entry;
use crate::settings::{PREFIXES_MAX, Settings};
use crate::window::{Sample, Window};

/// Smoothing length of connection counts, in windows: one hour of 5-minute windows.
const SMOOTHED_WINDOWS: f32 = 12.0;
/// Smoothing length of log goodput, in connections.
const SMOOTHED_CONNECTIONS: f32 = 30.0;

/// Returns the entries after a window: existing entries advanced by `elapsed` windows, plus entries
/// for new prefixes.
pub(super) fn observe(
    settings: &Settings,
    before: &[Entry],
    window: &Window,
    ranks: &[Option<f64>],
    bottom: Option<f64>,
    elapsed: u64,
) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(before.len() + window.prefixes.len() / 4);
    let mut room = PREFIXES_MAX.saturating_sub(before.len());
    let mut seen = window.prefixes.iter().zip(ranks).peekable();
    let update = |entry: &mut Entry, seen: Option<(&Sample, Option<f64>)>| {
        entry.advance(elapsed, settings.history_windows);
        observe_one(entry, seen, bottom);
    };
    for entry in before {
        while let Some(((prefix, sample), rank)) = seen.next_if(|((prefix, _), _)| *prefix < entry.prefix) {
            if let Some(left) = room.checked_sub(1) {
                room = left;
                let mut entry = Entry::new(*prefix);
                update(&mut entry, Some((sample, *rank)));
                entries.push(entry);
            }
        }
        let own = seen.next_if(|((prefix, _), _)| *prefix == entry.prefix);
        let mut entry = entry.clone();
        update(&mut entry, own.map(|((_, sample), rank)| (sample, *rank)));
        entries.push(entry);
    }
    for ((prefix, sample), rank) in seen.take(room) {
        let mut entry = Entry::new(*prefix);
        update(&mut entry, Some((sample, *rank)));
        entries.push(entry);
    }
    entries
}

fn observe_one(entry: &mut Entry, seen: Option<(&Sample, Option<f64>)>, bottom: Option<f64>) {
    let connections = seen.map_or(0, |(sample, _)| sample.connections());
    entry.connections += (connections as f32 - entry.connections) / SMOOTHED_WINDOWS;
    let Some((sample, rank)) = seen else { return };
    if let (Some(rank), Some(bottom)) = (rank, bottom) {
        entry.history.observe(rank <= bottom);
    }
    if let Some(min_rtt_us) = sample.min_rtt_us.quantile(0.5) {
        entry.min_rtt_us = Some(min_rtt_us as u32);
    }
    if sample.ln_goodput.count > 0 {
        let (mean, count) = (sample.ln_goodput.mean as f32, sample.ln_goodput.count as f32);
        let before = entry.ln_goodput.unwrap_or(mean);
        entry.ln_goodput = Some(before + (mean - before) * count / (count + SMOOTHED_CONNECTIONS));
    }
}
