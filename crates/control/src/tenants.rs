//! A PoP's tenants: the state of each, and what they share: the numbers of bundles, and how much a round may change.
//!
//! Each is decided by itself, on windows of its own, in an order by lot: whoever is first has the most of the round to change.
//!
//! **Invariant:** all states are of the same window: one that nobody asked for is decided as well, with an empty one, so that what it steers
//! leaves as it would elsewhere, and makes room.
//! **Invariant:** no state's newest bundle is above another's by more than what was decided and is in none yet.
//! **Invariant:** all together steer no more than the PoP may, and change no more in a round.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_bundle::Rule;
use thalweg_record::Prefix;
use twox_hash::XxHash3_64;

use crate::collect::SCOPES_MAX;
use crate::decide::{Decision, Moment, decide_heard, elapsed, rules};
use crate::settings::Settings;
use crate::state::State;
use crate::tenant::{TENANTS_MAX, Tenant};
use crate::window::Window;

/// Rounds of the PoP after which a host is forgotten that is a tenant by itself, when nobody asks for it: a week of five minutes.
const FORGOTTEN_ROUNDS: u32 = 2_016;

/// Hosts that are tenants by themselves.
pub(crate) const UNNAMED_MAX: usize = SCOPES_MAX - TENANTS_MAX;

/// Whom a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Whom {
    /// The tenant of the requests' hosts; empty: none.
    pub tenant: String,
    /// The clients.
    pub prefix: Prefix,
}

impl Whom {
    /// Whom a rule is about.
    pub(crate) fn of(rule: &Rule) -> Self {
        Self { tenant: rule.tenant.clone(), prefix: rule.prefix }
    }
}

/// The states of a PoP's tenants, by their names; that of hosts that no tenant has by none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tenants {
    states: BTreeMap<String, State>,
}

impl FromIterator<(String, State)> for Tenants {
    fn from_iter<I: IntoIterator<Item = (String, State)>>(states: I) -> Self {
        Self { states: states.into_iter().collect() }
    }
}

impl Tenants {
    /// Every state, by its tenant.
    pub fn states(&self) -> &BTreeMap<String, State> {
        &self.states
    }

    /// The window that was decided last.
    pub fn window(&self) -> Option<u64> {
        self.states.values().filter_map(|state| state.window).max()
    }

    /// Prefixes that are steered, of each tenant by itself.
    pub fn steered(&self) -> usize {
        self.states.values().map(|state| state.steered().count()).sum()
    }

    /// Whether a window is the next to be decided at a time: one that is not changes nothing, in a state or in a rollout.
    pub fn is_next(&self, settings: &Settings, window: &Window, now_unix_s: u64) -> bool {
        let (newest, none) = (self.states.values().max_by_key(|state| state.window), State::default());
        elapsed(settings, newest.unwrap_or(&none), window, now_unix_s).is_ok()
    }

    /// The windows of one span of time, each of another tenant, with an empty one for each that is known and has none.
    pub fn with_quiet(&self, mut windows: Vec<(String, Window)>) -> Vec<(String, Window)> {
        let Some((_, any)) = windows.first() else { return windows };
        let empty = Window { prefixes: Vec::new(), edges: any.edges.clone(), ..*any };
        let asked_for: BTreeSet<_> = windows.iter().map(|(tenant, _)| tenant.clone()).collect();
        let quiet = self.states.keys().filter(|tenant| !asked_for.contains(*tenant));
        windows.extend(quiet.map(|tenant| (tenant.clone(), empty.clone())));
        windows
    }

    /// Decides the windows of [`Tenants::with_quiet`]: each decision with its window's place. Of hosts that are tenants by themselves the
    /// first are decided, and of no more than there is room for.
    pub fn decide(
        &mut self,
        settings: &Settings,
        windows: &[(String, Window)],
        moment: Moment,
    ) -> Vec<(usize, Decision)> {
        self.keep(settings);
        let is_heard = windows.iter().any(|(_, window)| !window.prefixes.is_empty());
        let mut unnamed = self.states.keys().filter(|tenant| !settings.names(tenant)).count();
        let mut steered_by_all = self.steered();
        let (mut entering_max, mut changes_max) = (settings.entering_max, settings.changes_max);
        let mut decisions: BTreeMap<usize, Decision> = BTreeMap::new();
        for at in by_lot(windows) {
            let (tenant, window) = &windows[at];
            let is_new = !self.states.contains_key(tenant);
            let is_unnamed = is_new && !settings.names(tenant);
            if !settings.is_tenant(tenant) || (is_unnamed && unnamed >= UNNAMED_MAX) {
                continue;
            }
            let state = self.states.get(tenant).cloned().unwrap_or_default();
            let steered_before = state.steered().count();
            let steered_elsewhere = steered_by_all - steered_before;
            let own = settings.of(tenant);
            let bounded = Settings {
                steered_max: own.steered_max.min(settings.steered_max.saturating_sub(steered_elsewhere)),
                entering_max: own.entering_max.min(entering_max),
                changes_max: own.changes_max.min(changes_max),
                tenants: who_tells(settings, tenant),
                ..own.clone()
            };
            let seed = if tenant.is_empty() {
                moment.seed
            } else {
                XxHash3_64::oneshot_with_seed(moment.seed, tenant.as_bytes())
            };
            let moment = Moment { seed, ..moment };
            let (state, decision) = decide_heard(&bounded, &state, window, moment, is_heard);
            let left = decision.left.iter().filter(|change| !change.reason.is_safety()).count();
            entering_max = entering_max.saturating_sub(decision.entered.len());
            changes_max = changes_max.saturating_sub(decision.entered.len() + left);
            steered_by_all = steered_elsewhere + decision.steered;
            if state.window.is_some() {
                unnamed += usize::from(is_unnamed);
                self.states.insert(tenant.clone(), state);
            }
            decisions.insert(at, decision);
        }
        self.forget(settings);
        decisions.into_iter().collect()
    }

    /// Forgets who is no tenant any more: with it go its rules. Gives what was known, with how many were steered and are not any more.
    pub fn keep(&mut self, settings: &Settings) -> Vec<(String, State, usize)> {
        let gone = self.states.extract_if(.., |tenant, _| !settings.is_tenant(tenant));
        let left = |(tenant, mut state): (String, State)| {
            let steered = state.take_back_all(settings);
            (tenant, state, steered)
        };
        gone.map(left).collect()
    }

    /// Whether a state is of so long ago that it would have been forgotten.
    pub fn is_past(&self, state: &State) -> bool {
        let windows = self.window().zip(state.window).map(|(newest, own)| newest.saturating_sub(own));
        windows.is_none_or(|windows| windows > u64::from(FORGOTTEN_ROUNDS))
    }

    /// Forgets hosts that nobody has asked for in many rounds.
    fn forget(&mut self, settings: &Settings) {
        self.states.retain(|tenant, state| {
            tenant.is_empty() || settings.names(tenant) || state.quiet_rounds <= FORGOTTEN_ROUNDS
        });
    }

    /// The number of the newest bundle that was decided.
    pub(crate) fn bundle(&self) -> u64 {
        self.states.values().map(|state| state.bundle).max().unwrap_or_default()
    }

    /// Makes a number that of the newest bundle.
    pub(crate) fn number(&mut self, bundle: u64) {
        self.states.values_mut().for_each(|state| state.bundle = bundle);
    }

    /// See [`State::go_on_from`].
    pub(crate) fn go_on_from(&mut self, bundle: u64) {
        self.states.values_mut().for_each(|state| state.go_on_from(bundle));
    }

    /// The rules of all, in the order of tenants and prefixes.
    pub(crate) fn rules(&self, settings: &Settings) -> Vec<Rule> {
        let of = |(tenant, state): (&String, &State)| {
            let rules = rules(settings.of(tenant), state).into_iter();
            rules.map(|rule| Rule { tenant: tenant.clone(), ..rule }).collect::<Vec<_>>()
        };
        self.states.iter().filter(|(tenant, _)| settings.is_tenant(tenant)).flat_map(of).collect()
    }

    /// See [`State::withdraw`]. All of them pause.
    pub(crate) fn withdraw(&mut self, settings: &Settings, whom: &[Whom]) {
        for (tenant, state) in &mut self.states {
            let own: Vec<_> = whom.iter().filter(|it| it.tenant == *tenant).map(|it| it.prefix).collect();
            state.withdraw(settings.of(tenant), &own);
        }
    }

    /// See [`State::discount`].
    pub(crate) fn discount(&mut self, rules: &[Rule], own: &[Rule]) {
        for (tenant, state) in &mut self.states {
            let of = |rules: &[Rule]| {
                rules.iter().filter(|rule| rule.tenant == *tenant).cloned().collect::<Vec<_>>()
            };
            state.discount(&of(rules), &of(own));
        }
    }
}

/// The places of windows in an order that is another in each round, in which each tenant is as often first as any.
fn by_lot(windows: &[(String, Window)]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..windows.len()).collect();
    let lot =
        |(tenant, window): &(String, Window)| XxHash3_64::oneshot_with_seed(window.number, tenant.as_bytes());
    places.sort_by_cached_key(|at| windows.get(*at).map(lot));
    places
}

/// The tenants whose hosts make a tenant's windows what they are: itself, or for hosts that none has all the others.
fn who_tells(settings: &Settings, tenant: &str) -> Vec<Tenant> {
    if tenant.is_empty() {
        return settings.tenants.clone();
    }
    settings.tenants.iter().filter(|it| it.name() == tenant).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_first_as_often_as_any_whoever_else_is_quiet() {
        let mut first = [0; 3];
        for number in 6_000_000..6_000_600 {
            let window =
                |tenant: usize| (format!("{tenant}.example"), Window { number, ..Window::default() });
            let windows: Vec<_> = (0..100).map(window).collect();
            let asked_for = by_lot(&windows).into_iter().find(|at| *at < 3).unwrap();
            first[asked_for] += 1;
        }
        assert!(first.iter().all(|rounds| (150..250).contains(rounds)), "{first:?}");
    }
}
