//! Arguments of `shard.backend()`, from a call or a `shard_param`, and the per-task state of both.

use super::shard::{Healthy, Selection};

/// Arguments that affect the choice; an omitted argument is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    /// `by`: HASH, URL, KEY or BLOB.
    pub by: Option<&'static str>,
    /// `key`
    pub key: Option<i64>,
    /// The significant bytes of `key_blob`.
    pub key_blob: Option<Vec<u8>>,
    /// `alt`
    pub alternative: Option<i64>,
    /// `warmup`
    pub warmup: Option<f64>,
    /// `rampup`
    pub rampup: Option<bool>,
    /// `healthy`: CHOSEN, IGNORE or ALL.
    pub healthy: Option<&'static str>,
}

impl Parameters {
    /// Returns these parameters, with omitted parameters taken from `others`.
    pub fn or(self, others: &Parameters) -> Parameters {
        Parameters {
            by: self.by.or(others.by),
            key: self.key.or(others.key),
            key_blob: self.key_blob.or_else(|| others.key_blob.clone()),
            alternative: self.alternative.or(others.alternative),
            warmup: self.warmup.or(others.warmup),
            rampup: self.rampup.or(others.rampup),
            healthy: self.healthy.or(others.healthy),
        }
    }

    /// Converts the parameters to a ring selection.
    pub fn selection(&self) -> Selection {
        Selection {
            alternative: usize::try_from(self.alternative.unwrap_or(0)).unwrap_or(0),
            warmup: self.warmup.filter(|warmup| *warmup >= 0.0),
            rampup: self.rampup.unwrap_or(true),
            healthy: match self.healthy {
                Some("IGNORE") => Healthy::Ignore,
                Some("ALL") => Healthy::All,
                _ => Healthy::Chosen,
            },
        }
    }
}

/// A `shard_param` as changed by a task.
#[derive(Debug)]
pub struct ChangedSet {
    /// Object index of the `shard_param`.
    pub set: u32,
    /// Parameters in effect for this task.
    pub parameters: Parameters,
}

/// Arguments of `backend(resolve = LAZY, …)`, stored until the director is resolved.
#[derive(Debug)]
pub struct LazyCall {
    /// The director's object index.
    pub director: u32,
    /// The arguments of the call.
    pub own: Parameters,
    /// The object index of the `shard_param` in the call.
    pub set: Option<u32>,
}
