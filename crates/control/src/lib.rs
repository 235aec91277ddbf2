//! Control: which client prefixes get another congestion control, and whether that helped them.
//!
//! ```text
//! records → Collector → Window → decide(settings, state, window, moment) → (State, Decision) → bundle
//! ```
//!
//! A prefix that is consistently in the bottom group of its PoP is tried, a few that are not as well; a share of its connections
//! is held out; it stays only as long as nothing speaks against it, and is told to be helped only once that is shown.
//! `docs/control.md` has the statistics and their sources.
//!
//! Pure: records, settings, `now` and a seed go in. No clock, no socket, no file.
//!
//! **Invariant:** the same state, window, settings and moment make the same decision.
//! **Invariant:** a window is decided once; the numbers of bundles go up, beyond those that edges acknowledge or
//! connections went by; a bundle of a decision is valid.
//! **Invariant:** a prefix that has left does not enter before its cool-off has passed.

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
pub mod simulate;
mod state;
mod tenant;
mod tenants;
mod window;

pub use check::FieldFault;
pub use collect::{CONNECTIONS_MAX, Closed, Collector, Counts, SAMPLES_MAX, SCOPES_MAX};
pub use decide::{Change, Decision, Moment, Round, decide};
pub use detector::Detector;
pub use entry::{CoolingOff, Entry, Phase, Proof, Steered};
pub use evidence::Evidence;
pub use explain::explain;
pub use figures::{EDGES_MAX, Figures};
pub use history::History;
pub use online::Trials;
pub use pool::{Estimate, Pool};
pub use reason::Reason;
pub use rollout::{
    Canary, Candidate, EDGE_NAME_BYTES_MAX, Edge, Figure, Poll, ROLLOUT_FORMAT, Refusal, Rollout, Stage,
    Transition, Why,
};
pub use sequential::{Interval, Mean};
pub use settings::{Fault, HISTORY_WINDOWS_MAX, LEFT_ALONE_MAX, Measure, PREFIXES_MAX, Settings};
pub use state::{BUNDLES_MAX, Guard, STATE_FORMAT, State, StateError};
pub use tenant::{TENANT_HOSTS_MAX, TENANTS_MAX, Tenant};
pub use tenants::{Tenants, Whom};
pub use window::{Arm, ArmSample, Outcome, Sample, Window};

#[cfg(test)]
mod tests;
