//! Canary monitoring: after each window, compares the canaries' figures with their own past figures
//! and with those of the other edges.
//!
//! A rollback requires that the canaries perform worse in both comparisons. A change that affects
//! all edges, such as evening load, is not attributed to the candidate, and neither is a lasting
//! property of an edge. With too few connections, there is no verdict. A window without canary
//! traffic does not count, so the candidate waits.

use super::transition::Figure;
use super::{Candidate, Edge, RollbackReason, Rollout, Stage, Transition};
use crate::figures::EdgeFigures;
use crate::sequential::Mean;
use crate::settings::Settings;
use crate::tenants::Tenants;
use crate::window::Window;

/// Minimum difference, in standard errors, for canaries to count as worse. For normally distributed
/// means, chance alone exceeds it once in 30,000 looks. The limit is twice the usual margin,
/// because there are three figures, each window is a look, and edges differ by more than chance.
const STANDARD_ERRORS_MIN: f64 = 4.0;
/// Minimum number of responses per window for an edge to count as serving traffic.
const SERVING_RESPONSES_MIN: u64 = 100;
/// Share of an edge's usual number of responses below which the edge has practically stopped
/// serving.
const SERVING_SHARE_MIN: f64 = 0.1;

impl Rollout {
    /// Observes a closed window before it is decided: promotes the candidate, rolls it back, or
    /// keeps watching.
    pub fn observe(
        &mut self,
        settings: &Settings,
        tenants: &mut Tenants,
        window: &Window,
        now_unix_s: u64,
    ) -> Vec<Transition> {
        self.advance(settings, now_unix_s);
        let has_candidate = self.candidate.is_some();
        let transitions = self.observe_candidate(settings, tenants, window, now_unix_s);
        if has_candidate && self.candidate.is_none() {
            // The next candidate may follow at once. Without past figures, an edge would have no
            // vote on the next candidate.
            self.update_past_figures(window);
        }
        transitions
    }

    fn observe_candidate(
        &mut self,
        settings: &Settings,
        tenants: &mut Tenants,
        window: &Window,
        now_unix_s: u64,
    ) -> Vec<Transition> {
        let now_s = self.clock.own_s;
        match self.candidate.as_mut().map(|it| &mut it.stage) {
            None | Some(Stage::Unassigned) => {
                self.update_past_figures(window);
                return Vec::new();
            }
            // The figures from before the candidate remain the baseline.
            Some(Stage::Assigned { .. }) => return Vec::new(),
            Some(Stage::Watched { since_s, since_unix_s, .. }) => {
                if window.number.saturating_mul(settings.window_s) < *since_unix_s {
                    return Vec::new();
                }
                *since_s = now_s;
            }
        }
        match self.stopped_canaries(settings, window) {
            Stopped::Few => {}
            Stopped::Alone(edge) => {
                let number = self.candidate.as_ref().map_or(0, |it| it.bundle.content().number);
                let stopped = Transition::CanaryStopped { edge, number };
                return [stopped].into_iter().chain(self.add_canary(settings)).collect();
            }
            Stopped::TooMany(why) => return self.roll_back(settings, tenants, why, now_unix_s),
        }
        let Some(windows) = self.watch(window) else {
            let mut transitions: Vec<_> = self.report_no_canary_traffic(settings).into_iter().collect();
            // One edge without records must not hold up the others.
            if !transitions.is_empty() && window.edges.values().any(|it| it.responses > 0) {
                transitions.extend(self.add_canary(settings));
            }
            return transitions;
        };
        match self.judge(settings) {
            Verdict::Worse(why) => self.roll_back(settings, tenants, why, now_unix_s),
            Verdict::Good if windows >= settings.canary.windows => self.promote(true),
            Verdict::TooFew if windows >= settings.canary.windows_max => self.promote(false),
            Verdict::Good | Verdict::TooFew => Vec::new(),
        }
    }

    fn update_past_figures(&mut self, window: &Window) {
        let nothing = EdgeFigures::default();
        for (name, edge) in &mut self.edges {
            let seen = window.edges.get(name);
            edge.before = match (&edge.before, seen) {
                (Some(before), seen) => Some(before.decayed_with(seen.unwrap_or(&nothing))),
                (None, seen) => seen.cloned(),
            };
        }
    }

    /// Adds a window if it has traffic from a canary using the candidate. Returns the number of
    /// windows added so far.
    fn watch(&mut self, window: &Window) -> Option<u32> {
        let Candidate { canaries, stage, .. } = self.candidate.as_mut()?;
        let Stage::Watched { windows, unseen, own, others, .. } = stage else { return None };
        let is_active_canary =
            |(name, it): (&String, &EdgeFigures)| it.responses > 0 && canaries.get(name) == Some(&true);
        if !window.edges.iter().any(is_active_canary) {
            *unseen = unseen.saturating_add(1);
            return None;
        }
        (*windows, *unseen) = (windows.saturating_add(1), 0);
        for (name, figures) in window.edges.iter() {
            match canaries.get(name) {
                Some(true) => own.merge(figures),
                // It is unknown which bundle this canary uses.
                Some(false) => {}
                None => others.merge(figures),
            }
        }
        Some(*windows)
    }

    /// Reports, once, that the candidate has waited for [`Canary::windows_max`](super::Canary)
    /// windows without canary traffic.
    fn report_no_canary_traffic(&self, settings: &Settings) -> Option<Transition> {
        let candidate = self.candidate.as_ref()?;
        let Stage::Watched { unseen, .. } = candidate.stage else { return None };
        let (number, edges) = (candidate.bundle.content().number, candidate.acknowledging());
        (unseen == settings.canary.windows_max).then_some(Transition::NoCanaryTraffic { number, edges })
    }

    /// Judges the canaries by all windows watched so far.
    fn judge(&self, settings: &Settings) -> Verdict {
        let Some(candidate) = &self.candidate else { return Verdict::TooFew };
        let Stage::Watched { own, others, .. } = &candidate.stage else { return Verdict::TooFew };
        let mut before = EdgeFigures::default();
        let canaries = candidate.canaries.iter().filter(|(_, uses_it)| **uses_it);
        let known = canaries.filter_map(|(name, _)| self.edges.get(name)?.before.as_ref());
        known.for_each(|figures| before.merge(figures));
        let limits = &settings.canary;
        let least = u64::from(settings.evidence_connections_min);
        for (figure, of, rise_max) in [
            (Figure::Failed, (|it| &it.failed) as fn(&EdgeFigures) -> &Mean, limits.failed_rise_max),
            (Figure::Retransmitted, |it| &it.retransmitted, limits.retransmitted_rise_max),
            (Figure::Goodput, |it| &it.ln_goodput, limits.goodput_drop_max),
        ] {
            let known = |figures| Some(of(figures)).filter(|mean| mean.count >= least);
            let Some(now) = known(own) else { continue };
            let (before, others) = (known(&before), known(others));
            let mut compared = before.iter().chain(&others).peekable();
            if compared.peek().is_some() && compared.all(|mean| is_worse(figure, now, mean, rise_max)) {
                let (before, others) = (before.map(|it| it.mean), others.map(|it| it.mean));
                return Verdict::Worse(RollbackReason::Worse { figure, now: now.mean, before, others });
            }
        }
        let is_known = |figures: &EdgeFigures| figures.failed.count >= least;
        let is_enough = is_known(own) && (is_known(&before) || is_known(others));
        if is_enough { Verdict::Good } else { Verdict::TooFew }
    }

    /// Finds canaries that practically stopped serving while other edges did not. Includes canaries
    /// without an acknowledgement, because the candidate may have crashed them.
    fn stopped_canaries(&self, settings: &Settings, window: &Window) -> Stopped {
        let Some(candidate) = &self.candidate else { return Stopped::Few };
        let now = |name: &String| window.edges.get(name).map_or(0, |figures| figures.responses);
        let before = |edge: &Edge| edge.before.as_ref().map_or(0, |figures| figures.responses);
        let others = self.edges.iter().filter(|(name, _)| !candidate.canaries.contains_key(*name));
        let (others_now, others_before) =
            others.filter(|(_, edge)| before(edge) > 0).fold((0_u64, 0_u64), |sum, (name, edge)| {
                (sum.0.saturating_add(now(name)), sum.1.saturating_add(before(edge)))
            });
        // If the other edges lost traffic too, expect proportionally less from a canary.
        let remaining = if others_before > 0 { others_now as f64 / others_before as f64 } else { 1.0 };
        let least = SERVING_SHARE_MIN * remaining.min(1.0);
        let has_stopped = |name: &&String| {
            let before = self.edges.get(*name).map_or(0, before);
            before >= SERVING_RESPONSES_MIN && (now(name) as f64) < before as f64 * least
        };
        let stopped: Vec<_> = candidate.canaries.keys().filter(has_stopped).collect();
        let Some(first) = stopped.first() else { return Stopped::Few };
        let is_seen =
            |(name, uses_it): (&String, &bool)| *uses_it && now(name) > 0 && !stopped.contains(&name);
        let is_another_seen = candidate.canaries.iter().any(is_seen);
        let is_last = !is_another_seen && self.next_canary(settings).is_none();
        if stopped.len() >= self.stopped_min(settings) || is_last {
            let before = self.edges.get(*first).map_or(0, before);
            let edge = (*first).clone();
            return Stopped::TooMany(RollbackReason::StoppedServing { edge, now: now(first), before });
        }
        if is_another_seen { Stopped::Few } else { Stopped::Alone((*first).clone()) }
    }

    /// Adds an edge with traffic, if there is one, to canaries that have no traffic.
    fn add_canary(&mut self, settings: &Settings) -> Option<Transition> {
        let next =
            self.next_canary(settings).filter(|name| self.edges.get(name).is_some_and(Edge::serves))?;
        let (candidate, since_s) = (self.candidate.as_mut()?, self.clock.own_s);
        let wanted = candidate.acknowledging().len() + 1;
        candidate.stage = Stage::Assigned { since_s, wanted, is_second: true };
        Some(candidate.assign_to(vec![next]))
    }
}

/// How many canaries stopped serving.
enum Stopped {
    /// None, or fewer than the limit while another canary serves.
    Few,
    /// Fewer than the limit, and no other canary serves.
    Alone(String),
    /// Enough for a rollback.
    TooMany(RollbackReason),
}

/// Verdict on the canaries so far.
#[derive(Debug)]
enum Verdict {
    TooFew,
    Good,
    Worse(RollbackReason),
}

/// Returns whether `now` is worse than `than` by more than the limit and by more than chance.
fn is_worse(figure: Figure, now: &Mean, than: &Mean, rise_max: f64) -> bool {
    let rise = match figure {
        Figure::Failed | Figure::Retransmitted => now.mean - than.mean,
        Figure::Goodput => than.mean - now.mean,
    };
    // The variance is `None` if all values are equal.
    let variance = |mean: &Mean| mean.variance_of_mean().unwrap_or_default();
    rise > rise_max && rise > STANDARD_ERRORS_MIN * (variance(now) + variance(than)).sqrt()
}
