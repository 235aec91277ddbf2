//! What a rollout tells, for a log and a ledger: each time that the document of some edge has become another, and why.

use std::fmt;

use crate::tenants::Whom;

/// What has happened to bundles or edges.
#[derive(Debug, Clone, PartialEq)]
pub enum Transition {
    /// All edges but canaries get another bundle at once: it takes back, and adds nothing.
    Reduced {
        /// Its number.
        number: u64,
    },
    /// The canaries get another bundle: the one before without what was taken back since.
    CandidateReduced {
        /// Its number.
        number: u64,
    },
    /// Nothing that the candidate adds is left: all edges have what it was without that.
    Ended {
        /// Its number.
        number: u64,
    },
    /// There is a candidate; canaries are chosen next.
    Proposed {
        /// Its number.
        number: u64,
    },
    /// What the state steers may not become a bundle: what it adds has left.
    Rejected {
        /// Why not.
        reason: String,
        /// Who has left.
        withdrawn: Vec<Whom>,
    },
    /// These edges get the candidate.
    Canaries {
        /// Its number.
        number: u64,
        /// Their names.
        edges: Vec<String>,
    },
    /// The canaries go by the candidate, and are watched.
    Acknowledged {
        /// Its number.
        number: u64,
    },
    /// The candidate waits: so many windows one after the other told of no canary that goes by it.
    Unseen {
        /// Its number.
        number: u64,
        /// The canaries.
        edges: Vec<String>,
    },
    /// All edges get the candidate.
    Promoted {
        /// Its number.
        number: u64,
        /// Whether enough connections told that nothing speaks against it; else none did for as long as is waited.
        is_shown: bool,
    },
    /// The candidate is taken back: all edges get the last good rules, under a new number.
    RolledBack {
        /// Its number.
        number: u64,
        /// The number of the one that takes its place.
        by: u64,
        /// Why.
        why: Why,
        /// Who has left.
        withdrawn: Vec<Whom>,
    },
    /// An edge refuses the bundle that all have, and goes on with the one that it has.
    EdgeRefused {
        /// The edge.
        edge: String,
        /// The bundle's number.
        number: u64,
        /// Why, in its words.
        reason: String,
    },
    /// An edge is heard no more.
    EdgeSilent {
        /// The edge.
        edge: String,
    },
}

/// Why a candidate is taken back.
#[derive(Debug, Clone, PartialEq)]
pub enum Why {
    /// A canary refuses it.
    Refused {
        /// The canary.
        edge: String,
        /// Why, in its words.
        reason: String,
    },
    /// No canary has acknowledged it, nor another one.
    Unacknowledged,
    /// It is acknowledged, and no window came that tells how the canaries do.
    Unobserved,
    /// A canary that served before serves nothing, or next to nothing.
    ServesNothing {
        /// The canary.
        edge: String,
        /// Responses of the window, and of one before it.
        responses: (u64, u64),
    },
    /// The canaries do worse than they did before, and than the others.
    Worse {
        /// In what.
        figure: Figure,
        /// How they do: a share, or a logarithm of bytes per second.
        now: f64,
        /// How they did before, where that is known.
        before: Option<f64>,
        /// How the others do, if there are any.
        others: Option<f64>,
    },
}

/// What canaries are compared in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// The share of responses that fail.
    Failed,
    /// The share of bytes that is sent again.
    Retransmitted,
    /// Log goodput.
    Goodput,
}

impl Transition {
    /// Whether it changes states: else a rollout alone.
    pub fn changes_states(&self) -> bool {
        match self {
            Self::Reduced { .. }
            | Self::CandidateReduced { .. }
            | Self::Proposed { .. }
            | Self::Rejected { .. }
            | Self::RolledBack { .. } => true,
            Self::Ended { .. }
            | Self::Canaries { .. }
            | Self::Acknowledged { .. }
            | Self::Unseen { .. }
            | Self::Promoted { .. }
            | Self::EdgeRefused { .. }
            | Self::EdgeSilent { .. } => false,
        }
    }
}

impl Figure {
    fn write(self, number: f64) -> String {
        match self {
            Self::Failed | Self::Retransmitted => format!("{:.2} %", number * 100.0),
            Self::Goodput => format!("{:.2} Mbit/s", number.exp() * 8.0 / 1e6),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "responses that fail",
            Self::Retransmitted => "bytes sent again",
            Self::Goodput => "goodput",
        })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { edge, reason } => write!(f, "{edge} refuses it: {reason}"),
            Self::Unacknowledged => f.write_str("no canary acknowledges it"),
            Self::Unobserved => f.write_str("no window tells how the canaries do"),
            Self::ServesNothing { edge, responses: (now, before) } => {
                write!(f, "{edge} serves {now} responses in a window, and served {before}")
            }
            Self::Worse { figure, now, before, others } => {
                write!(f, "{figure}: {}", figure.write(*now))?;
                if let Some(before) = before {
                    write!(f, ", before {}", figure.write(*before))?;
                }
                others.map_or(Ok(()), |others| write!(f, ", elsewhere {}", figure.write(others)))
            }
        }
    }
}

/// That no window tells of these edges, and what the reason may be.
pub(super) fn untold(edges: &[String]) -> String {
    let edges = edges.join(", ");
    format!("no window has told of {edges}; is that the `host` of its agent?")
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reduced { number } => {
                write!(f, "bundle {number} goes to all edges at once: it adds nothing")
            }
            Self::CandidateReduced { number } => write!(f, "bundle {number} takes back, for canaries"),
            Self::Ended { number } => write!(f, "bundle {number} has ended: all that it adds has left"),
            Self::Proposed { number } => write!(f, "bundle {number} is to be tried"),
            Self::Rejected { reason, withdrawn } => {
                write!(f, "no bundle is made, and {} prefixes leave: {reason}", withdrawn.len())
            }
            Self::Canaries { number, edges } => write!(f, "bundle {number} goes to {}", edges.join(", ")),
            Self::Acknowledged { number } => write!(f, "bundle {number} is acknowledged by its canaries"),
            Self::Unseen { number, edges } => {
                write!(f, "bundle {number} waits at its canaries: {}", untold(edges))
            }
            Self::Promoted { number, is_shown: true } => write!(f, "bundle {number} goes to all edges"),
            Self::Promoted { number, is_shown: false } => {
                write!(f, "bundle {number} goes to all edges, though too few connections told of it")
            }
            Self::RolledBack { number, by, why, withdrawn } => {
                write!(
                    f,
                    "bundle {number} is rolled back by {by}, and {} prefixes leave: {why}",
                    withdrawn.len()
                )
            }
            Self::EdgeRefused { edge, number, reason } => {
                write!(f, "{edge} refuses bundle {number}: {reason}")
            }
            Self::EdgeSilent { edge } => write!(f, "{edge} is heard no more"),
        }
    }
}
