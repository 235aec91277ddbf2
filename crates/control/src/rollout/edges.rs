//! Edges: who is heard, what they go by and refuse, who of them are canaries, and what becomes of those that are silent.

use thalweg_bundle::{Bundle, REASON_BYTES_MAX};
use twox_hash::XxHash3_64;

use super::follow::one_line;
use super::{Candidate, Edge, Refusal, Rollout, Stage, Transition, Why};
use crate::decide::BUNDLES_BELIEVED_MAX;
use crate::figures::EDGES_MAX;
use crate::settings::Settings;
use crate::tenants::Tenants;

/// Bytes of an edge's name: what a DNS name can have.
pub const EDGE_NAME_BYTES_MAX: usize = 253;
/// Bytes of a checksum: see [`Bundle::checksum`](thalweg_bundle::Bundle::checksum).
pub(super) const CHECKSUM_BYTES_MAX: usize = 71;
/// After so long an edge that is heard no more is forgotten, seconds: a day.
const FORGOTTEN_S: u64 = 86_400;

/// What an edge says when it asks for its bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poll<'a> {
    /// Its name: the host of its records, else no window tells of it.
    pub edge: &'a str,
    /// The checksum of the bundle that it goes by; absent if it has none.
    pub in_force: Option<&'a str>,
    /// The number of that, where it says so.
    pub number: Option<u64>,
    /// The checksum and the reason, if it refuses one. A refusal of what has no checksum is of no bundle of ours: it is not told
    /// here.
    pub refused: Option<(&'a str, &'a str)>,
}

impl Rollout {
    /// Hears an edge. What it is to have is [`Rollout::document`] afterwards. Of more than [`EDGES_MAX`] edges, and of one without a proper
    /// name, nothing is kept: these get what all get.
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
            if self.edges.len() == EDGES_MAX {
                return Vec::new();
            }
            self.edges.insert(poll.edge.to_owned(), Edge::default());
        }
        self.hear(poll, now_unix_s);
        tenants.go_on_from(self.newest);
        let mut told = match self.hear_refusal(poll) {
            Ok(told) => told.into_iter().collect(),
            Err(why) => self.roll_back(settings, tenants, why, now_unix_s),
        };
        told.extend(self.hear_acknowledgement(poll, now_unix_s));
        told.extend(self.choose(settings, now_unix_s));
        told
    }

    fn hear(&mut self, poll: Poll, now_unix_s: u64) {
        let in_force = poll.in_force.filter(|checksum| checksum.len() <= CHECKSUM_BYTES_MAX);
        let out = self.stable.iter().chain(self.candidate.iter().map(|it| &it.bundle));
        let number = out
            .filter(|bundle| Some(bundle.checksum()) == in_force)
            .map(|bundle| bundle.content().number)
            .next();
        // What is out no more may be of a controller before this one, or of this one before it lost what it knew: no number is given again.
        let told = poll.number.filter(|number| in_force.is_some() && *number <= BUNDLES_BELIEVED_MAX);
        self.newest = self.newest.max(told.unwrap_or(0));
        let number = number.or(told);
        let heard_s = self.clock.own_s;
        let Some(edge) = self.edges.get_mut(poll.edge) else { return };
        (edge.heard_unix_s, edge.heard_s, edge.is_silent) = (now_unix_s, heard_s, false);
        if number.is_some() || edge.in_force.as_deref() != in_force {
            (edge.number, edge.in_force) = (number, in_force.map(str::to_owned));
        }
    }

    /// A refusal counts of what the edge is to have; others are about what is out no more.
    ///
    /// # Errors
    /// A canary's: the candidate is to be rolled back.
    fn hear_refusal(&mut self, poll: Poll) -> Result<Option<Transition>, Why> {
        let Some((checksum, reason)) = poll.refused else { return Ok(None) };
        let Some(given) = self.given(poll.edge).filter(|bundle| bundle.checksum() == checksum) else {
            return Ok(None);
        };
        let number = given.content().number;
        let refusal = Refusal { checksum: checksum.to_owned(), reason: one_line(reason, REASON_BYTES_MAX) };
        let (edge, reason) = (poll.edge.to_owned(), refusal.reason.clone());
        let Some(known) = self.edges.get_mut(poll.edge) else { return Ok(None) };
        let before = known.refused.replace(refusal);
        let is_canary = self.candidate.as_ref().is_some_and(|it| it.canaries.contains_key(poll.edge));
        if is_canary {
            return Err(Why::Refused { edge, reason });
        }
        let is_told = before.is_some_and(|before| before.checksum == checksum);
        Ok((!is_told).then_some(Transition::EdgeRefused { edge, number, reason }))
    }

    /// A canary acknowledges the candidate by what it goes by, for as long as it does.
    fn hear_acknowledgement(&mut self, poll: Poll, now_unix_s: u64) -> Option<Transition> {
        let candidate = self.candidate.as_mut()?;
        let none_did = candidate.acknowledging().is_empty();
        let goes_by_it = candidate.canaries.get_mut(poll.edge)?;
        let stable = self.stable.as_ref().map(Bundle::checksum);
        if poll.in_force == Some(candidate.bundle.checksum()) {
            *goes_by_it = true;
        } else if poll.in_force.is_none() || poll.in_force == stable {
            *goes_by_it = false;
        } // else it may be the candidate of before, of which something was taken back
        if let Stage::Watched { since_unix_s, .. } = &mut candidate.stage
            && none_did
        {
            *since_unix_s = now_unix_s; // part of the window was not by the candidate
        }
        let Stage::Handed { wanted, .. } = candidate.stage else { return None };
        let is_enough = candidate.acknowledging().len() >= wanted;
        is_enough.then(|| candidate.watch(self.clock.own_s, now_unix_s))
    }

    /// Tells the time, at least twice each minute.
    pub fn tick(&mut self, settings: &Settings, tenants: &mut Tenants, now_unix_s: u64) -> Vec<Transition> {
        self.advance(settings, now_unix_s);
        let mut told = self.miss(settings.canary.acknowledge_s_max);
        self.miss_canaries();
        let now_s = self.clock.own_s;
        let Some(candidate) = &self.candidate else { return told };
        told.extend(match candidate.stage {
            Stage::Unheard => Vec::new(),
            Stage::Handed { since_s, is_second, .. } => {
                if now_s.saturating_sub(since_s) <= settings.canary.acknowledge_s_max {
                    Vec::new()
                } else if is_second {
                    self.go_on_with_fewer(settings, tenants, now_unix_s)
                } else {
                    self.choose_others(settings)
                }
            }
            Stage::Watched { since_s, .. } => {
                // The window that was open, those that are waited for, and one more.
                let windows = u64::from(settings.canary.windows_max).saturating_add(2);
                let span_s = windows
                    .saturating_mul(settings.window_s)
                    .saturating_add(settings.late_s.saturating_mul(2));
                if now_s.saturating_sub(since_s) <= span_s {
                    Vec::new()
                } else {
                    self.roll_back(settings, tenants, Why::Unobserved, now_unix_s)
                }
            }
        });
        told
    }

    /// Tells edges that are heard no more, and forgets them in the end.
    fn miss(&mut self, silent_s: u64) -> Vec<Transition> {
        let now_s = self.clock.own_s;
        let quiet_s = |edge: &Edge| now_s.saturating_sub(edge.heard_s);
        self.edges.retain(|_, edge| quiet_s(edge) <= FORGOTTEN_S);
        let mut told = Vec::new();
        for (name, edge) in &mut self.edges {
            if !edge.is_silent && quiet_s(edge) > silent_s {
                edge.is_silent = true;
                told.push(Transition::EdgeSilent { edge: name.clone() });
            }
        }
        told
    }

    /// A canary that is silent does not count as one that goes by the candidate. Where none is left, it is as before any had acknowledged.
    fn miss_canaries(&mut self) {
        let (edges, now_s) = (&self.edges, self.clock.own_s);
        let Some(candidate) = &mut self.candidate else { return };
        let is_silent = |name: &String| edges.get(name).is_none_or(|edge| edge.is_silent);
        for (_, goes_by_it) in candidate.canaries.iter_mut().filter(|(name, _)| is_silent(name)) {
            *goes_by_it = false;
        }
        if matches!(candidate.stage, Stage::Watched { .. }) && candidate.acknowledging().is_empty() {
            let wanted = candidate.canaries.len();
            candidate.stage = Stage::Handed { since_s: now_s, wanted, is_second: false };
        }
    }

    /// Chooses the canaries of a candidate that has none.
    pub(super) fn choose(&mut self, settings: &Settings, now_unix_s: u64) -> Option<Transition> {
        let candidate = self.candidate.as_ref().filter(|it| it.stage == Stage::Unheard)?;
        let heard = self.heard(settings, candidate);
        let wanted = (heard.len() as f64 * settings.canary.share).ceil() as usize;
        let edges: Vec<_> = heard.into_iter().take(wanted).collect();
        let candidate = self.candidate.as_mut().filter(|_| !edges.is_empty())?;
        candidate.since_unix_s = now_unix_s;
        candidate.stage = Stage::Handed { since_s: self.clock.own_s, wanted, is_second: false };
        Some(candidate.hand_to(edges))
    }

    /// Chooses others for canaries that do not acknowledge, once. Those before still get the candidate when they come back: they may go
    /// by it already.
    fn choose_others(&mut self, settings: &Settings) -> Vec<Transition> {
        let Some(candidate) = &self.candidate else { return Vec::new() };
        let heard = self.heard(settings, candidate);
        let now_s = self.clock.own_s;
        let Some(candidate) = &mut self.candidate else { return Vec::new() };
        let acknowledged = candidate.acknowledging().len();
        let Stage::Handed { since_s, wanted, is_second } = &mut candidate.stage else { return Vec::new() };
        (*since_s, *is_second) = (now_s, true);
        let missing = wanted.saturating_sub(acknowledged);
        let edges: Vec<_> = heard.into_iter().take(missing).collect();
        if edges.is_empty() { Vec::new() } else { vec![candidate.hand_to(edges)] }
    }

    /// Goes on with the canaries that have acknowledged, if there are any.
    fn go_on_with_fewer(
        &mut self,
        settings: &Settings,
        tenants: &mut Tenants,
        now_unix_s: u64,
    ) -> Vec<Transition> {
        let now_s = self.clock.own_s;
        match self.candidate.as_mut().filter(|it| !it.acknowledging().is_empty()) {
            Some(candidate) => vec![candidate.watch(now_s, now_unix_s)],
            None => self.roll_back(settings, tenants, Why::Unacknowledged, now_unix_s),
        }
    }

    /// Edges that may become canaries: heard not long ago, and none already. Last those that refuse what all have; before them those that
    /// serve, so that something is seen; among these by a hash, so that it is not always the same.
    fn heard(&self, settings: &Settings, candidate: &Candidate) -> Vec<String> {
        let number = candidate.bundle.content().number;
        let may = |name: &String, edge: &Edge| {
            let quiet_s = self.clock.own_s.saturating_sub(edge.heard_s);
            quiet_s <= settings.canary.acknowledge_s_max && !candidate.canaries.contains_key(name)
        };
        let order = |name: &String, edge: &Edge| {
            let serves = edge.before.as_ref().is_some_and(|before| before.responses > 0);
            (self.document(name).is_none(), !serves, XxHash3_64::oneshot_with_seed(number, name.as_bytes()))
        };
        let edges = self.edges.iter().filter(|(name, edge)| may(name, edge));
        let mut edges: Vec<_> = edges.map(|(name, edge)| (order(name, edge), name)).collect();
        edges.sort_unstable();
        edges.into_iter().map(|(_, name)| name.clone()).collect()
    }
}

impl Candidate {
    fn hand_to(&mut self, edges: Vec<String>) -> Transition {
        self.canaries.extend(edges.iter().map(|edge| (edge.clone(), false)));
        Transition::Canaries { number: self.bundle.content().number, edges }
    }

    fn watch(&mut self, now_s: u64, now_unix_s: u64) -> Transition {
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
