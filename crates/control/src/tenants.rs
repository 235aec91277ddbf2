//! Tenants of a PoP: one state each, with shared bundle numbers and a shared limit on changes per
//! round.
//!
//! Each tenant is decided separately on its own windows. The order is random, because the first
//! tenant gets the largest part of the shared limit.
//!
//! **Invariant:** all states have decided the same last window. A tenant without traffic is decided
//! with an empty window, so its idle prefixes are withdrawn as usual and make room for others.
//! **Invariant:** bundle numbers differ between states only by decisions that are not yet in a
//! bundle.
//! **Invariant:** all tenants together respect the PoP's limits on steered prefixes and on changes
//! per round.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_bundle::Rule;
use thalweg_record::Prefix;
use twox_hash::XxHash3_64;

use crate::collect::SCOPES_MAX;
use crate::decide::{Decision, Moment, decide_tenant, elapsed, rules};
use crate::settings::Settings;
use crate::state::State;
use crate::tenant::{TENANTS_MAX, Tenant};
use crate::window::Window;

/// Number of rounds without traffic after which a host that is its own tenant is removed: a week of
/// 5-minute windows.
const FORGOTTEN_ROUNDS: u32 = 2_016;

/// Maximum number of hosts that are their own tenants.
pub(crate) const UNNAMED_MAX: usize = SCOPES_MAX - TENANTS_MAX;

/// Identifies a rule by its tenant and client prefix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleKey {
    /// Tenant of the requested hosts. Empty for hosts without a tenant.
    pub tenant: String,
    /// Client network.
    pub prefix: Prefix,
}

impl RuleKey {
    /// Returns the key of a rule.
    pub(crate) fn of(rule: &Rule) -> Self {
        Self { tenant: rule.tenant.clone(), prefix: rule.prefix }
    }
}

/// States of a PoP's tenants, by name. The empty name stands for hosts without a tenant.
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
    /// Returns all states, by tenant.
    pub fn states(&self) -> &BTreeMap<String, State> {
        &self.states
    }

    /// Returns the number of the last decided window.
    pub fn window(&self) -> Option<u64> {
        self.states.values().filter_map(|state| state.window).max()
    }

    /// Returns the number of steered prefixes across all tenants.
    pub fn steered(&self) -> usize {
        self.states.values().map(|state| state.steered().count()).sum()
    }

    /// Returns whether a window can be decided next. A window for which this is false changes
    /// neither states nor rollouts.
    pub fn is_next(&self, settings: &Settings, window: &Window, now_unix_s: u64) -> bool {
        let (newest, none) = (self.states.values().max_by_key(|state| state.window), State::default());
        elapsed(settings, newest.unwrap_or(&none), window, now_unix_s).is_ok()
    }

    /// Adds an empty window for each known tenant without one. All of `windows` must cover the same
    /// time span.
    pub fn with_empty_windows(&self, mut windows: Vec<(String, Window)>) -> Vec<(String, Window)> {
        let Some((_, any)) = windows.first() else { return windows };
        let empty = Window { prefixes: Vec::new(), edges: any.edges.clone(), ..*any };
        let active: BTreeSet<_> = windows.iter().map(|(tenant, _)| tenant.clone()).collect();
        let idle = self.states.keys().filter(|tenant| !active.contains(*tenant));
        windows.extend(idle.map(|tenant| (tenant.clone(), empty.clone())));
        windows
    }

    /// Decides the windows from [`Tenants::with_empty_windows`], and returns each decision with its
    /// window's index. If more than [`UNNAMED_MAX`] hosts are their own tenants, the rest are
    /// skipped.
    pub fn decide(
        &mut self,
        settings: &Settings,
        windows: &[(String, Window)],
        moment: Moment,
    ) -> Vec<(usize, Decision)> {
        self.retain_configured(settings);
        let pop_has_traffic = windows.iter().any(|(_, window)| !window.prefixes.is_empty());
        let mut unnamed = self.states.keys().filter(|tenant| !settings.has_named_tenant(tenant)).count();
        let mut steered_by_all = self.steered();
        let (mut entering_max, mut changes_max) = (settings.entering_max, settings.changes_max);
        let mut decisions: BTreeMap<usize, Decision> = BTreeMap::new();
        for at in random_order(windows) {
            let (tenant, window) = &windows[at];
            let is_new = !self.states.contains_key(tenant);
            let is_unnamed = is_new && !settings.has_named_tenant(tenant);
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
                tenants: measured_tenants(settings, tenant),
                ..own.clone()
            };
            let seed = if tenant.is_empty() {
                moment.seed
            } else {
                XxHash3_64::oneshot_with_seed(moment.seed, tenant.as_bytes())
            };
            let moment = Moment { seed, ..moment };
            let (state, decision) = decide_tenant(&bounded, &state, window, moment, pop_has_traffic);
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
        self.forget_idle(settings);
        decisions.into_iter().collect()
    }

    /// Removes tenants missing from the settings, together with their rules. Returns their final
    /// states and the number of prefixes each was steering.
    pub fn retain_configured(&mut self, settings: &Settings) -> Vec<(String, State, usize)> {
        let gone = self.states.extract_if(.., |tenant, _| !settings.is_tenant(tenant));
        let left = |(tenant, mut state): (String, State)| {
            let steered = state.withdraw_all(settings);
            (tenant, state, steered)
        };
        gone.map(left).collect()
    }

    /// Returns whether a state's last window is older than `FORGOTTEN_ROUNDS` windows.
    pub fn is_outdated(&self, state: &State) -> bool {
        let windows = self.window().zip(state.window).map(|(newest, own)| newest.saturating_sub(own));
        windows.is_none_or(|windows| windows > u64::from(FORGOTTEN_ROUNDS))
    }

    /// Removes unnamed tenants without traffic for more than [`FORGOTTEN_ROUNDS`] rounds.
    fn forget_idle(&mut self, settings: &Settings) {
        self.states.retain(|tenant, state| {
            tenant.is_empty() || settings.has_named_tenant(tenant) || state.quiet_rounds <= FORGOTTEN_ROUNDS
        });
    }

    /// Returns the number of the newest decided bundle.
    pub(crate) fn bundle(&self) -> u64 {
        self.states.values().map(|state| state.bundle).max().unwrap_or_default()
    }

    /// Sets the newest bundle number of all states.
    pub(crate) fn set_bundle_number(&mut self, bundle: u64) {
        self.states.values_mut().for_each(|state| state.bundle = bundle);
    }

    /// Calls [`State::advance_bundle_number`] for every tenant.
    pub(crate) fn advance_bundle_number(&mut self, bundle: u64) {
        self.states.values_mut().for_each(|state| state.advance_bundle_number(bundle));
    }

    /// Returns the rules of all tenants, sorted by tenant and prefix.
    pub(crate) fn rules(&self, settings: &Settings) -> Vec<Rule> {
        let of = |(tenant, state): (&String, &State)| {
            let rules = rules(settings.of(tenant), state).into_iter();
            rules.map(|rule| Rule { tenant: tenant.clone(), ..rule }).collect::<Vec<_>>()
        };
        self.states.iter().filter(|(tenant, _)| settings.is_tenant(tenant)).flat_map(of).collect()
    }

    /// Calls [`State::withdraw`] for every tenant, so that admission pauses for all of them.
    pub(crate) fn withdraw(&mut self, settings: &Settings, keys: &[RuleKey]) {
        for (tenant, state) in &mut self.states {
            let own: Vec<_> = keys.iter().filter(|it| it.tenant == *tenant).map(|it| it.prefix).collect();
            state.withdraw(settings.of(tenant), &own);
        }
    }

    /// Calls [`State::ignore_mismatched`] for every tenant.
    pub(crate) fn ignore_mismatched(&mut self, rules: &[Rule], own: &[Rule]) {
        for (tenant, state) in &mut self.states {
            let of = |rules: &[Rule]| {
                rules.iter().filter(|rule| rule.tenant == *tenant).cloned().collect::<Vec<_>>()
            };
            state.ignore_mismatched(&of(rules), &of(own));
        }
    }
}

/// Returns window indices in an order that changes each round. Every tenant is equally likely to
/// come first.
fn random_order(windows: &[(String, Window)]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..windows.len()).collect();
    let hash =
        |(tenant, window): &(String, Window)| XxHash3_64::oneshot_with_seed(window.number, tenant.as_bytes());
    places.sort_by_cached_key(|at| windows.get(*at).map(hash));
    places
}

/// Returns the tenants whose hosts determine this tenant's windows: the tenant itself, or all
/// tenants for the hosts without a tenant.
fn measured_tenants(settings: &Settings, tenant: &str) -> Vec<Tenant> {
    if tenant.is_empty() {
        return settings.tenants.clone();
    }
    settings.tenants.iter().filter(|it| it.name() == tenant).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_fair_regardless_of_quiet_tenants() {
        let mut first = [0; 3];
        for number in 6_000_000..6_000_600 {
            let window =
                |tenant: usize| (format!("{tenant}.example"), Window { number, ..Window::default() });
            let windows: Vec<_> = (0..100).map(window).collect();
            let active = random_order(&windows).into_iter().find(|at| *at < 3).unwrap();
            first[active] += 1;
        }
        assert!(first.iter().all(|rounds| (150..250).contains(rounds)), "{first:?}");
    }
}
