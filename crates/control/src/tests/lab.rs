//! Simulated PoP for end-to-end decision tests.

use std::net::Ipv4Addr;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use thalweg_record::Prefix;

use crate::simulate::normal;
use crate::*;

/// A PoP with a few prefixes, of which the first two are slow in every window.
pub(super) struct Lab {
    pub(super) settings: Settings,
    pub(super) state: State,
    pub(super) number: u64,
    random: Xoshiro256PlusPlus,
    /// Effect of BBR on log goodput. `rise` is its effect on the retransmitted share.
    pub(super) effect: f64,
    pub(super) rise: f64,
    /// Number of connections per prefix and window.
    pub(super) connections: u32,
    pub(super) prefixes: u8,
}

impl Lab {
    pub(super) fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings { exploring_max: 0, ..Settings::default() };
        change(&mut settings);
        assert_eq!(settings.check(), []);
        Self {
            settings,
            state: State::default(),
            number: 6_000_000,
            random: Xoshiro256PlusPlus::seed_from_u64(1),
            effect: 0.0,
            rise: 0.0,
            connections: 40,
            prefixes: 10,
        }
    }

    pub(super) fn window(&mut self) -> Window {
        let state = &self.state;
        let (effect, rise, connections) = (self.effect, self.rise, self.connections);
        let (number, random) = (self.number, &mut self.random);
        let mut sample = |at: u8| {
            let steered = state.entry(prefix(at)).and_then(Entry::steered);
            let mut sample = Sample::default();
            for _ in 0..connections {
                let arm = match steered {
                    None => Arm::Other,
                    Some(it) if it.switchback.is_some() => {
                        let switchback = it.switchback.as_ref().unwrap();
                        let is_held_out = switchback.is_held_out(prefix(at), &it.rule_salt(), number);
                        if is_held_out { Arm::HeldOut } else { Arm::Steered }
                    }
                    Some(it) if random.random_bool(f64::from(it.holdout_millionths) / 1e6) => Arm::HeldOut,
                    Some(_) => Arm::Steered,
                };
                let own = if arm == Arm::Steered { 1.0 } else { 0.0 };
                // The first two prefixes are far slower than the others.
                let level = if at < 2 { 11.0 } else { 14.0 };
                let ln_goodput = level + 0.5 * normal(random) + own * effect;
                let into = sample.arm_mut(arm);
                into.connections += 1;
                into.delivery_rate.add(ln_goodput.exp() as u64);
                sample.min_rtt_us.add(40_000);
                if arm != Arm::Steered {
                    sample.ln_goodput.add(ln_goodput);
                }
                if arm != Arm::Other {
                    sample.outcomes.push(Outcome {
                        bundle: state.bundle,
                        period: number,
                        is_steered: arm == Arm::Steered,
                        ln_goodput,
                        retransmitted_share: Some(0.01 + own * rise + 0.005 * normal(random).abs()),
                    });
                }
            }
            (prefix(at), sample)
        };
        let prefixes = (0..self.prefixes).map(&mut sample).collect();
        Window { number: self.number, records: 1, lost: 0, prefixes, ..Window::default() }
    }

    /// Returns the moment at which a window ends.
    pub(super) fn moment(&self, window: &Window) -> Moment {
        let now_unix_s = (window.number + 1) * self.settings.window_s;
        Moment { now_unix_s, seed: 1, acknowledged_bundle: self.state.bundle }
    }

    pub(super) fn decide(&mut self, window: &Window) -> Decision {
        let (state, decision) = decide(&self.settings, &self.state, window, self.moment(window));
        self.state = state;
        decision
    }

    pub(super) fn round(&mut self) -> Decision {
        let window = self.window();
        self.number += 1;
        self.decide(&window)
    }

    /// Returns the first prefix's cool-off.
    pub(super) fn left(&self) -> &CoolingOff {
        match &self.state.entry(prefix(0)).unwrap().phase {
            Phase::CoolingOff(cooling) => cooling,
            other => panic!("{other:?}"),
        }
    }

    /// Runs rounds until the first prefix has the reason `reason`. Returns the number of rounds.
    pub(super) fn until(&mut self, reason: Reason) -> usize {
        for round in 1..=1_000 {
            self.round();
            if self.state.entry(prefix(0)).is_some_and(|entry| entry.reason == reason) {
                return round;
            }
        }
        panic!("never {reason}: {}", explain(&self.settings, &self.state, prefix(0)));
    }
}

pub(super) fn prefix(at: u8) -> Prefix {
    Prefix::of_client(Ipv4Addr::new(203, 0, at, 0).into())
}
