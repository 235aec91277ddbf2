//! The state of one scope (a PoP or one of its tenants) between rounds. `check.rs` decodes stored
//! states, and `upgrade.rs` converts stored states of earlier formats.
//!
//! **Invariant:** entries are sorted by prefix and distinct. There are at most
//! [`PREFIXES_MAX`](crate::PREFIXES_MAX) of them. Their prefixes do not overlap, because all are
//! client networks.
//! **Invariant:** durations are counted in decided windows, never in time, so clock changes do not
//! affect them.

use serde::{Deserialize, Serialize};
use thalweg_record::Prefix;

use crate::basis::Basis;
use crate::entry::{Entry, Steered};
use crate::online::Trials;
use crate::pool::Pool;

/// Format version written by [`State::encode`].
pub const STATE_FORMAT: u32 = 2;
/// Maximum bundle number. Some JSON readers lose digits beyond it.
pub const BUNDLES_MAX: u64 = 1 << 53;

/// State of the guardrail, except its evidence, which is that of the current trials.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guard {
    /// Number of windows for which admission is still paused.
    pub pause_windows: u32,
}

/// Everything stored about one scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub(crate) format: u32,
    /// Number of the last decided window.
    pub window: Option<u64>,
    /// Number of the newest bundle, or 0 before the first bundle.
    pub bundle: u64,
    /// XXH3-64 of the newest bundle's rules; `None` if the edges' rules are unknown.
    pub(crate) rules_digest: Option<u64>,
    /// Settings on which the state is based. `None` before the first window.
    pub(crate) basis: Option<Basis>,
    /// Counts of trials and discoveries.
    pub trials: Trials,
    /// State of the guardrail.
    pub guard: Guard,
    /// Largest prefix median in the bottom group of the newest window, in bytes per second.
    #[serde(with = "crate::exact::option")]
    pub bottom_bytes_per_s: Option<f64>,
    /// Distribution of effects across all trials. `None` with too few trials.
    pub pool: Option<Pool>,
    /// Number of consecutive rounds without traffic for this tenant.
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
