//! Control: decides which client prefixes use another congestion control, and tests whether the
//! change helps them.
//!
//! ```text
//! records → Collector → Window
//! decide(settings, state, window, moment) → (State, Decision) → bundle
//! ```
//!
//! Control steers prefixes that are consistently in the bottom group of their PoP, and explores a
//! few others. It holds out a share of each prefix's clients for comparison. If steered clients do
//! better than held-out clients, the prefix is only promising: steering is then switched on and off
//! for the whole prefix. A prefix is withdrawn once the evidence is against steering it, and is
//! declared helped only once a gain of the whole prefix is proved. `docs/explanation/control.md`
//! describes the statistics.
//!
//! This crate does no I/O and reads no clock: its inputs are records, settings, the current time
//! and a seed.
//!
//! **Invariant:** the same state, window, settings and moment produce the same decision.
//! **Invariant:** each window is decided at most once. Bundle numbers only increase, and exceed
//! every number acknowledged by an edge or used by a connection. Every bundle from a decision is
//! valid.
//! **Invariant:** a withdrawn prefix cannot re-enter before its cool-off ends.

mod arms;
mod basis;
mod check;
mod collect;
mod decide;
mod detector;
mod entry;
mod evidence;
mod exact;
mod explain;
mod figures;
mod history;
mod left_alone;
mod online;
mod pool;
mod reason;
mod rollout;
mod selection;
mod sequential;
mod settings;
mod signs;
pub mod simulate;
mod state;
mod switchback;
mod tenant;
mod tenants;
mod upgrade;
mod window;

pub use arms::{ArmGoodputs, LowGoodputs};
pub use check::{FieldFault, StateError};
pub use collect::{CONNECTIONS_MAX, ClosedWindows, Collector, Counts, SAMPLES_MAX, SCOPES_MAX};
pub use decide::{Change, Decision, Moment, RoundOutcome, decide};
pub use detector::Detector;
pub use entry::{CoolingOff, Entry, Phase, Promise, Proof, Steered};
pub use evidence::Evidence;
pub use explain::explain;
pub use figures::{EDGES_MAX, EdgeFigures};
pub use history::History;
pub use online::Trials;
pub use pool::{Estimate, Pool};
pub use reason::Reason;
pub use rollout::{
    Canary, Candidate, EDGE_NAME_BYTES_MAX, Edge, Figure, Poll, ROLLOUT_FORMAT, Refusal, RollbackReason,
    Rollout, Stage, Transition,
};
pub use sequential::{Interval, Mean};
pub use settings::{Fault, HISTORY_WINDOWS_MAX, LEFT_ALONE_MAX, Measure, PREFIXES_MAX, Settings};
pub use state::{BUNDLES_MAX, Guard, STATE_FORMAT, State};
pub use switchback::{ClosedPairs, PAIRS_MAX, Switchback, Voided, WholeEffect};
pub use tenant::{TENANT_HOSTS_MAX, TENANTS_MAX, Tenant};
pub use tenants::{RuleKey, Tenants};
pub use window::{Arm, ArmSample, Outcome, Sample, Window};

#[cfg(test)]
mod tests;
