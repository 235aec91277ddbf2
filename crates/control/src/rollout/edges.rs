//! The rollout's view of edges: polls, bundles in force, refusals, silence, and the choice of
//! canaries.

use thalweg_bundle::{Bundle, REASON_BYTES_MAX};
use twox_hash::XxHash3_64;

use super::follow::one_line;
use super::{Candidate, Edge, Refusal, RollbackReason, Rollout, Stage, Transition};
use crate::decide::BUNDLES_BELIEVED_MAX;
use crate::figures::EDGES_MAX;
use crate::settings::Settings;
use crate::tenants::Tenants;

/// Maximum length of an edge name, in bytes, as in DNS.
pub const EDGE_NAME_BYTES_MAX: usize = 253;
/// Maximum length of a checksum, in bytes: see
/// [`Bundle::checksum`](thalweg_bundle::Bundle::checksum).
pub(super) const CHECKSUM_BYTES_MAX: usize = 71;
/// Time since its last poll after which an edge is removed: one day, in seconds.
const FORGOTTEN_S: u64 = 86_400;

/// A poll by an edge for its bundle, with the edge's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poll<'a> {
    /// Edge name. Must match the host in the edge's records; otherwise no window contains the
    /// edge's traffic.
    pub edge: &'a str,
    /// Checksum of the bundle in force, if any.
    pub in_force: Option<&'a str>,
    /// Number of the bundle in force, if the edge reports it.
    pub number: Option<u64>,
    /// Checksum and reason of a refused bundle, if any. Callers omit a refusal without a checksum,
    /// because it is not about a bundle from this controller.
    pub refused: Option<&'a Refusal>,
}

impl Rollout {
    /// Handles a poll. [`Rollout::document`] then returns the edge's bundle. Edges with an invalid
    /// name are not tracked and get the stable bundle. The same applies to edges beyond
    /// [`EDGES_MAX`] while all known edges have traffic.
    pub fn poll(
        &mut self,
        settings: &Settings,
        tenants: &mut Tenants,
        poll: Poll,
        now_unix_s: u64,
    ) -> Vec<Transition> {
        self.advance(settings, now_unix_s);
        if !(1..=EDGE_NAME_BYTES_MAX).contains(&poll.edge.len()) {
            return Vec::new();
        }
        if !self.edges.contains_key(poll.edge) {
            if !self.make_room() {
                return Vec::new();
            }
            self.edges.insert(poll.edge.to_owned(), Edge::default());
        }
        self.record_contact(poll, now_unix_s);
        tenants.advance_bundle_number(self.newest);
        let mut transitions: Vec<_> = self.record_refusal(poll).into_iter().collect();
        if matches!(transitions[..], [Transition::CanaryRefused { .. }]) {
            transitions.extend(match self.refused_by_quorum(settings) {
                Some(why) => self.roll_back(settings, tenants, why, now_unix_s),
                None => self.exclude(settings, poll.edge, now_unix_s),
            });
        }
        transitions.extend(self.record_acknowledgement(poll, now_unix_s));
        transitions.extend(self.choose_canaries(settings, now_unix_s));
        transitions
    }

    fn record_contact(&mut self, poll: Poll, now_unix_s: u64) {
        let in_force = poll.in_force.filter(|checksum| checksum.len() <= CHECKSUM_BYTES_MAX);
        let out = self.stable.iter().chain(self.candidate.iter().map(|it| &it.bundle));
        let number = out
            .filter(|bundle| Some(bundle.checksum()) == in_force)
            .map(|bundle| bundle.content().number)
            .next();
        // An unknown bundle may come from an earlier controller, or from this controller before it
        // lost its state. The bundle's number must not be reused.
        let highest = if self.has_vote(poll.edge) { BUNDLES_BELIEVED_MAX } else { self.newest };
        let reported = poll.number.filter(|number| in_force.is_some() && *number <= highest);
        self.newest = self.newest.max(reported.unwrap_or(0));
        let number = number.or(reported);
        let heard_s = self.clock.own_s;
        let Some(edge) = self.edges.get_mut(poll.edge) else { return };
        (edge.heard_unix_s, edge.heard_s, edge.is_silent) = (now_unix_s, heard_s, false);
        if number.is_some() || edge.in_force.as_deref() != in_force {
            (edge.number, edge.in_force) = (number, in_force.map(str::to_owned));
        }
    }

    /// Stores a refusal of the bundle assigned to the edge, and reports the refusal if it is new.
    /// Refusals of older bundles are ignored.
    fn record_refusal(&mut self, poll: Poll) -> Option<Transition> {
        let Refusal { checksum, reason } = poll.refused?;
        let given = self.assigned(poll.edge).filter(|bundle| bundle.checksum() == *checksum)?;
        let number = given.content().number;
        let refusal = Refusal { checksum: checksum.clone(), reason: one_line(reason, REASON_BYTES_MAX) };
        let (edge, reason) = (poll.edge.to_owned(), refusal.reason.clone());
        let known = self.edges.get_mut(poll.edge)?;
        if self.candidate.as_ref().is_some_and(|it| it.canaries.contains_key(poll.edge)) {
            // An earlier candidate may be the stable bundle by now.
            let stable = self.stable.as_ref().map(Bundle::checksum);
            let before = known.refused_candidate.replace(refusal);
            let before = before.filter(|before| Some(before.checksum.as_str()) == stable);
            known.refused = before.or(known.refused.take());
            return Some(Transition::CanaryRefused { edge, number, reason });
        }
        let before = known.refused.replace(refusal);
        let was_reported = before.is_some_and(|before| before.checksum == *checksum);
        (!was_reported).then_some(Transition::EdgeRefused { edge, number, reason })
    }

    /// Marks whether a canary uses the candidate, judging by its bundle in force.
    fn record_acknowledgement(&mut self, poll: Poll, now_unix_s: u64) -> Option<Transition> {
        let candidate = self.candidate.as_mut()?;
        let none_did = candidate.acknowledging().is_empty();
        let uses_it = candidate.canaries.get_mut(poll.edge)?;
        let stable = self.stable.as_ref().map(Bundle::checksum);
        if poll.in_force == Some(candidate.bundle.checksum()) {
            *uses_it = true;
        } else if poll.in_force.is_none() || poll.in_force == stable {
            *uses_it = false;
        } // otherwise, it may still use an earlier version of a reduced candidate
        if let Stage::Watched { since_unix_s, .. } = &mut candidate.stage
            && none_did
        {
            *since_unix_s = now_unix_s; // the candidate was not in use for the whole window
        }
        let Stage::Assigned { wanted, .. } = candidate.stage else { return None };
        let is_enough = candidate.acknowledging().len() >= wanted;
        is_enough.then(|| candidate.watch(self.clock.own_s, now_unix_s))
    }

    /// Advances the clock and handles expired waits. Must be called at least twice a minute.
    pub fn tick(&mut self, settings: &Settings, tenants: &mut Tenants, now_unix_s: u64) -> Vec<Transition> {
        self.advance(settings, now_unix_s);
        let mut transitions = self.report_silent(settings.canary.acknowledge_s_max);
        self.reset_silent_canaries();
        let now_s = self.clock.own_s;
        let Some(candidate) = &self.candidate else { return transitions };
        transitions.extend(match candidate.stage {
            // The edges that refuse may now be a quorum, because other edges have become silent.
            Stage::Unassigned => match self.refused_by_quorum(settings) {
                Some(why) => self.roll_back(settings, tenants, why, now_unix_s),
                None => Vec::new(),
            },
            Stage::Assigned { since_s, is_second, .. } => {
                if now_s.saturating_sub(since_s) <= settings.canary.acknowledge_s_max {
                    Vec::new()
                } else if is_second {
                    self.watch_fewer(settings, tenants, now_unix_s)
                } else {
                    self.replace_canaries(settings)
                }
            }
            Stage::Watched { since_s, .. } => {
                // Allow time for the window open at the start, the windows to wait for, and one
                // more window.
                let windows = u64::from(settings.canary.windows_max).saturating_add(2);
                let span_s = windows
                    .saturating_mul(settings.window_s)
                    .saturating_add(settings.late_s.saturating_mul(2));
                if now_s.saturating_sub(since_s) <= span_s {
                    Vec::new()
                } else {
                    self.roll_back(settings, tenants, RollbackReason::NoWindows, now_unix_s)
                }
            }
        });
        transitions
    }

    /// Reports edges that have become silent, and removes edges after a day without a poll.
    fn report_silent(&mut self, silent_s: u64) -> Vec<Transition> {
        let now_s = self.clock.own_s;
        let quiet_s = |edge: &Edge| now_s.saturating_sub(edge.heard_s);
        self.edges.retain(|_, edge| quiet_s(edge) <= FORGOTTEN_S);
        let mut transitions = Vec::new();
        for (name, edge) in &mut self.edges {
            if !edge.is_silent && quiet_s(edge) > silent_s {
                edge.is_silent = true;
                transitions.push(Transition::EdgeSilent { edge: name.clone() });
            }
        }
        transitions
    }

    /// Stops counting silent canaries as using the candidate. If no other canary uses it, the stage
    /// returns to waiting for acknowledgements.
    fn reset_silent_canaries(&mut self) {
        let (edges, now_s) = (&self.edges, self.clock.own_s);
        let Some(candidate) = &mut self.candidate else { return };
        let is_silent = |name: &String| edges.get(name).is_none_or(|edge| edge.is_silent);
        for (_, uses_it) in candidate.canaries.iter_mut().filter(|(name, _)| is_silent(name)) {
            *uses_it = false;
        }
        if matches!(candidate.stage, Stage::Watched { .. }) && candidate.acknowledging().is_empty() {
            let wanted = candidate.canaries.len();
            candidate.stage = Stage::Assigned { since_s: now_s, wanted, is_second: false };
        }
    }

    /// Chooses canaries for a candidate that has none yet.
    pub(super) fn choose_canaries(&mut self, settings: &Settings, now_unix_s: u64) -> Option<Transition> {
        let candidate = self.candidate.as_ref().filter(|it| it.stage == Stage::Unassigned)?;
        let eligible = self.eligible_edges(settings, candidate);
        let wanted = (eligible.len() as f64 * settings.canary.share).ceil() as usize;
        let edges: Vec<_> = eligible.into_iter().take(wanted).collect();
        let candidate = self.candidate.as_mut().filter(|_| !edges.is_empty())?;
        candidate.since_unix_s = now_unix_s;
        candidate.stage = Stage::Assigned { since_s: self.clock.own_s, wanted, is_second: false };
        Some(candidate.assign_to(edges))
    }

    /// Replaces canaries that did not acknowledge, once per candidate. A replaced canary still gets
    /// the candidate when it returns, because it may already use the candidate.
    fn replace_canaries(&mut self, settings: &Settings) -> Vec<Transition> {
        let Some(candidate) = &self.candidate else { return Vec::new() };
        let eligible = self.eligible_edges(settings, candidate);
        let now_s = self.clock.own_s;
        let Some(candidate) = &mut self.candidate else { return Vec::new() };
        let acknowledged = candidate.acknowledging().len();
        let Stage::Assigned { since_s, wanted, is_second } = &mut candidate.stage else { return Vec::new() };
        (*since_s, *is_second) = (now_s, true);
        let missing = wanted.saturating_sub(acknowledged);
        let edges: Vec<_> = eligible.into_iter().take(missing).collect();
        if edges.is_empty() { Vec::new() } else { vec![candidate.assign_to(edges)] }
    }

    /// Continues with the canaries that acknowledged. If no canary acknowledged, tries further
    /// edges, and rolls back once a quorum has not acknowledged or no further edge is left.
    fn watch_fewer(
        &mut self,
        settings: &Settings,
        tenants: &mut Tenants,
        now_unix_s: u64,
    ) -> Vec<Transition> {
        let now_s = self.clock.own_s;
        if let Some(candidate) = self.candidate.as_mut().filter(|it| !it.acknowledging().is_empty()) {
            return vec![candidate.watch(now_s, now_unix_s)];
        }
        if !self.is_unacknowledged_by_quorum(settings) {
            let replaced = self.replace_canaries(settings);
            if !replaced.is_empty() {
                return replaced;
            }
        }
        self.roll_back(settings, tenants, RollbackReason::Unacknowledged, now_unix_s)
    }

    /// Returns the best edge that can become a canary.
    pub(super) fn next_canary(&self, settings: &Settings) -> Option<String> {
        self.eligible_edges(settings, self.candidate.as_ref()?).into_iter().next()
    }

    /// Returns the edges that can become canaries: they polled recently, do not refuse the
    /// candidate and are not canaries already. If any of them has traffic, only those are returned,
    /// because only they can be observed. Edges that refuse the stable bundle come last. A hash
    /// breaks ties, so that the choice varies between candidates.
    fn eligible_edges(&self, settings: &Settings, candidate: &Candidate) -> Vec<String> {
        let number = candidate.bundle.content().number;
        let may = |name: &String, edge: &Edge| {
            let is_tried = candidate.canaries.contains_key(name);
            self.is_live(settings, edge) && !is_tried && !edge.refuses(candidate.bundle.checksum())
        };
        let order = |name: &String| {
            (self.document(name).is_none(), XxHash3_64::oneshot_with_seed(number, name.as_bytes()))
        };
        let mut edges: Vec<_> = self.edges.iter().filter(|(name, edge)| may(name, edge)).collect();
        if edges.iter().any(|(_, edge)| edge.serves()) {
            edges.retain(|(_, edge)| edge.serves());
        }
        edges.sort_unstable_by_key(|(name, _)| order(name));
        let room = EDGES_MAX.saturating_sub(candidate.canaries.len());
        edges.into_iter().take(room).map(|(name, _)| name.clone()).collect()
    }
}

impl Candidate {
    pub(super) fn assign_to(&mut self, edges: Vec<String>) -> Transition {
        self.canaries.extend(edges.iter().map(|edge| (edge.clone(), false)));
        Transition::Canaries { number: self.bundle.content().number, edges }
    }

    pub(super) fn watch(&mut self, now_s: u64, now_unix_s: u64) -> Transition {
        self.stage = Stage::Watched {
            since_s: now_s,
            since_unix_s: now_unix_s,
            windows: 0,
            unseen: 0,
            own: Default::default(),
            others: Default::default(),
        };
        Transition::Acknowledged { number: self.bundle.content().number }
    }
}
