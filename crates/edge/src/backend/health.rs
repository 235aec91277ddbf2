//! Backend health: determined by the latest probes or by an operator (vcl-probe(7),
//! `backend.set_health` in varnish-cli(7)).
//!
//! **Invariant:** reading the health or the time of its last change takes no lock.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thalweg_policy::program::ProbeRow;

use crate::clock::now_ms;

/// Number of probe results kept: the largest possible window.
const PROBES_MAX: u32 = u64::BITS;

/// An operator's override of a backend's health.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum HealthOverride {
    /// The probe decides; a backend without a probe is healthy.
    #[default]
    Auto,
    /// Never use the backend.
    Sick,
    /// Use the backend, regardless of its probe.
    Healthy,
}

/// An invalid health setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidHealth;

impl HealthOverride {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sick => "sick",
            Self::Healthy => "healthy",
        }
    }
}

impl FromStr for HealthOverride {
    type Err = InvalidHealth;

    fn from_str(text: &str) -> Result<Self, InvalidHealth> {
        [Self::Auto, Self::Sick, Self::Healthy]
            .into_iter()
            .find(|health_override| health_override.as_str() == text)
            .ok_or(InvalidHealth)
    }
}

impl fmt::Display for InvalidHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("health must be sick, healthy or auto")
    }
}

/// The health of one backend.
#[derive(Debug)]
pub(super) struct Health {
    is_healthy: AtomicBool,
    changed_ms: AtomicU64,
    /// Inputs that determine `is_healthy`.
    inputs: Mutex<HealthInputs>,
}

#[derive(Debug)]
struct HealthInputs {
    health_override: HealthOverride,
    window: Option<Window>,
    /// Whether the backend has an address; false if it is declared as `none`.
    exists: bool,
}

/// Results of the latest probes.
#[derive(Debug, Clone, Copy)]
struct Window {
    /// One bit per probe, set if the probe was good; the lowest bit is the latest probe.
    good: u64,
    size: u32,
    threshold: u32,
}

/// Number of good probes among the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProbeCount {
    pub(crate) good: u32,
    pub(crate) window: u32,
    pub(crate) threshold: u32,
}

impl Window {
    fn new(probe: &ProbeRow) -> Self {
        let good = ones(probe.initial);
        Self { good, size: probe.window.clamp(1, PROBES_MAX), threshold: probe.threshold }
    }

    fn probe_count(self) -> ProbeCount {
        let good = (self.good & ones(self.size)).count_ones();
        ProbeCount { good, window: self.size, threshold: self.threshold }
    }
}

/// Returns a mask of the lowest `count` bits.
fn ones(count: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - count.min(u64::BITS)).unwrap_or(0)
}

impl ProbeCount {
    fn is_enough(self) -> bool {
        self.good >= self.threshold
    }
}

impl HealthInputs {
    fn is_healthy(&self) -> bool {
        match self.health_override {
            HealthOverride::Sick => false,
            HealthOverride::Healthy => self.exists,
            HealthOverride::Auto => {
                self.exists && self.window.is_none_or(|window| window.probe_count().is_enough())
            }
        }
    }
}

impl Health {
    /// Creates the health state before the first probe. A backend that does not exist is always
    /// sick.
    pub(super) fn new(exists: bool, probe: Option<&ProbeRow>) -> Self {
        let inputs =
            HealthInputs { health_override: HealthOverride::Auto, window: probe.map(Window::new), exists };
        Self {
            is_healthy: AtomicBool::new(inputs.is_healthy()),
            changed_ms: AtomicU64::new(now_ms()),
            inputs: Mutex::new(inputs),
        }
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.is_healthy.load(Relaxed)
    }

    /// Returns when the health last changed, in Unix milliseconds.
    pub(super) fn changed_ms(&self) -> u64 {
        self.changed_ms.load(Relaxed)
    }

    pub(super) fn health_override(&self) -> HealthOverride {
        self.inputs().health_override
    }

    /// Returns the number of good probes among the latest; `None` without a probe.
    pub(super) fn probe_count(&self) -> Option<ProbeCount> {
        self.inputs().window.map(Window::probe_count)
    }

    /// Records a probe result. Returns whether the health changed.
    pub(super) fn record_probe(&self, is_good: bool) -> bool {
        self.change(|inputs| {
            if let Some(window) = &mut inputs.window {
                window.good = window.good << 1 | u64::from(is_good);
            }
        })
    }

    /// Applies an operator's override. Returns whether the health changed.
    pub(super) fn set_override(&self, health_override: HealthOverride) -> bool {
        self.change(|inputs| inputs.health_override = health_override)
    }

    fn change(&self, change: impl FnOnce(&mut HealthInputs)) -> bool {
        let mut inputs = self.inputs();
        change(&mut inputs);
        let is_healthy = inputs.is_healthy();
        let is_changed = self.is_healthy.swap(is_healthy, Relaxed) != is_healthy;
        if is_changed {
            self.changed_ms.store(now_ms(), Relaxed);
        }
        is_changed
    }

    fn inputs(&self) -> MutexGuard<'_, HealthInputs> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
