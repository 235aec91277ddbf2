//! Whether a backend may be asked: by its last probes, or as an operator has said (vcl-probe(7), `backend.set_health` of
//! varnish-cli(7)).
//!
//! **Invariant:** who asks whether a backend is healthy, or since when, takes no lock.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thalweg_policy::program::ProbeRow;

use crate::now_ms;

/// Probes that are remembered: as many as a window may have.
const PROBES_MAX: u32 = u64::BITS;

/// What an operator says of a backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Its probe decides; without one it is healthy.
    #[default]
    Auto,
    /// It is not asked.
    Sick,
    /// It is asked, whatever its probe says.
    Healthy,
}

/// A word that is no [`Judgement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoJudgement;

impl Judgement {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sick => "sick",
            Self::Healthy => "healthy",
        }
    }
}

impl FromStr for Judgement {
    type Err = NoJudgement;

    fn from_str(text: &str) -> Result<Self, NoJudgement> {
        [Self::Auto, Self::Sick, Self::Healthy]
            .into_iter()
            .find(|judgement| judgement.as_str() == text)
            .ok_or(NoJudgement)
    }
}

impl fmt::Display for NoJudgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a backend's health is sick, healthy or auto")
    }
}

/// The health of one backend.
#[derive(Debug)]
pub(super) struct Health {
    is_healthy: AtomicBool,
    changed_ms: AtomicU64,
    /// What that follows from.
    grounds: Mutex<Grounds>,
}

#[derive(Debug)]
struct Grounds {
    judgement: Judgement,
    window: Option<Window>,
    /// There is something to ask.
    exists: bool,
}

/// The last probes.
#[derive(Debug, Clone, Copy)]
struct Window {
    /// The last one is the lowest bit; good ones are set.
    good: u64,
    size: u32,
    threshold: u32,
}

/// How many of the last probes were good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Good {
    pub(crate) good: u32,
    pub(crate) window: u32,
    pub(crate) threshold: u32,
}

impl Window {
    fn new(probe: &ProbeRow) -> Self {
        let good = ones(probe.initial);
        Self { good, size: probe.window.clamp(1, PROBES_MAX), threshold: probe.threshold }
    }

    fn good(self) -> Good {
        let good = (self.good & ones(self.size)).count_ones();
        Good { good, window: self.size, threshold: self.threshold }
    }
}

/// As many of the lowest bits, set.
fn ones(count: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - count.min(u64::BITS)).unwrap_or(0)
}

impl Good {
    fn is_enough(self) -> bool {
        self.good >= self.threshold
    }
}

impl Grounds {
    fn is_healthy(&self) -> bool {
        match self.judgement {
            Judgement::Sick => false,
            Judgement::Healthy => self.exists,
            Judgement::Auto => self.exists && self.window.is_none_or(|window| window.good().is_enough()),
        }
    }
}

impl Health {
    /// As it is before the first probe; one that does not exist is sick for ever.
    pub(super) fn new(exists: bool, probe: Option<&ProbeRow>) -> Self {
        let grounds = Grounds { judgement: Judgement::Auto, window: probe.map(Window::new), exists };
        Self {
            is_healthy: AtomicBool::new(grounds.is_healthy()),
            changed_ms: AtomicU64::new(now_ms()),
            grounds: Mutex::new(grounds),
        }
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.is_healthy.load(Relaxed)
    }

    /// Since when it has been so, unix milliseconds.
    pub(super) fn changed_ms(&self) -> u64 {
        self.changed_ms.load(Relaxed)
    }

    pub(super) fn judgement(&self) -> Judgement {
        self.grounds().judgement
    }

    /// What its last probes said, if it has a probe.
    pub(super) fn good(&self) -> Option<Good> {
        self.grounds().window.map(Window::good)
    }

    /// Notes a probe. True if the health is another now.
    pub(super) fn note(&self, is_good: bool) -> bool {
        self.change(|grounds| {
            if let Some(window) = &mut grounds.window {
                window.good = window.good << 1 | u64::from(is_good);
            }
        })
    }

    /// Lets an operator decide. True if the health is another now.
    pub(super) fn judge(&self, judgement: Judgement) -> bool {
        self.change(|grounds| grounds.judgement = judgement)
    }

    fn change(&self, change: impl FnOnce(&mut Grounds)) -> bool {
        let mut grounds = self.grounds();
        change(&mut grounds);
        let is_healthy = grounds.is_healthy();
        let is_changed = self.is_healthy.swap(is_healthy, Relaxed) != is_healthy;
        if is_changed {
            self.changed_ms.store(now_ms(), Relaxed);
        }
        is_changed
    }

    fn grounds(&self) -> MutexGuard<'_, Grounds> {
        self.grounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
