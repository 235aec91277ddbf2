//! Rollout transitions for the log and the ledger: every change to the bundle assigned to an edge,
//! with its reason.

use std::fmt;

use crate::tenants::RuleKey;

/// A change to bundles or edges.
#[derive(Debug, Clone, PartialEq)]
pub enum Transition {
    /// All edges except canaries get a bundle at once, because it steers nothing in addition to the
    /// previous bundle.
    Reduced {
        /// Number of the new bundle.
        number: u64,
    },
    /// The canaries get a reduced candidate, without the rules withdrawn since it was proposed.
    CandidateReduced {
        /// Number of the new bundle.
        number: u64,
    },
    /// The candidate ended because all its additions were withdrawn.
    Ended {
        /// Number of the candidate.
        number: u64,
    },
    /// A candidate was created. Its canaries are chosen next.
    Proposed {
        /// Number of the candidate.
        number: u64,
    },
    /// The state's rules cannot become a bundle, so the additions are withdrawn.
    Rejected {
        /// The reason why the rules cannot become a bundle.
        reason: String,
        /// Withdrawn rules.
        withdrawn: Vec<RuleKey>,
    },
    /// The canaries get the candidate.
    Canaries {
        /// Number of the candidate.
        number: u64,
        /// Names of the canaries.
        edges: Vec<String>,
    },
    /// The canaries use the candidate and are watched.
    Acknowledged {
        /// Number of the candidate.
        number: u64,
    },
    /// The candidate waits, because several consecutive windows had no traffic from a canary using
    /// it.
    NoCanaryTraffic {
        /// Number of the candidate.
        number: u64,
        /// Names of the canaries.
        edges: Vec<String>,
    },
    /// All edges get the candidate.
    Promoted {
        /// Number of the candidate.
        number: u64,
        /// Whether enough connections showed that the candidate does no harm. If false, the maximum
        /// number of windows passed first.
        is_shown: bool,
    },
    /// The candidate is rolled back: all edges get the last good rules under a new number.
    RolledBack {
        /// Number of the candidate.
        number: u64,
        /// Number of the bundle replacing the candidate.
        by: u64,
        /// Reason for the rollback.
        why: RollbackReason,
        /// Withdrawn rules.
        withdrawn: Vec<RuleKey>,
    },
    /// An edge refuses the stable bundle and keeps its current one.
    EdgeRefused {
        /// Name of the edge.
        edge: String,
        /// Number of the bundle.
        number: u64,
        /// Reason given by the edge.
        reason: String,
    },
    /// A canary refuses the candidate and keeps its current bundle. The candidate continues on
    /// other canaries unless a rollback follows.
    CanaryRefused {
        /// Name of the canary.
        edge: String,
        /// Number of the candidate.
        number: u64,
        /// Reason given by the canary.
        reason: String,
    },
    /// A canary practically stopped serving. Another canary is added.
    CanaryStopped {
        /// Name of the canary.
        edge: String,
        /// Number of the candidate.
        number: u64,
    },
    /// An edge stopped polling.
    EdgeSilent {
        /// Name of the edge.
        edge: String,
    },
}

/// Reason for rolling a candidate back.
#[derive(Debug, Clone, PartialEq)]
pub enum RollbackReason {
    /// A quorum of edges refuses the candidate.
    Refused {
        /// Name of one of them.
        edge: String,
        /// Reason given by this edge.
        reason: String,
        /// Number of edges that refuse the candidate.
        refusing: usize,
        /// Number of edges with a vote.
        of: usize,
    },
    /// No canary, original or replacement, acknowledged the candidate.
    Unacknowledged,
    /// The candidate was acknowledged, but no window has canary traffic to judge.
    NoWindows,
    /// A canary that was serving traffic has practically stopped.
    StoppedServing {
        /// Name of the canary.
        edge: String,
        /// Number of responses in the newest window.
        now: u64,
        /// Number of responses per window before the candidate.
        before: u64,
    },
    /// The canaries perform worse than before, and worse than the other edges.
    Worse {
        /// Figure that is worse.
        figure: Figure,
        /// The canaries' value: a share, or a logarithm of bytes per second.
        now: f64,
        /// The canaries' value before the candidate, if known.
        before: Option<f64>,
        /// The other edges' value, if any.
        others: Option<f64>,
    },
}

/// A figure by which canaries are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Share of failed responses.
    Failed,
    /// Share of retransmitted bytes.
    Retransmitted,
    /// Log goodput.
    Goodput,
}

impl Transition {
    /// Returns whether the transition changes the states, not only the rollout.
    pub fn changes_states(&self) -> bool {
        matches!(
            self,
            Self::Reduced { .. }
                | Self::CandidateReduced { .. }
                | Self::Proposed { .. }
                | Self::Rejected { .. }
                | Self::RolledBack { .. }
        )
    }
}

impl Figure {
    fn format(self, number: f64) -> String {
        match self {
            Self::Failed | Self::Retransmitted => format!("{:.2} %", number * 100.0),
            Self::Goodput => format!("{:.2} Mbit/s", number.exp() * 8.0 / 1e6),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "failed responses",
            Self::Retransmitted => "retransmitted bytes",
            Self::Goodput => "goodput",
        })
    }
}

impl fmt::Display for RollbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { edge, reason, refusing: 1, .. } => {
                write!(f, "{edge} refuses the candidate: {reason}")
            }
            Self::Refused { edge, reason, refusing, of } => {
                write!(f, "{refusing} of {of} edges refuse the candidate; {edge}: {reason}")
            }
            Self::Unacknowledged => f.write_str("no canary acknowledged the candidate"),
            Self::NoWindows => f.write_str("no window has canary traffic to judge"),
            Self::StoppedServing { edge, now, before } => {
                write!(f, "{edge} served {now} responses in the window, {before} per window before")
            }
            Self::Worse { figure, now, before, others } => {
                write!(f, "{figure}: {}", figure.format(*now))?;
                if let Some(before) = before {
                    write!(f, ", before {}", figure.format(*before))?;
                }
                others.map_or(Ok(()), |others| write!(f, ", other edges {}", figure.format(others)))
            }
        }
    }
}

/// Formats the message that these edges have no traffic in any window, with the likely cause.
pub(super) fn no_traffic_text(edges: &[String]) -> String {
    let edges = edges.join(", ");
    format!("no records from {edges}; does the name match its agent's `host`?")
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reduced { number } => {
                write!(f, "bundle {number} sent to all edges at once, because it adds nothing")
            }
            Self::CandidateReduced { number } => {
                write!(f, "bundle {number} replaces the candidate, without additions")
            }
            Self::Ended { number } => write!(f, "bundle {number} ended: all its additions were withdrawn"),
            Self::Proposed { number } => write!(f, "bundle {number} proposed as candidate"),
            Self::Rejected { reason, withdrawn } => {
                write!(f, "no bundle created, {} prefixes withdrawn: {reason}", withdrawn.len())
            }
            Self::Canaries { number, edges } => {
                write!(f, "bundle {number} sent to canaries {}", edges.join(", "))
            }
            Self::Acknowledged { number } => write!(f, "bundle {number} acknowledged by its canaries"),
            Self::NoCanaryTraffic { number, edges } => {
                write!(f, "bundle {number} waiting for traffic of its canaries: {}", no_traffic_text(edges))
            }
            Self::Promoted { number, is_shown: true } => write!(f, "bundle {number} sent to all edges"),
            Self::Promoted { number, is_shown: false } => {
                write!(f, "bundle {number} sent to all edges without enough connections to judge it")
            }
            Self::RolledBack { number, by, why, withdrawn } => {
                write!(
                    f,
                    "bundle {number} rolled back by bundle {by}, {} prefixes withdrawn: {why}",
                    withdrawn.len()
                )
            }
            Self::EdgeRefused { edge, number, reason } => {
                write!(f, "{edge} refuses bundle {number}: {reason}")
            }
            Self::CanaryRefused { edge, number, reason } => {
                write!(f, "{edge} refuses candidate {number} and is excluded: {reason}")
            }
            Self::CanaryStopped { edge, number } => {
                write!(f, "{edge} stopped serving with candidate {number}; another canary is added")
            }
            Self::EdgeSilent { edge } => write!(f, "{edge} stopped polling"),
        }
    }
}
