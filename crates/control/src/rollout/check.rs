//! What each field of a rollout has to be that was read from a disk or a network: see [`crate::check`].

use super::edges::CHECKSUM_BYTES_MAX;
use super::{Candidate, EDGE_NAME_BYTES_MAX, Edge, Rollout, Stage};
use crate::check::{Checked, ensure, mean, within};
use crate::figures::{EDGES_MAX, Figures};
use crate::sequential::Mean;
use crate::state::BUNDLES_MAX;
use thalweg_bundle::REASON_BYTES_MAX;

/// The first field of a rollout that is out of its range.
pub(super) fn check(rollout: &Rollout) -> Checked {
    ensure(rollout.newest <= BUNDLES_MAX, "newest", "at most 2^53")?;
    let stable = rollout.stable.as_ref().map(|bundle| bundle.content().number);
    ensure(stable.is_none_or(|number| number <= rollout.newest), "stable", "at most the newest")?;
    if let Some(it) = &rollout.candidate {
        let number = it.bundle.content().number;
        let is_between = number <= rollout.newest && stable.is_some_and(|stable| stable < number);
        ensure(is_between, "candidate.bundle", "above the stable one, at most the newest")?;
        within("candidate", candidate(it))?;
    }
    ensure(rollout.edges.len() <= EDGES_MAX, "edges", "at most 1000")?;
    rollout.edges.iter().try_for_each(|(name, it)| {
        let is_name = is_name(name);
        within(
            &format!("edges[{name}]"),
            ensure(is_name, "name", "of 1 to 253 bytes").and_then(|()| edge(it)),
        )
    })
}

fn candidate(candidate: &Candidate) -> Checked {
    let canaries = &candidate.canaries;
    let are_names = canaries.len() <= EDGES_MAX && canaries.keys().all(|name| is_name(name));
    ensure(are_names, "canaries", "at most 1000 names of 1 to 253 bytes")?;
    let is_unheard = candidate.stage == Stage::Unheard;
    ensure(
        canaries.is_empty() == is_unheard,
        "canaries",
        "there where the stage is not Unheard, and only there",
    )?;
    match &candidate.stage {
        Stage::Unheard => Ok(()),
        Stage::Handed { wanted, .. } => {
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
    ensure(edge.in_force.as_ref().is_none_or(is_short), "in_force", "a checksum")?;
    ensure(edge.number.is_none_or(|number| number <= BUNDLES_MAX), "number", "at most 2^53")?;
    if let Some(refusal) = &edge.refused {
        ensure(is_short(&refusal.checksum), "refused.checksum", "a checksum")?;
        ensure(refusal.reason.len() <= REASON_BYTES_MAX, "refused.reason", "of at most 1024 bytes")?;
    }
    edge.before.as_ref().map_or(Ok(()), |it| within("before", figures(it)))
}

fn figures(figures: &Figures) -> Checked {
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
