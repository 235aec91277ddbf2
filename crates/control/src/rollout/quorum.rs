//! Quorum for rolling a candidate back: how many edges must refuse the candidate, or not
//! acknowledge it. If fewer do, these edges are excluded and reported, and the rollout continues.
//!
//! Only live edges have a vote and, as long as any edge serves traffic, only edges that do. An edge
//! without records may be misnamed or forged.
//!
//! **Invariant:** a single edge never causes a rollback, unless it is the only edge with a vote.

use super::{Edge, RollbackReason, Rollout, Stage, Transition};
use crate::figures::EDGES_MAX;
use crate::settings::Settings;

/// Minimum number of edges that cause a rollback, if at least as many have a vote.
const QUORUM_EDGES_MIN: usize = 2;

impl Edge {
    /// Returns whether the edge served traffic before the candidate.
    pub(super) fn serves(&self) -> bool {
        self.before.as_ref().is_some_and(|before| before.responses > 0)
    }

    /// Returns whether the edge refuses the bundle with this checksum.
    pub(super) fn refuses(&self, checksum: &str) -> bool {
        self.refused.iter().chain(&self.refused_candidate).any(|refusal| refusal.checksum == checksum)
    }
}

impl Rollout {
    /// Returns the edges with a vote on the candidate.
    fn voters(&self, settings: &Settings) -> Vec<(&String, &Edge)> {
        let is_canary =
            |name: &String| self.candidate.as_ref().is_some_and(|it| it.canaries.contains_key(name));
        let is_live = |name: &String, edge: &Edge| self.is_live(settings, edge) || is_canary(name);
        let mut voters: Vec<_> = self.edges.iter().filter(|(name, edge)| is_live(name, edge)).collect();
        // Edges without traffic have no vote, even while all edges with traffic are silent.
        if self.edges.values().any(Edge::serves) {
            voters.retain(|(_, edge)| edge.serves());
        }
        voters
    }

    /// Returns whether an edge's reports can make the controller issue bundles: it serves traffic,
    /// or no edge does.
    pub(super) fn has_vote(&self, name: &str) -> bool {
        self.edges.get(name).is_some_and(Edge::serves) || !self.edges.values().any(Edge::serves)
    }

    /// Returns whether an edge has polled recently.
    pub(super) fn is_live(&self, settings: &Settings, edge: &Edge) -> bool {
        self.clock.own_s.saturating_sub(edge.heard_s) <= settings.canary.acknowledge_s_max
    }

    /// Returns the rollback reason if a quorum of edges refuses the candidate.
    pub(super) fn refused_by_quorum(&self, settings: &Settings) -> Option<RollbackReason> {
        let candidate = self.candidate.as_ref()?;
        let voters = self.voters(settings);
        let (refusing, of) =
            (voters.iter().filter(|(_, it)| it.refuses(candidate.bundle.checksum())), voters.len());
        let refusing: Vec<_> = refusing.collect();
        let (edge, refusal) =
            refusing.first().and_then(|(name, it)| Some((*name, it.refused_candidate.as_ref()?)))?;
        (refusing.len() >= needed(settings, of)).then(|| RollbackReason::Refused {
            edge: edge.clone(),
            reason: refusal.reason.clone(),
            refusing: refusing.len(),
            of,
        })
    }

    /// Returns whether a quorum of edges refuses the candidate or was chosen as a canary without
    /// acknowledging it.
    pub(super) fn is_unacknowledged_by_quorum(&self, settings: &Settings) -> bool {
        let Some(candidate) = &self.candidate else { return false };
        let voters = self.voters(settings);
        let is_failed = |(name, edge): &&(&String, &Edge)| {
            candidate.canaries.get(*name) == Some(&false) || edge.refuses(candidate.bundle.checksum())
        };
        voters.iter().filter(is_failed).count() >= needed(settings, voters.len())
    }

    /// Returns the number of canaries that must stop serving for a rollback.
    pub(super) fn stopped_min(&self, settings: &Settings) -> usize {
        QUORUM_EDGES_MIN.min(self.voters(settings).len())
    }

    /// Removes a canary that refuses the candidate, and chooses another.
    pub(super) fn exclude(&mut self, settings: &Settings, name: &str, now_unix_s: u64) -> Vec<Transition> {
        let Some(candidate) = &mut self.candidate else { return Vec::new() };
        candidate.canaries.remove(name);
        if candidate.canaries.is_empty() {
            candidate.stage = Stage::Unassigned;
            return self.choose_canaries(settings, now_unix_s).into_iter().collect();
        }
        let Stage::Assigned { .. } = candidate.stage else { return Vec::new() };
        let replacement = self.next_canary(settings);
        let now_s = self.clock.own_s;
        let Some(candidate) = &mut self.candidate else { return Vec::new() };
        if let Some(edge) = replacement {
            return vec![candidate.assign_to(vec![edge])];
        }
        let (acknowledged, canaries) = (candidate.acknowledging().len(), candidate.canaries.len());
        let Stage::Assigned { wanted, .. } = &mut candidate.stage else { return Vec::new() };
        *wanted = canaries.min(*wanted);
        if acknowledged >= *wanted { vec![candidate.watch(now_s, now_unix_s)] } else { Vec::new() }
    }

    /// Makes room for another edge: at the limit, removes the edge that has been idle for longest.
    /// Edges with traffic and canaries are never removed. Returns whether there is room.
    pub(super) fn make_room(&mut self) -> bool {
        if self.edges.len() < EDGES_MAX {
            return true;
        }
        let is_canary =
            |name: &String| self.candidate.as_ref().is_some_and(|it| it.canaries.contains_key(name));
        let idle = self.edges.iter().filter(|(name, edge)| !edge.serves() && !is_canary(name));
        let oldest = idle.min_by_key(|(_, edge)| edge.heard_s).map(|(name, _)| name.clone());
        oldest.is_some_and(|name| self.edges.remove(&name).is_some())
    }
}

/// Returns how many of `voters` edges with a vote cause a rollback.
fn needed(settings: &Settings, voters: usize) -> usize {
    let share = (voters as f64 * settings.canary.quorum).ceil() as usize;
    share.max(QUORUM_EDGES_MIN).min(voters).max(1)
}
