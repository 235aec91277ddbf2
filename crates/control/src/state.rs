//! What control knows of one scope between its rounds, and the form in which it is kept.
//!
//! **Invariant:** entries are in the order of their prefixes, each once, at most [`PREFIXES_MAX`](crate::PREFIXES_MAX); none of them overlap, since all
//! are networks of clients.
//! **Invariant:** spans are told in windows that were decided, never as times: a clock that is set has no part in them.

use std::fmt;

use serde::{Deserialize, Serialize};
use thalweg_record::Prefix;

use crate::basis::Basis;
use crate::check::{FieldFault, check};
use crate::entry::{Entry, Steered};
use crate::online::Trials;
use crate::pool::Pool;

/// The version of the form that [`State::encode`] writes.
pub const STATE_FORMAT: u32 = 1;
/// The highest number of a bundle: beyond it readers of JSON other than ours lose digits.
pub const BUNDLES_MAX: u64 = 1 << 53;

/// What the guardrail has done. Its evidence is that of the trials under way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guard {
    /// Windows for which no prefix enters.
    pub pause_windows: u32,
}

/// What control knows of one scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub(crate) format: u32,
    /// The window that was decided last.
    pub window: Option<u64>,
    /// The number of the newest bundle; 0 before the first.
    pub bundle: u64,
    /// Of its rules: XXH3-64. Absent where it is not known what edges go by.
    pub(crate) rules_digest: Option<u64>,
    /// The settings that it was made under; absent before the first window.
    pub(crate) basis: Option<Basis>,
    /// Trials so far, and those that were told to be helped.
    pub trials: Trials,
    /// The guardrail.
    pub guard: Guard,
    /// The largest median of the bottom group in the newest window, bytes per second.
    #[serde(with = "crate::exact::option")]
    pub bottom_bytes_per_s: Option<f64>,
    /// What all prefixes tell of one; absent of too few.
    pub pool: Option<Pool>,
    /// Rounds one after the other in which nobody asked for the tenant whose it is.
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

/// Bytes that are no state.
#[derive(Debug)]
pub enum StateError {
    /// Not JSON of the form.
    Json(serde_json::Error),
    /// Of another version.
    Format {
        /// The version that it states,
        found: u32,
        /// and the one that this program reads.
        read: u32,
    },
    /// A rollout whose bundles are of another format than this program's.
    Bundles {
        /// The format of the first of them,
        found: u32,
        /// and the one that this program reads.
        read: u32,
    },
    /// A field is out of its range.
    Field(FieldFault),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(_) => f.write_str("not a state of control"),
            Self::Format { found, read } => {
                write!(f, "a state of format {found}, and this program reads format {read}")
            }
            Self::Bundles { found, read } => {
                write!(f, "bundles of format {found}, and this program reads format {read}")
            }
            Self::Field(fault) => write!(f, "not a state of control: {fault}"),
        }
    }
}

impl std::error::Error for StateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Json(cause) => Some(cause),
            Self::Format { .. } | Self::Bundles { .. } | Self::Field(_) => None,
        }
    }
}

impl State {
    /// What is known, in the order of prefixes.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What is known of `prefix`.
    pub fn entry(&self, prefix: Prefix) -> Option<&Entry> {
        let at = self.entries.binary_search_by_key(&prefix, |entry| entry.prefix).ok()?;
        self.entries.get(at)
    }

    /// Prefixes that are steered.
    pub fn steered(&self) -> impl Iterator<Item = (&Entry, &Steered)> {
        self.entries.iter().filter_map(|entry| Some((entry, entry.steered()?)))
    }

    /// As JSON on one line.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("a state has no map")
    }

    /// Reads [`State::encode`]'s form.
    ///
    /// # Errors
    /// When it is not of that form and version, or a field is out of its range.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let Version { format } = serde_json::from_slice(bytes).map_err(StateError::Json)?;
        if format != STATE_FORMAT {
            return Err(StateError::Format { found: format, read: STATE_FORMAT });
        }
        let state: Self = serde_json::from_slice(bytes).map_err(StateError::Json)?;
        check(&state).map_err(StateError::Field)?;
        Ok(state)
    }
}
