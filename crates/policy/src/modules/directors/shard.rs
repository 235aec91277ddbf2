//! The director that shards: consistent hashing (vmod_directors(3), "shard").
//!
//! Each key has an order of the members of its own, which changes as little as possible when members come and go. Keys
//! and points are the last four bytes of a SHA-256, little-endian, as varnishd has them: our edges and Varnish servers
//! with the same members choose alike.
//!
//! Members that are added or removed count from the next [`Shard::reconfigure`] on, which the caller also does at the end
//! of the task that changed them.

use sha2::{Digest, Sha256};

use super::ring::Ring;
use super::{Error, push};

/// The points of each member, unless a policy says otherwise.
pub const REPLICAS_DEFAULT: i64 = 67;
/// The most points of a ring; eight bytes each.
pub const POINTS_MAX: usize = 1 << 20;

/// The key of a text, `.key()`.
pub fn key_of(text: &[u8]) -> u32 {
    let [.., a, b, c, d] = Sha256::digest(text).0;
    u32::from_le_bytes([a, b, c, d])
}

/// What a key is made from, the argument `by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By<'a> {
    /// `HASH`: the digest of the request's cache key; its first four bytes.
    Digest(&'a [u8; 32]),
    /// `URL`, and `HASH` where there is no cache key yet: the URL.
    Url(&'a [u8]),
    /// `KEY`: the number itself.
    Key(i64),
    /// `BLOB`: its first four bytes in network order; fewer are the lower ones.
    Blob(&'a [u8]),
}

impl By<'_> {
    /// The key.
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

/// What the health of members means for the choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Healthy {
    /// The member chosen is healthy if any is; those passed over need not be.
    #[default]
    Chosen,
    /// Health counts for nothing, and neither do rampup and warmup.
    Ignore,
    /// Those passed over are healthy too.
    All,
}

/// What a request asks for; [`Default`] is what `.backend()` has where a policy gives nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// How many members in the key's order are passed over; held to what there is.
    pub alternative: usize,
    /// The share of requests that go to the next member; `None` for the director's.
    pub warmup: Option<f64>,
    /// Whether a member that has just become healthy gets its share slowly.
    pub rampup: bool,
    /// See [`Healthy`].
    pub healthy: Healthy,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted { alternative: 0, warmup: None, rampup: true, healthy: Healthy::Chosen }
    }
}

/// The health of a member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Health {
    /// Whether it may be used.
    pub is_healthy: bool,
    /// When that changed last.
    pub changed_s: f64,
}

/// What a member is added with.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Its place on the ring: the argument `ident`, or the backend's name.
    pub ident: String,
    /// Its own rampup in seconds; `None` for the director's.
    pub rampup_s: Option<f64>,
    /// Its points relative to the others'; taken for 1 if less.
    pub weight: f64,
}

impl Instance {
    /// An instance without a rampup or weight of its own.
    pub fn new(ident: impl Into<String>) -> Instance {
        Instance { ident: ident.into(), rampup_s: None, weight: 1.0 }
    }
}

/// A shard director.
#[derive(Debug)]
pub struct Shard<M> {
    warmup: f64,
    rampup_s: f64,
    /// As changed since the ring was made.
    wanted: Vec<(M, Instance)>,
    changed: bool,
    /// As they are on the ring.
    instances: Vec<(M, Instance)>,
    ring: Ring,
}

impl<M> Default for Shard<M> {
    fn default() -> Shard<M> {
        Shard {
            warmup: 0.0,
            rampup_s: 0.0,
            wanted: Vec::new(),
            changed: false,
            instances: Vec::new(),
            ring: Ring::default(),
        }
    }
}

impl<M: Clone + PartialEq> Shard<M> {
    /// Sets the share of requests that go to the second member of their key while the first is well.
    pub fn set_warmup(&mut self, warmup: f64) -> Result<(), Error> {
        self.warmup = check_warmup(warmup)?;
        Ok(())
    }

    /// Sets how long a member that has become healthy is spared.
    pub fn set_rampup(&mut self, rampup_s: f64) -> Result<(), Error> {
        self.rampup_s = check_rampup(rampup_s)?;
        Ok(())
    }

    /// Adds `member`; `false` if an instance with that ident is in already, which stays.
    pub fn add(&mut self, member: M, instance: Instance) -> Result<bool, Error> {
        if !instance.weight.is_finite() {
            return Err(Error::Weight(instance.weight));
        }
        instance.rampup_s.map(check_rampup).transpose()?;
        if self.wanted.iter().any(|(_, other)| other.ident == instance.ident) {
            return Ok(false);
        }
        push(&mut self.wanted, (member, instance))?;
        self.changed = true;
        Ok(true)
    }

    /// Removes every instance of `member`; says whether there was one.
    pub fn remove(&mut self, member: &M) -> bool {
        self.remove_where(|other, _| other == member)
    }

    /// Removes the instance called `ident`; says whether there was one.
    pub fn remove_ident(&mut self, ident: &str) -> bool {
        self.remove_where(|_, instance| instance.ident == ident)
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.remove_where(|_, _| true);
    }

    fn remove_where(&mut self, unwanted: impl Fn(&M, &Instance) -> bool) -> bool {
        let before = self.wanted.len();
        self.wanted.retain(|(member, instance)| !unwanted(member, instance));
        let removed = self.wanted.len() < before;
        self.changed |= removed;
        removed
    }

    /// Makes the ring anew with `replicas` points for each weight of 1, if anything was changed. On an error the ring
    /// stays as it was, but one that nobody is left on.
    pub fn reconfigure(&mut self, replicas: i64) -> Result<(), Error> {
        let replicas_per_weight = u32::try_from(replicas).ok().filter(|count| *count > 0);
        let replicas_per_weight = replicas_per_weight.ok_or(Error::Replicas(replicas))?;
        if !self.changed {
            return Ok(());
        }
        let points_of =
            |instance: &Instance| (f64::from(replicas_per_weight) * instance.weight.max(1.0)).floor();
        if self.wanted.iter().map(|(_, instance)| points_of(instance)).sum::<f64>() > POINTS_MAX as f64 {
            return Err(Error::Replicas(replicas));
        }
        self.changed = false;
        self.instances.clone_from(&self.wanted);
        // The cast keeps the value: it is at most POINTS_MAX.
        let named =
            self.instances.iter().map(|(_, instance)| (instance.ident.as_str(), points_of(instance) as u32));
        self.ring = Ring::new(named);
        if self.instances.is_empty() { Err(Error::Empty) } else { Ok(()) }
    }

    /// Whether a change awaits [`reconfigure`](Self::reconfigure).
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// The members on the ring, one with several idents several times.
    pub fn members(&self) -> impl Iterator<Item = &M> {
        self.instances.iter().map(|(member, _)| member)
    }

    /// The member for `key`, `None` if none will do. `now_s` is for the rampup; `random` gives a number from 0 on and
    /// below 1, and is asked once at most.
    pub fn pick(
        &self,
        key: u32,
        wanted: Wanted,
        now_s: f64,
        mut health: impl FnMut(&M) -> Health,
        random: impl FnOnce() -> f64,
    ) -> Option<&M> {
        let mut walk = self.ring.walk(key);
        let ignore = wanted.healthy == Healthy::Ignore;
        let mut to_pass = wanted.alternative.min(self.instances.len().saturating_sub(1));
        let mut passed = None;
        let (chosen, chosen_health) = loop {
            let Some(index) = walk.next() else { return passed };
            let (member, instance) = &self.instances[index];
            if ignore && to_pass == 0 {
                return Some(member);
            }
            let its_health = health(member);
            if its_health.is_healthy {
                if to_pass == 0 {
                    break ((member, instance), its_health);
                }
                passed = Some(member);
            }
            if to_pass > 0 && (its_health.is_healthy || wanted.healthy != Healthy::All) {
                to_pass -= 1;
            }
        };
        let warmup = wanted.warmup.unwrap_or(self.warmup);
        if wanted.alternative > 0 || !(wanted.rampup || warmup > 0.0) {
            return Some(chosen.0);
        }
        let next = walk.find_map(|index| {
            let (member, instance) = &self.instances[index];
            let its_health = health(member);
            its_health.is_healthy.then_some(((member, instance), its_health))
        });
        let Some((next, next_health)) = next else { return Some(chosen.0) };
        let ramp = |instance: &Instance, health: Health| {
            let rampup_s = instance.rampup_s.unwrap_or(self.rampup_s);
            Some((now_s - health.changed_s) / rampup_s).filter(|share| *share < 1.0)
        };
        let to_next = match (ramp(chosen.1, chosen_health), ramp(next.1, next_health)) {
            (_, Some(_)) => 0.0,
            (Some(share), None) if wanted.rampup => 1.0 - share,
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
