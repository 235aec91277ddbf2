//! Shard director: consistent hashing (vmod_directors(3), "shard").
//!
//! Each key defines an order of the members, which changes as little as possible when members are
//! added or removed. Keys and points are the last four bytes of a SHA-256 digest, little-endian, as
//! in varnishd. With the same members, Thalweg and Varnish therefore make the same choices.
//!
//! Changes to the members take effect at the next [`Shard::reconfigure`]. The caller must call
//! `reconfigure` at the end of a task that changed the members.

use sha2::{Digest, Sha256};

use super::ring::Ring;
use super::{Error, push};

/// Default number of points per member.
pub const REPLICAS_DEFAULT: i64 = 67;
/// Maximum number of points on a ring; each point takes eight bytes.
pub const POINTS_MAX: usize = 1 << 20;

/// `.key()`: returns the key of a string.
pub fn key_of(text: &[u8]) -> u32 {
    let [.., a, b, c, d] = Sha256::digest(text).0;
    u32::from_le_bytes([a, b, c, d])
}

/// The source of a key, as selected by the argument `by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By<'a> {
    /// `HASH`: the first four bytes of the digest of the request's cache key.
    Digest(&'a [u8; 32]),
    /// `URL`, and `HASH` before the cache key is known: the URL.
    Url(&'a [u8]),
    /// `KEY`: the number itself.
    Key(i64),
    /// `BLOB`: the first four bytes in network order. A shorter blob is padded with leading zeros.
    Blob(&'a [u8]),
}

impl By<'_> {
    /// Computes the key.
    pub fn key(self) -> Result<u32, Error> {
        match self {
            By::Digest(digest) => Ok(first_bytes(digest)),
            By::Url(url) => Ok(key_of(url)),
            By::Key(key) => u32::try_from(key).map_err(|_| Error::Key(key)),
            By::Blob(blob) => Ok(first_bytes(blob)),
        }
    }
}

fn first_bytes(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |key, byte| key << 8 | u32::from(*byte))
}

/// How health affects the choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Healthy {
    /// The chosen member must be healthy, but skipped alternatives may be unhealthy.
    #[default]
    Chosen,
    /// Health, rampup and warmup are ignored.
    Ignore,
    /// Both the chosen member and the skipped alternatives must be healthy.
    All,
}

/// Parameters of a selection; [`Default`] uses the defaults of `.backend()`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Selection {
    /// Number of members to skip in the key's order, clamped to the last member.
    pub alternative: usize,
    /// Share of requests sent to the next member in the key's order, from 0 to 1; `None` for the
    /// director's setting.
    pub warmup: Option<f64>,
    /// Whether a newly healthy member receives its share gradually.
    pub rampup: bool,
    /// How health affects the choice.
    pub healthy: Healthy,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection { alternative: 0, warmup: None, rampup: true, healthy: Healthy::Chosen }
    }
}

/// The health of a member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Health {
    /// Whether the member is healthy.
    pub is_healthy: bool,
    /// Time at which `is_healthy` last changed, in Unix seconds.
    pub changed_s: f64,
}

/// Settings of a member.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Name that determines the member's points on the ring: the argument `ident`, or the backend's
    /// name.
    pub ident: String,
    /// Rampup duration in seconds; `None` for the director's setting.
    pub rampup_s: Option<f64>,
    /// Number of points relative to other members; values below 1 count as 1.
    pub weight: f64,
}

impl Instance {
    /// Creates an instance with default rampup and weight.
    pub fn new(ident: impl Into<String>) -> Instance {
        Instance { ident: ident.into(), rampup_s: None, weight: 1.0 }
    }
}

/// A shard director.
#[derive(Debug)]
pub struct Shard<M> {
    warmup: f64,
    rampup_s: f64,
    /// Members after all changes so far, including changes not yet applied to the ring.
    pending: Vec<(M, Instance)>,
    changed: bool,
    /// Members on the ring.
    instances: Vec<(M, Instance)>,
    ring: Ring,
}

impl<M> Default for Shard<M> {
    fn default() -> Shard<M> {
        Shard {
            warmup: 0.0,
            rampup_s: 0.0,
            pending: Vec::new(),
            changed: false,
            instances: Vec::new(),
            ring: Ring::default(),
        }
    }
}

impl<M: Clone + PartialEq> Shard<M> {
    /// Sets the share of requests, from 0 to 1, sent to the second member in their key's order
    /// while the first is healthy.
    pub fn set_warmup(&mut self, warmup: f64) -> Result<(), Error> {
        self.warmup = check_warmup(warmup)?;
        Ok(())
    }

    /// Sets the time in seconds over which a newly healthy member ramps up.
    pub fn set_rampup(&mut self, rampup_s: f64) -> Result<(), Error> {
        self.rampup_s = check_rampup(rampup_s)?;
        Ok(())
    }

    /// Adds `member`. If an instance with the same ident exists, changes nothing and returns
    /// `false`.
    pub fn add(&mut self, member: M, instance: Instance) -> Result<bool, Error> {
        if !instance.weight.is_finite() {
            return Err(Error::Weight(instance.weight));
        }
        instance.rampup_s.map(check_rampup).transpose()?;
        if self.pending.iter().any(|(_, other)| other.ident == instance.ident) {
            return Ok(false);
        }
        push(&mut self.pending, (member, instance))?;
        self.changed = true;
        Ok(true)
    }

    /// Removes all instances of `member` and returns whether any was found.
    pub fn remove(&mut self, member: &M) -> bool {
        self.remove_where(|other, _| other == member)
    }

    /// Removes the instance called `ident` and returns whether it was found.
    pub fn remove_ident(&mut self, ident: &str) -> bool {
        self.remove_where(|_, instance| instance.ident == ident)
    }

    /// Removes all members.
    pub fn clear(&mut self) {
        self.remove_where(|_, _| true);
    }

    fn remove_where(&mut self, unwanted: impl Fn(&M, &Instance) -> bool) -> bool {
        let before = self.pending.len();
        self.pending.retain(|(member, instance)| !unwanted(member, instance));
        let removed = self.pending.len() < before;
        self.changed |= removed;
        removed
    }

    /// Rebuilds the ring after changes, with `replicas` points per unit of weight. On error, the
    /// ring is unchanged, except that a ring without members is emptied.
    pub fn reconfigure(&mut self, replicas: i64) -> Result<(), Error> {
        let replicas_per_weight = u32::try_from(replicas).ok().filter(|count| *count > 0);
        let replicas_per_weight = replicas_per_weight.ok_or(Error::Replicas(replicas))?;
        if !self.changed {
            return Ok(());
        }
        let points_of =
            |instance: &Instance| (f64::from(replicas_per_weight) * instance.weight.max(1.0)).floor();
        if self.pending.iter().map(|(_, instance)| points_of(instance)).sum::<f64>() > POINTS_MAX as f64 {
            return Err(Error::Replicas(replicas));
        }
        self.changed = false;
        self.instances.clone_from(&self.pending);
        // The cast is lossless: the value is at most POINTS_MAX.
        let named =
            self.instances.iter().map(|(_, instance)| (instance.ident.as_str(), points_of(instance) as u32));
        self.ring = Ring::new(named);
        if self.instances.is_empty() { Err(Error::Empty) } else { Ok(()) }
    }

    /// Returns whether a change awaits [`reconfigure`](Self::reconfigure).
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// Returns the members on the ring. A member with several idents is repeated.
    pub fn members(&self) -> impl Iterator<Item = &M> {
        self.instances.iter().map(|(member, _)| member)
    }

    /// Selects the member for `key`; `None` if no member is suitable. `now_s`, in Unix seconds, is
    /// used for rampup. `random` must return a number in [0, 1) and is called at most once.
    pub fn pick(
        &self,
        key: u32,
        selection: Selection,
        now_s: f64,
        mut health: impl FnMut(&M) -> Health,
        random: impl FnOnce() -> f64,
    ) -> Option<&M> {
        let mut walk = self.ring.walk(key);
        let ignore = selection.healthy == Healthy::Ignore;
        let mut to_skip = selection.alternative.min(self.instances.len().saturating_sub(1));
        let mut passed = None;
        let (chosen, chosen_health) = loop {
            let Some(index) = walk.next() else { return passed };
            let (member, instance) = &self.instances[index];
            if ignore && to_skip == 0 {
                return Some(member);
            }
            let member_health = health(member);
            if member_health.is_healthy {
                if to_skip == 0 {
                    break ((member, instance), member_health);
                }
                passed = Some(member);
            }
            if to_skip > 0 && (member_health.is_healthy || selection.healthy != Healthy::All) {
                to_skip -= 1;
            }
        };
        let warmup = selection.warmup.unwrap_or(self.warmup);
        if selection.alternative > 0 || !(selection.rampup || warmup > 0.0) {
            return Some(chosen.0);
        }
        let next = walk.find_map(|index| {
            let (member, instance) = &self.instances[index];
            let member_health = health(member);
            member_health.is_healthy.then_some(((member, instance), member_health))
        });
        let Some((next, next_health)) = next else { return Some(chosen.0) };
        let ramp = |instance: &Instance, health: Health| {
            let rampup_s = instance.rampup_s.unwrap_or(self.rampup_s);
            Some((now_s - health.changed_s) / rampup_s).filter(|share| *share < 1.0)
        };
        let to_next = match (ramp(chosen.1, chosen_health), ramp(next.1, next_health)) {
            (_, Some(_)) => 0.0,
            (Some(share), None) if selection.rampup => 1.0 - share,
            (Some(_), None) => 0.0,
            (None, None) => warmup,
        };
        Some(if to_next > 0.0 && random() < to_next { next.0 } else { chosen.0 })
    }
}

fn check_warmup(warmup: f64) -> Result<f64, Error> {
    if (0.0..=1.0).contains(&warmup) { Ok(warmup) } else { Err(Error::Warmup(warmup)) }
}

fn check_rampup(rampup_s: f64) -> Result<f64, Error> {
    if rampup_s >= 0.0 && rampup_s.is_finite() { Ok(rampup_s) } else { Err(Error::Rampup(rampup_s)) }
}

#[cfg(test)]
#[path = "shard_tests.rs"]
mod tests;
