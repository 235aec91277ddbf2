//! Sites: the PoPs with records, up to a limit. At the limit, a new PoP replaces an idle one.
//!
//! **Invariant:** a PoP that has rules, a candidate, or records in the last windows is never
//! replaced.

use std::collections::HashMap;

use thalweg_control::{SCOPES_MAX, Settings};

/// Number of windows without records after which a PoP is idle.
const IDLE_WINDOWS: u64 = 2;

/// Known PoPs, with the time of their last record in Unix seconds.
#[derive(Debug, Default)]
pub(crate) struct Sites(HashMap<String, u64>);

/// Outcome of an admission.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The PoP is known, or there was room.
    Known,
    /// The PoP replaces this one.
    Replaces(String),
    /// There is no room.
    Full,
}

impl Sites {
    /// Creates the set of sites from the stored PoPs.
    pub(crate) fn of(pops: impl Iterator<Item = String>, now_unix_s: u64) -> Self {
        Self(pops.map(|pop| (pop, now_unix_s)).collect())
    }

    pub(crate) fn contains(&self, pop: &str) -> bool {
        self.0.contains_key(pop)
    }

    /// Admits the records of a PoP. `is_steering` returns whether a PoP has rules or a candidate.
    pub(crate) fn admit(
        &mut self,
        pop: &str,
        settings: &Settings,
        now_unix_s: u64,
        is_steering: impl Fn(&str) -> bool,
    ) -> Admission {
        if let Some(last) = self.0.get_mut(pop) {
            *last = now_unix_s;
            return Admission::Known;
        }
        let mut admission = Admission::Known;
        if self.0.len() >= SCOPES_MAX {
            let idle_s = settings.window_s.saturating_mul(IDLE_WINDOWS).saturating_add(settings.late_s);
            let is_idle = |last: u64| last.abs_diff(now_unix_s) > idle_s;
            let idle = self.0.iter().filter(|(name, last)| is_idle(**last) && !is_steering(name));
            let Some(oldest) = idle.min_by_key(|(_, last)| **last).map(|(name, _)| name.clone()) else {
                return Admission::Full;
            };
            self.0.remove(&oldest);
            admission = Admission::Replaces(oldest);
        }
        self.0.insert(pop.to_owned(), now_unix_s);
        admission
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_pop_replaces_only_an_idle_one() {
        let settings = Settings::default();
        let idle_s = 2 * settings.window_s + settings.late_s;
        let mut sites = Sites::of(["steering".to_owned(), "quiet".to_owned()].into_iter(), 0);
        let mut admit = |pop: &str, now_s| sites.admit(pop, &settings, now_s, |pop| pop == "steering");
        for at in 0..SCOPES_MAX - 2 {
            assert_eq!(admit(&format!("fake-{at}"), 10), Admission::Known);
        }
        assert_eq!(admit("new", idle_s), Admission::Full);
        assert_eq!(admit("new", idle_s + 1), Admission::Replaces("quiet".into()));
        assert_eq!(admit("another", idle_s + 1), Admission::Full, "the others had records since");
        let Admission::Replaces(fake) = admit("another", idle_s + 11) else { panic!("the fakes are idle") };
        assert!(fake.starts_with("fake-"));
        for at in 0..2 * SCOPES_MAX as u64 {
            admit("new", idle_s + 11 + at);
            let _ = admit(&format!("flood-{at}"), idle_s + 11 + at);
        }
        assert!(sites.contains("steering") && sites.contains("new"));
    }
}
