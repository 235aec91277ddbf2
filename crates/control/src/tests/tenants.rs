//! Tests of several tenants in one PoP: separate decisions, shared bundle numbers and shared
//! limits.

use std::sync::Arc;

use super::lab::{Lab, prefix};
use crate::*;

const NEWS: &str = "news.example";

/// A PoP with one edge and two tenants, whose clients are in the same networks.
struct Shared {
    settings: Settings,
    labs: [(String, Lab); 2],
    tenants: Tenants,
    rollout: Rollout,
    in_force: Option<String>,
    /// Whether the second tenant has no traffic.
    is_quiet: bool,
}

impl Shared {
    fn new(change: impl Fn(&mut Settings)) -> Self {
        let mut settings = Settings { exploring_max: 0, ..Settings::default() };
        change(&mut settings);
        let own = Settings { tenants: Vec::new(), ..settings.clone() };
        let hosts = ["News.example".into(), "sport.example".into()];
        settings.tenants.push(Tenant::new(hosts, own));
        assert_eq!(settings.check(), []);
        let lab = |tenant: &str| (tenant.to_owned(), Lab::new(&change));
        let labs = [lab(""), lab(NEWS)];
        Self {
            settings,
            labs,
            tenants: Tenants::default(),
            rollout: Rollout::default(),
            in_force: None,
            is_quiet: false,
        }
    }

    fn state(&self, tenant: &str) -> State {
        self.tenants.states().get(tenant).cloned().unwrap_or_default()
    }

    fn poll(&mut self, now_unix_s: u64) {
        for _ in 0..2 {
            let poll =
                Poll { edge: "edge-1", in_force: self.in_force.as_deref(), number: None, refused: None };
            self.rollout.poll(&self.settings, &mut self.tenants, poll, now_unix_s);
            self.in_force = self.rollout.document("edge-1").map(|bundle| bundle.checksum().to_owned());
        }
    }

    /// Polls as the edge, then closes and decides a window for each tenant. Returns the decisions.
    fn round(&mut self) -> Vec<Decision> {
        let now_unix_s = (self.labs[0].1.number + 1) * self.settings.window_s;
        self.poll(now_unix_s);
        let number = self.rollout.document("edge-1").map_or(0, |bundle| bundle.content().number);
        let windows = self.labs.each_mut().map(|(tenant, lab)| {
            lab.state = self.tenants.states().get(tenant).cloned().unwrap_or_default();
            let mut window = lab.window();
            lab.number += 1;
            let outcomes = window.prefixes.iter_mut().flat_map(|(_, sample)| &mut sample.outcomes);
            outcomes.for_each(|outcome| outcome.bundle = number);
            window.edges = Arc::new([("edge-1".to_owned(), figures())].into());
            (tenant.clone(), window)
        });
        self.rollout.observe(&self.settings, &mut self.tenants, &windows[0].1, now_unix_s);
        let moment = Moment { now_unix_s, seed: 1, acknowledged_bundle: self.rollout.newest() };
        let reporting = windows.into_iter().take(if self.is_quiet { 1 } else { 2 });
        let windows = self.tenants.with_empty_windows(reporting.collect());
        let decisions = self.tenants.decide(&self.settings, &windows, moment);
        self.rollout.apply_decisions(&self.settings, &mut self.tenants, now_unix_s);
        assert!(self.tenants.states().values().all(|state| state.bundle >= self.rollout.newest()));
        decisions.into_iter().map(|(_, decision)| decision).collect()
    }

    fn reason(&self, tenant: &str) -> Option<Reason> {
        self.state(tenant).entry(prefix(0)).map(|entry| entry.reason)
    }
}

/// Returns the figures of a healthy edge.
fn figures() -> EdgeFigures {
    let mut figures = EdgeFigures { responses: 400, ..EdgeFigures::default() };
    for at in 0..400 {
        figures.failed.add(f64::from(u8::from(at % 100 == 0)));
        figures.ln_goodput.add(13.0 + f64::from(at % 2));
    }
    figures
}

#[test]
fn tenant_keeps_what_helps_it_while_another_is_harmed() {
    let mut shared = Shared::new(|_| {});
    (shared.labs[0].1.effect, shared.labs[1].1.effect) = (0.4, -0.4);
    let mut seen_both = false;
    let mut number = 0;
    for _ in 0..200 {
        shared.round();
        let stable = shared.rollout.stable().unwrap();
        assert!(stable.content().number >= number, "bundle numbers increase");
        number = stable.content().number;
        let hosts: Vec<_> = stable.content().tenants.iter().map(|tenant| tenant.hosts.clone()).collect();
        assert_eq!(hosts, [[NEWS, "sport.example"]], "a tenant's hosts never use other tenants' rules");
        let given = shared.rollout.document("edge-1").unwrap();
        let is_steered = |host| given.rule(prefix(0).first(), host).is_some();
        seen_both |= is_steered("any.example") && is_steered("sport.example");
    }
    assert!(seen_both);
    assert_eq!(shared.reason(""), Some(Reason::Helped));
    assert_eq!(shared.reason(NEWS), Some(Reason::CoolingOff));
    let stable = shared.rollout.stable().unwrap();
    let is_steered = |host| stable.rule(prefix(0).first(), host).is_some();
    assert_eq!([is_steered("any.example"), is_steered("sport.example")], [true, false]);
}

#[test]
fn tenants_share_the_limits_of_their_pop() {
    let mut shared = Shared::new(|settings| {
        (settings.steered_max, settings.explored_max, settings.entering_max) = (3, 0, 1);
    });
    let mut entered = [0, 0];
    for _ in 0..20 {
        let decisions = shared.round();
        let now = [decisions[0].entered.len(), decisions[1].entered.len()];
        assert!(now[0] + now[1] <= 1, "{now:?}");
        entered = [entered[0] + now[0], entered[1] + now[1]];
        assert!(shared.tenants.steered() <= 3);
    }
    assert_eq!(shared.tenants.steered(), 3);
    assert!(entered[0] > 0 && entered[1] > 0, "both tenants enter: {entered:?}");
}

#[test]
fn prefixes_of_an_idle_tenant_leave_and_make_room() {
    let mut shared = Shared::new(|settings| (settings.steered_max, settings.explored_max) = (2, 0));
    shared.labs[0].1.effect = 0.4;
    // The idle tenant uses all of the shared limit.
    shared.labs[0].1.connections = 0;
    while shared.state(NEWS).steered().count() < 2 {
        shared.round();
    }
    (shared.labs[0].1.connections, shared.is_quiet) = (40, true);
    for _ in 0..shared.settings.history_windows + 20 {
        shared.round();
    }
    assert_eq!(["", NEWS].map(|tenant| shared.state(tenant).steered().count()), [2, 0]);
}

#[test]
fn corrected_clock_stops_no_tenant_with_or_without_traffic() {
    let mut shared = Shared::new(|_| {});
    shared.round();
    let number = shared.labs[0].1.number;
    shared.labs.iter_mut().for_each(|(_, lab)| lab.number += 288);
    shared.round();
    shared.labs.iter_mut().for_each(|(_, lab)| lab.number = number);
    shared.is_quiet = true;
    for number in number..number + 300 {
        shared.round();
        assert_eq!(shared.tenants.window(), Some(number));
        let now_unix_s = (number + 2) * shared.settings.window_s;
        let again = Window { number, ..Window::default() };
        assert!(!shared.tenants.is_next(&shared.settings, &again, now_unix_s), "each window is decided once");
    }
}

#[test]
fn removed_tenant_loses_its_rules() {
    let mut shared = Shared::new(|_| {});
    while shared.state(NEWS).steered().count() == 0 || shared.rollout.candidate().is_some() {
        shared.round();
    }
    let has_rules = |shared: &Shared| {
        let content = shared.rollout.stable().unwrap().content();
        (content.rules.iter().any(|rule| rule.tenant == NEWS), content.tenants.len())
    };
    assert_eq!(has_rules(&shared), (true, 1));
    shared.settings.tenants.clear();
    shared.labs[1].0 = String::new();
    shared.labs.swap(0, 1);
    let window = {
        let (_, lab) = &mut shared.labs[1];
        lab.state = shared.tenants.states()[""].clone();
        lab.window()
    };
    let now_unix_s = (window.number + 1) * shared.settings.window_s;
    let moment = Moment { now_unix_s, seed: 1, acknowledged_bundle: shared.rollout.newest() };
    let mut before = shared.tenants.clone();
    shared.tenants.decide(&shared.settings, &[(String::new(), window)], moment);
    shared.rollout.apply_decisions(&shared.settings, &mut shared.tenants, now_unix_s);
    assert_eq!(has_rules(&shared), (false, 0));
    assert!(!shared.tenants.states().contains_key(NEWS));
    // If the host becomes a tenant again, its prefixes enter as usual.
    let Ok([(tenant, state, steered)]) = <[_; 1]>::try_from(before.retain_configured(&shared.settings))
    else {
        panic!()
    };
    assert!(tenant == NEWS && steered > 0 && state.steered().count() == 0);
    let reason = state.entry(prefix(0)).map(|entry| entry.reason);
    assert!(reason == Some(Reason::Changed) && State::decode(state.encode().as_bytes()).is_ok());
    assert!(!before.is_outdated(&state));
}

#[test]
fn each_host_can_be_its_own_tenant() {
    let mut settings = Settings { by_tenant: true, exploring_max: 0, ..Settings::default() };
    let mut lab = Lab::new(|_| {});
    let (mut tenants, mut rollout) = (Tenants::default(), Rollout::default());
    for _ in 0..13 {
        lab.state = tenants.states().get("a.example").cloned().unwrap_or_default();
        let window = lab.window();
        lab.number += 1;
        let moment = lab.moment(&window);
        tenants.decide(&settings, &[("a.example".into(), window)], moment);
        rollout.apply_decisions(&settings, &mut tenants, moment.now_unix_s);
    }
    let tried = &rollout.candidate().unwrap().bundle;
    let control = |host| tried.rule(prefix(0).first(), host).map(|rule| rule.congestion_control.as_str());
    assert_eq!([control("A.example"), control("b.example"), control("")], [Some("bbr"), None, None]);
    // The host has no more traffic. Restarting the controller changes nothing.
    let mut window = lab.window();
    let mut moment = lab.moment(&window);
    for _ in 0..=2_016 {
        assert!(tenants.states().contains_key("a.example"));
        window = Window { number: window.number + 1, ..window };
        moment = lab.moment(&window);
        let kept = tenants.states().iter();
        let kept = kept.map(|(name, it)| (name.clone(), State::decode(it.encode().as_bytes()).unwrap()));
        tenants = kept.collect();
        let windows = tenants.with_empty_windows(vec![("b.example".into(), window.clone())]);
        tenants.decide(&settings, &windows, moment);
    }
    assert_eq!(tenants.states().keys().collect::<Vec<_>>(), ["b.example"]);
    // The number of hosts that are their own tenants is limited.
    let hosts = |at: usize| (format!("{at}.example"), window.clone());
    let windows: Vec<_> = (0..SCOPES_MAX).map(hosts).collect();
    assert_eq!(tenants.decide(&settings, &windows, moment).len(), SCOPES_MAX - TENANTS_MAX - 1);
    settings.by_tenant = false;
    tenants.decide(&settings, &[], moment);
    assert!(tenants.states().is_empty());
}

#[test]
fn tenant_removed_from_settings_is_in_no_bundle_whichever_event_is_first() {
    // Initially, each host is its own tenant, and a canary has the candidate.
    let by_tenant = |change: &dyn Fn(&mut Settings)| {
        let mut settings = Settings { by_tenant: true, exploring_max: 0, ..Settings::default() };
        change(&mut settings);
        assert_eq!(settings.check(), []);
        settings
    };
    let hosts = || ["b.example".to_owned(), "a.example".to_owned()];
    let left_alone = |it: &mut Settings| it.hosts_left_alone = vec!["A.example".into()];
    let named = |it: &mut Settings| it.tenants = vec![Tenant::new(hosts(), Settings::default())];
    for change in [&left_alone as &dyn Fn(&mut Settings), &named] {
        let mut settings = by_tenant(&|_| {});
        let mut lab = Lab::new(|_| {});
        let (mut tenants, mut rollout) = (Tenants::default(), Rollout::default());
        let mut now_unix_s = 0;
        while rollout.candidate().is_none() {
            lab.state = tenants.states().get("a.example").cloned().unwrap_or_default();
            let window = lab.window();
            lab.number += 1;
            let moment = lab.moment(&window);
            now_unix_s = moment.now_unix_s;
            tenants.decide(&settings, &[("a.example".into(), window)], moment);
            rollout.apply_decisions(&settings, &mut tenants, now_unix_s);
        }
        let poll = |rollout: &mut Rollout, tenants: &mut Tenants, settings: &Settings, refuses: bool| {
            let refusal = rollout.document("edge-1").map(|bundle| Refusal {
                checksum: bundle.checksum().to_owned(),
                reason: "for a test".into(),
            });
            let refused = refusal.as_ref().filter(|_| refuses);
            rollout.poll(
                settings,
                tenants,
                Poll { edge: "edge-1", in_force: None, number: None, refused },
                now_unix_s,
            )
        };
        poll(&mut rollout, &mut tenants, &settings, false);
        settings = by_tenant(change);
        let transitions = poll(&mut rollout, &mut tenants, &settings, true);
        let [Transition::CanaryRefused { .. }, Transition::RolledBack { .. }] = transitions[..] else {
            panic!("{transitions:?}")
        };
        rollout.apply_decisions(&settings, &mut tenants, now_unix_s);
        assert_eq!(rollout.stable().unwrap().content().rules, []);
        tenants.retain_configured(&settings);
        assert!(tenants.states().is_empty());
    }
}

#[test]
fn faults_in_tenants_are_reported() {
    let tenant = |hosts: &[&str]| {
        let settings = Settings { window_s: 60, ..Settings::default() };
        Tenant::new(hosts.iter().map(ToString::to_string), settings)
    };
    let settings = Settings {
        hosts_left_alone: vec!["c.example".into()],
        tenants: vec![tenant(&["a.example", "A.example"]), tenant(&[]), tenant(&["C.example", "no host"])],
        ..Settings::default()
    };
    let faults: std::collections::BTreeSet<_> = settings.check().iter().map(ToString::to_string).collect();
    expect_test::expect![[r#"
        {
            "hosts must be 1 to 256 names",
            "hosts must be host names without a port or a trailing dot, not \"no host\"",
            "hosts must be unique names, neither in another tenant nor left alone, unlike a.example",
            "hosts must be unique names, neither in another tenant nor left alone, unlike c.example",
            "hosts_left_alone must be the same for all tenants",
            "window_s must be the same for all tenants",
        }
    "#]]
    .assert_debug_eq(&faults);
}
