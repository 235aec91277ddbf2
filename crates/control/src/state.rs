//! The state of one scope between rounds. `check` decodes the stored form.
//!
//! **Invariant:** entries are sorted by prefix and distinct. There are at most
//! [`PREFIXES_MAX`](crate::PREFIXES_MAX) of them. Their prefixes do not overlap, since all are
//! client networks.
//! **Invariant:** durations are counted in decided windows, never in time, so clock changes do not
//! affect them.

use serde::{Deserialize, Serialize};
use thalweg_record::Prefix;

use crate::basis::Basis;
use crate::entry::{Entry, Steered};
use crate::online::Trials;
use crate::pool::Pool;

/// Version of the stored form that [`State::encode`] writes.
pub const STATE_FORMAT: u32 = 1;
/// Maximum bundle number: some JSON readers lose digits beyond it.
pub const BUNDLES_MAX: u64 = 1 << 53;

/// State of the guardrail, which uses the evidence of the current trials.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guard {
    /// Windows for which admission is still paused.
    pub pause_windows: u32,
}

/// Everything that control keeps about one scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub(crate) format: u32,
    /// Last decided window.
    pub window: Option<u64>,
    /// Number of the newest bundle; 0 before the first.
    pub bundle: u64,
    /// XXH3-64 of the newest bundle's rules; `None` if the rules at the edges are unknown.
    pub(crate) rules_digest: Option<u64>,
    /// Settings under which the state was made; `None` before the first window.
    pub(crate) basis: Option<Basis>,
    /// Counts of trials and discoveries.
    pub trials: Trials,
    /// State of the guardrail.
    pub guard: Guard,
    /// Largest median in the bottom group in the newest window, in bytes per second.
    #[serde(with = "crate::exact::option")]
    pub bottom_bytes_per_s: Option<f64>,
    /// Distribution of effects across all trials; `None` if there are too few trials.
    pub pool: Option<Pool>,
    /// Consecutive rounds in which this tenant had no traffic.
    #[serde(default)]
    pub(crate) quiet_rounds: u32,
    pub(crate) entries: Vec<Entry>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            format: STATE_FORMAT,
            window: None,
            bundle: 0,
            rules_digest: None,
            basis: None,
            trials: Trials::default(),
            guard: Guard::default(),
            bottom_bytes_per_s: None,
            pool: None,
            quiet_rounds: 0,
            entries: Vec::new(),
        }
    }
}

impl State {
    /// Returns all entries, sorted by prefix.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the entry of `prefix`.
    pub fn entry(&self, prefix: Prefix) -> Option<&Entry> {
        let at = self.entries.binary_search_by_key(&prefix, |entry| entry.prefix).ok()?;
        self.entries.get(at)
    }

    /// Returns the steered prefixes.
    pub fn steered(&self) -> impl Iterator<Item = (&Entry, &Steered)> {
        self.entries.iter().filter_map(|entry| Some((entry, entry.steered()?)))
    }

    /// Encodes the state as one line of JSON.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("a state contains no maps")
    }
}
