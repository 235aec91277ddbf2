//! `shard_param`: arguments of `shard.backend()` that several directors share.
//!
//! What `vcl_init` sets holds for the policy. What is set where there is a request to a backend holds for that request.

use super::INIT;
use super::shard::key_of_request;
use super::url;
use crate::bindings::failed;
use crate::functions::{Argument, Asked, Call, Class, Function, Instance, function, may};
use crate::modules::directors::shard::{self, By, Healthy, Wanted};
use crate::program::Program;
use crate::step::{Sub, Subs};
use crate::task::Task;
use crate::types::Type;
use crate::value::{Failure, Value};

/// Where a set may be changed, as in Varnish.
const CHANGED: Subs = INIT.and(Subs::BACKEND).and(Subs::of(&[Sub::Pipe]));
/// Bytes of a `key_blob` that count.
const KEY_BLOB_BYTES: usize = 4;

/// Arguments that say which member is chosen; what was not given is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Parameters {
    by: Option<&'static str>,
    key: Option<i64>,
    key_blob: Option<Vec<u8>>,
    alternative: Option<i64>,
    warmup: Option<f64>,
    rampup: Option<bool>,
    healthy: Option<&'static str>,
}

/// A set as a request has changed it.
#[derive(Debug)]
pub(crate) struct Changed {
    set: u32,
    parameters: Parameters,
}

/// The arguments, those of [`Parameters::of`].
pub(super) const ARGUMENTS: [Argument; 7] = [
    may("by", Type::Enum(&["HASH", "URL", "KEY", "BLOB"])),
    may("key", Type::Int),
    may("key_blob", Type::Blob),
    may("alt", Type::Int),
    may("warmup", Type::Real),
    may("rampup", Type::Bool),
    may("healthy", Type::Enum(&["CHOSEN", "IGNORE", "ALL"])),
];

pub(super) const CLASS: Class = Class {
    name: "shard_param",
    arguments: &[],
    new: |_| Ok(Box::new(Parameters::default()) as Instance),
    methods: METHODS,
    ready: None,
    director: None,
};

const METHODS: &[Function] = &[
    function("clear", &[], Type::Void, CHANGED, |call| {
        if call.sub == Sub::Init {
            *call.object_mut::<Parameters>() = Parameters::default();
        } else {
            let index = call.index;
            call.task.kept.shard_sets.retain(|changed| changed.set != index);
        }
        Ok(Value::Void)
    }),
    function("set", &ARGUMENTS, Type::Void, CHANGED, |call| {
        let given = Parameters::of(call)?;
        if call.sub == Sub::Init {
            let set = call.object_mut::<Parameters>();
            *set = given.or(set);
        } else {
            change(call.index, given, call.program, call.task);
        }
        Ok(Value::Void)
    }),
    function("get_by", &[], Type::String, Subs::ALL, |call| Ok(Value::text(of(call).by.unwrap_or("HASH")))),
    function("get_key", &[], Type::Int, Subs::ALL, |call| {
        Ok(Value::Int(i64::from(of(call).key(call.task)?)))
    }),
    function("get_alt", &[], Type::Int, Subs::ALL, |call| Ok(Value::Int(of(call).alternative.unwrap_or(0)))),
    function("get_warmup", &[], Type::Real, Subs::ALL, |call| {
        Ok(Value::Real(of(call).warmup.unwrap_or(-1.0)))
    }),
    function("get_rampup", &[], Type::Bool, Subs::ALL, |call| {
        Ok(Value::Bool(of(call).rampup.unwrap_or(true)))
    }),
    function("get_healthy", &[], Type::String, Subs::ALL, |call| {
        Ok(Value::text(of(call).healthy.unwrap_or("CHOSEN")))
    }),
    function("use", &[], Type::Blob, Subs::ALL, |call| Ok(Value::Parameters(call.index))),
];

impl Parameters {
    /// The first arguments of a call, by [`ARGUMENTS`].
    ///
    /// # Errors
    /// Where one of them can never count.
    pub(super) fn of(call: &Call<'_, '_>) -> Result<Parameters, Failure> {
        let word = |index| Some(call.word(index)).filter(|word| !word.is_empty());
        let parameters = Parameters {
            by: word(0),
            key: call.int(1),
            key_blob: call.maybe_text(2).map(|blob| blob[..blob.len().min(KEY_BLOB_BYTES)].to_vec()),
            alternative: call.int(3),
            warmup: call.real(4),
            rampup: call.bool(5),
            healthy: word(6),
        };
        if let Some(key) = parameters.key {
            By::Key(key).key().map_err(failed)?;
        }
        if parameters.alternative.is_some_and(|alternative| alternative < 0) {
            return Err(Failure::new("alt is a number from 0 on"));
        }
        if parameters.warmup.is_some_and(|warmup| warmup != -1.0 && !(0.0..=1.0).contains(&warmup)) {
            return Err(Failure::new("warmup is -1, or a number from 0 to 1"));
        }
        Ok(parameters)
    }

    /// These, and of `others` what these lack.
    pub(super) fn or(self, others: &Parameters) -> Parameters {
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

    /// The key for the request of `task`.
    pub(super) fn key(&self, task: &Task<'_>) -> Result<u32, Failure> {
        match self.by {
            Some("KEY") => {
                let key = self.key.ok_or_else(|| Failure::new("by = KEY needs a key"))?;
                By::Key(key).key().map_err(failed)
            }
            Some("BLOB") => {
                let blob = self.key_blob.as_deref();
                let blob = blob.ok_or_else(|| Failure::new("by = BLOB needs a key_blob"))?;
                By::Blob(blob).key().map_err(failed)
            }
            Some("URL") => Ok(shard::key_of(&url(task))),
            _ => key_of_request(task),
        }
    }

    /// What the ring is asked.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
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

/// The set that an argument stands for: what `use()` gave, and nothing else.
pub(super) fn given(call: &Call<'_, '_>, index: usize) -> Result<Option<u32>, Failure> {
    let set = call.parameters(index);
    if set.is_none() && call.is_given(index) {
        return Err(Failure::new("param takes what use() of a shard_param gives"));
    }
    Ok(set)
}

/// A set as it is for `task`.
pub(super) fn of_set(set: u32, program: &Program, task: &Task<'_>) -> Parameters {
    let changed = task.kept.shard_sets.iter().find(|changed| changed.set == set);
    match changed {
        Some(changed) => changed.parameters.clone(),
        None => {
            Asked::new(program, set).map(|asked| asked.object::<Parameters>().clone()).unwrap_or_default()
        }
    }
}

fn of(call: &Call<'_, '_>) -> Parameters {
    // In vcl_init the program does not have its objects yet.
    if call.sub == Sub::Init {
        return call.object::<Parameters>().clone();
    }
    of_set(call.index, call.program, call.task)
}

fn change(set: u32, given: Parameters, program: &Program, task: &mut Task<'_>) {
    let parameters = given.or(&of_set(set, program, task));
    let sets = &mut task.kept.shard_sets;
    // So there are at most as many as the policy has.
    sets.retain(|changed| changed.set != set);
    sets.push(Changed { set, parameters });
}
