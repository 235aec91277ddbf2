//! Validation of a decoded rollout: see [`crate::check`].

use super::edges::CHECKSUM_BYTES_MAX;
use super::{Candidate, EDGE_NAME_BYTES_MAX, Edge, Rollout, Stage};
use crate::check::{Checked, ensure, mean, within};
use crate::figures::{EDGES_MAX, EdgeFigures};
use crate::sequential::Mean;
use crate::state::BUNDLES_MAX;
use thalweg_bundle::REASON_BYTES_MAX;

/// Checks the rollout and returns the first field out of range as an error.
pub(super) fn check(rollout: &Rollout) -> Checked {
    ensure(rollout.newest <= BUNDLES_MAX, "newest", "at most 2^53")?;
    let stable = rollout.stable.as_ref().map(|bundle| bundle.content().number);
    ensure(stable.is_none_or(|number| number <= rollout.newest), "stable", "at most the newest")?;
    if let Some(it) = &rollout.candidate {
        let number = it.bundle.content().number;
        let is_between = number <= rollout.newest && stable.is_some_and(|stable| stable < number);
        ensure(is_between, "candidate.bundle", "above the stable bundle's number and at most the newest")?;
        within("candidate", candidate(it))?;
    }
    ensure(rollout.edges.len() <= EDGES_MAX, "edges", "at most 1000")?;
    rollout.edges.iter().try_for_each(|(name, it)| {
        let is_name = is_name(name);
        within(
            &format!("edges[{name}]"),
            ensure(is_name, "name", "1 to 253 bytes long").and_then(|()| edge(it)),
        )
    })
}

fn candidate(candidate: &Candidate) -> Checked {
    let canaries = &candidate.canaries;
    let are_names = canaries.len() <= EDGES_MAX && canaries.keys().all(|name| is_name(name));
    ensure(are_names, "canaries", "at most 1000 names, each 1 to 253 bytes long")?;
    let is_unassigned = candidate.stage == Stage::Unassigned;
    ensure(canaries.is_empty() == is_unassigned, "canaries", "empty if and only if the stage is Unheard")?;
    match &candidate.stage {
        Stage::Unassigned => Ok(()),
        Stage::Assigned { wanted, .. } => {
            ensure((1..=canaries.len()).contains(wanted), "stage.wanted", "from 1 to the number of canaries")
        }
        Stage::Watched { own, others, .. } => {
            within("stage.own", figures(own))?;
            within("stage.others", figures(others))
        }
    }
}

fn edge(edge: &Edge) -> Checked {
    let is_short = |checksum: &String| checksum.len() <= CHECKSUM_BYTES_MAX;
    ensure(edge.in_force.as_ref().is_none_or(is_short), "in_force", "at most 71 bytes long")?;
    ensure(edge.number.is_none_or(|number| number <= BUNDLES_MAX), "number", "at most 2^53")?;
    for refusal in edge.refused.iter().chain(&edge.refused_candidate) {
        ensure(is_short(&refusal.checksum), "refused.checksum", "at most 71 bytes long")?;
        ensure(refusal.reason.len() <= REASON_BYTES_MAX, "refused.reason", "at most 1024 bytes long")?;
    }
    edge.before.as_ref().map_or(Ok(()), |it| within("before", figures(it)))
}

fn figures(figures: &EdgeFigures) -> Checked {
    let is_share = |mean: &Mean| (0.0..=1.0).contains(&mean.mean);
    within("failed", mean(&figures.failed))?;
    ensure(is_share(&figures.failed), "failed.mean", "from 0 to 1")?;
    within("retransmitted", mean(&figures.retransmitted))?;
    ensure(is_share(&figures.retransmitted), "retransmitted.mean", "from 0 to 1")?;
    within("ln_goodput", mean(&figures.ln_goodput))
}

fn is_name(name: &str) -> bool {
    (1..=EDGE_NAME_BYTES_MAX).contains(&name.len())
}
