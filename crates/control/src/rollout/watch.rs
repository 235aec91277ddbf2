//! Canaries are watched: a window tells how they do beside what they did before and what the others do.
//!
//! They have to do worse than both. What slows all edges, such as an evening, is no fault of the candidate; what an edge always
//! was is neither. Of few connections nothing is concluded, and of a window that tells of no canary nothing at all: the candidate waits.

use super::transition::Figure;
use super::{Candidate, Edge, Rollout, Stage, Transition, Why};
use crate::figures::Figures;
use crate::sequential::Mean;
use crate::settings::Settings;
use crate::tenants::Tenants;
use crate::window::Window;

/// Standard errors by which canaries have to do worse: by chance once in 30,000 looks, were means of so few connections normal. Twice as much
/// as is usual, as there are three figures, each window is a look, and edges differ by more than chance.
const STANDARD_ERRORS_MIN: f64 = 4.0;
/// Responses of a window without which an edge does not count as one that serves.
const SERVING_RESPONSES_MIN: u64 = 100;
/// The share of its responses below which an edge serves next to nothing.
const SERVING_SHARE_MIN: f64 = 0.1;

impl Rollout {
    /// Takes a closed window, before it is decided: the candidate goes to all, is taken back, or is watched on.
    pub fn observe(
        &mut self,
        settings: &Settings,
        tenants: &mut Tenants,
        window: &Window,
        now_unix_s: u64,
    ) -> Vec<Transition> {
        self.advance(settings, now_unix_s);
        let now_s = self.clock.own_s;
        match self.candidate.as_mut().map(|it| &mut it.stage) {
            None | Some(Stage::Unheard) => {
                self.remember(window);
                return Vec::new();
            }
            // What edges did before stays what they are compared with.
            Some(Stage::Handed { .. }) => return Vec::new(),
            Some(Stage::Watched { since_s, since_unix_s, .. }) => {
                if window.number.saturating_mul(settings.window_s) < *since_unix_s {
                    return Vec::new();
                }
                *since_s = now_s;
            }
        }
        if let Some(why) = self.serves_nothing(window) {
            return self.roll_back(settings, tenants, why, now_unix_s);
        }
        let Some(windows) = self.watch(window) else {
            return self.tell_unseen(settings).into_iter().collect();
        };
        match self.judge(settings) {
            Verdict::Worse(why) => self.roll_back(settings, tenants, why, now_unix_s),
            Verdict::Good if windows >= settings.canary.windows => self.promote(true),
            Verdict::TooFew if windows >= settings.canary.windows_max => self.promote(false),
            Verdict::Good | Verdict::TooFew => Vec::new(),
        }
    }

    fn remember(&mut self, window: &Window) {
        let nothing = Figures::default();
        for (name, edge) in &mut self.edges {
            let seen = window.edges.get(name);
            edge.before = match (&edge.before, seen) {
                (Some(before), seen) => Some(before.go_on(seen.unwrap_or(&nothing))),
                (None, seen) => seen.cloned(),
            };
        }
    }

    /// Adds a window, if it tells of a canary that goes by the candidate; how many those are then.
    fn watch(&mut self, window: &Window) -> Option<u32> {
        let Candidate { canaries, stage, .. } = self.candidate.as_mut()?;
        let Stage::Watched { windows, unseen, own, others, .. } = stage else { return None };
        let is_of_canary =
            |(name, it): (&String, &Figures)| it.responses > 0 && canaries.get(name) == Some(&true);
        if !window.edges.iter().any(is_of_canary) {
            *unseen = unseen.saturating_add(1);
            return None;
        }
        (*windows, *unseen) = (windows.saturating_add(1), 0);
        for (name, figures) in window.edges.iter() {
            match canaries.get(name) {
                Some(true) => own.merge(figures),
                // It is not known by what it goes.
                Some(false) => {}
                None => others.merge(figures),
            }
        }
        Some(*windows)
    }

    /// Tells once that it is waited for a window that tells of canaries, when there were as many without as are else enough.
    fn tell_unseen(&self, settings: &Settings) -> Option<Transition> {
        let candidate = self.candidate.as_ref()?;
        let Stage::Watched { unseen, .. } = candidate.stage else { return None };
        let (number, edges) = (candidate.bundle.content().number, candidate.acknowledging());
        (unseen == settings.canary.windows_max).then_some(Transition::Unseen { number, edges })
    }

    /// What the windows that were watched show together.
    fn judge(&self, settings: &Settings) -> Verdict {
        let Some(candidate) = &self.candidate else { return Verdict::TooFew };
        let Stage::Watched { own, others, .. } = &candidate.stage else { return Verdict::TooFew };
        let mut before = Figures::default();
        let canaries = candidate.canaries.iter().filter(|(_, goes_by_it)| **goes_by_it);
        let known = canaries.filter_map(|(name, _)| self.edges.get(name)?.before.as_ref());
        known.for_each(|figures| before.merge(figures));
        let limits = &settings.canary;
        let least = u64::from(settings.evidence_connections_min);
        for (figure, of, rise_max) in [
            (Figure::Failed, (|it| &it.failed) as fn(&Figures) -> &Mean, limits.failed_rise_max),
            (Figure::Retransmitted, |it| &it.retransmitted, limits.retransmitted_rise_max),
            (Figure::Goodput, |it| &it.ln_goodput, limits.goodput_drop_max),
        ] {
            let known = |figures| Some(of(figures)).filter(|mean| mean.count >= least);
            let Some(now) = known(own) else { continue };
            let (before, others) = (known(&before), known(others));
            let mut compared = before.iter().chain(&others).peekable();
            if compared.peek().is_some() && compared.all(|mean| is_worse(figure, now, mean, rise_max)) {
                let (before, others) = (before.map(|it| it.mean), others.map(|it| it.mean));
                return Verdict::Worse(Why::Worse { figure, now: now.mean, before, others });
            }
        }
        let is_known = |figures: &Figures| figures.failed.count >= least;
        let is_enough = is_known(own) && (is_known(&before) || is_known(others));
        if is_enough { Verdict::Good } else { Verdict::TooFew }
    }

    /// A canary that served and does no more, while others do, whether or not it has acknowledged: it may have died of it.
    fn serves_nothing(&self, window: &Window) -> Option<Why> {
        let candidate = self.candidate.as_ref()?;
        let now = |name: &String| window.edges.get(name).map_or(0, |figures| figures.responses);
        let before = |edge: &Edge| edge.before.as_ref().map_or(0, |figures| figures.responses);
        let others = self.edges.iter().filter(|(name, _)| !candidate.canaries.contains_key(*name));
        let (others_now, others_before) =
            others.filter(|(_, edge)| before(edge) > 0).fold((0_u64, 0_u64), |sum, (name, edge)| {
                (sum.0.saturating_add(now(name)), sum.1.saturating_add(before(edge)))
            });
        // If the others have lost viewers as well, so much less is expected of a canary.
        let lasting = if others_before > 0 { others_now as f64 / others_before as f64 } else { 1.0 };
        let least = SERVING_SHARE_MIN * lasting.min(1.0);
        candidate.canaries.keys().find_map(|name| {
            let responses = (now(name), before(self.edges.get(name)?));
            let is_gone =
                responses.1 >= SERVING_RESPONSES_MIN && (responses.0 as f64) < responses.1 as f64 * least;
            is_gone.then(|| Why::ServesNothing { edge: name.clone(), responses })
        })
    }
}

/// What windows show of canaries.
#[derive(Debug)]
enum Verdict {
    TooFew,
    Good,
    Worse(Why),
}

/// Whether one mean is worse than another by more than a limit, and than chance.
fn is_worse(figure: Figure, now: &Mean, than: &Mean, rise_max: f64) -> bool {
    let rise = match figure {
        Figure::Failed | Figure::Retransmitted => now.mean - than.mean,
        Figure::Goodput => than.mean - now.mean,
    };
    // Of values that are all the same there is none.
    let variance = |mean: &Mean| mean.variance_of_mean().unwrap_or_default();
    rise > rise_max && rise > STANDARD_ERRORS_MIN * (variance(now) + variance(than)).sqrt()
}
