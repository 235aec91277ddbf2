//! Bindings of `shard_param`: arguments of `shard.backend()` shared by several directors.
//!
//! Changes in `vcl_init` apply to the policy. Changes in subroutines that have a backend request
//! apply to that request only.

use super::INIT;
use crate::functions::{Argument, Call, Class, Function, Instance, ObjectRef, function, optional};
use crate::message::Message;
use crate::modules::directors::parameters::{ChangedSet, Parameters};
use crate::modules::directors::shard::{self, By};
use crate::program::Program;
use crate::step::{Sub, Subs};
use crate::task::Task;
use crate::types::Type;
use crate::value::{Failure, Value};

/// Subroutines allowed to change a `shard_param`, as in Varnish.
const CHANGEABLE_IN: Subs = INIT.and(Subs::BACKEND).and(Subs::of(&[Sub::Pipe]));
/// Number of significant bytes in a `key_blob`.
const KEY_BLOB_BYTES: usize = 4;

/// The parameters read by [`from_call`].
pub(super) const ARGUMENTS: [Argument; 7] = [
    optional("by", Type::Enum(&["HASH", "URL", "KEY", "BLOB"])),
    optional("key", Type::Int),
    optional("key_blob", Type::Blob),
    optional("alt", Type::Int),
    optional("warmup", Type::Real),
    optional("rampup", Type::Bool),
    optional("healthy", Type::Enum(&["CHOSEN", "IGNORE", "ALL"])),
];

pub(super) const CLASS: Class =
    Class::new("shard_param", &[], |_| Ok(Box::new(Parameters::default()) as Instance), METHODS);

const METHODS: &[Function] = &[
    function("clear", &[], Type::Void, CHANGEABLE_IN, |call| {
        if call.sub == Sub::Init {
            *call.object_mut::<Parameters>() = Parameters::default();
        } else {
            let index = call.index;
            call.task.kept.shard_sets.retain(|changed| changed.set != index);
        }
        Ok(Value::Void)
    }),
    function("set", &ARGUMENTS, Type::Void, CHANGEABLE_IN, |call| {
        let given = from_call(call)?;
        if call.sub == Sub::Init {
            let set = call.object_mut::<Parameters>();
            *set = given.or(set);
        } else {
            change(call.index, given, call.program, call.task);
        }
        Ok(Value::Void)
    }),
    function("get_by", &[], Type::String, Subs::ALL, |call| {
        Ok(Value::text(current_of(call).by.unwrap_or("HASH")))
    }),
    function("get_key", &[], Type::Int, Subs::ALL, |call| {
        Ok(Value::Int(i64::from(key(&current_of(call), call.task)?)))
    }),
    function("get_alt", &[], Type::Int, Subs::ALL, |call| {
        Ok(Value::Int(current_of(call).alternative.unwrap_or(0)))
    }),
    function("get_warmup", &[], Type::Real, Subs::ALL, |call| {
        Ok(Value::Real(current_of(call).warmup.unwrap_or(-1.0)))
    }),
    function("get_rampup", &[], Type::Bool, Subs::ALL, |call| {
        Ok(Value::Bool(current_of(call).rampup.unwrap_or(true)))
    }),
    function("get_healthy", &[], Type::String, Subs::ALL, |call| {
        Ok(Value::text(current_of(call).healthy.unwrap_or("CHOSEN")))
    }),
    function("use", &[], Type::Blob, Subs::ALL, |call| Ok(Value::Parameters(call.index))),
];

/// Reads the first arguments of a call, as listed in [`ARGUMENTS`].
///
/// # Errors
///
/// Returns an error if an argument is out of range.
pub(super) fn from_call(call: &Call<'_, '_>) -> Result<Parameters, Failure> {
    let word = |index| Some(call.word(index)).filter(|word| !word.is_empty());
    let parameters = Parameters {
        by: word(0),
        key: call.maybe_int(1),
        key_blob: call.maybe_text(2).map(|blob| blob[..blob.len().min(KEY_BLOB_BYTES)].to_vec()),
        alternative: call.maybe_int(3),
        warmup: call.maybe_real(4),
        rampup: call.maybe_bool(5),
        healthy: word(6),
    };
    if let Some(key) = parameters.key {
        By::Key(key).key().map_err(Failure::new)?;
    }
    if parameters.alternative.is_some_and(|alternative| alternative < 0) {
        return Err(Failure::new("alt must not be negative"));
    }
    if parameters.warmup.is_some_and(|warmup| warmup != -1.0 && !(0.0..=1.0).contains(&warmup)) {
        return Err(Failure::new("warmup must be -1 or between 0 and 1"));
    }
    Ok(parameters)
}

/// Returns the key of the current request. By default, the key is derived from the hashed data, or
/// from the URL if there is no backend request.
pub(super) fn key(parameters: &Parameters, task: &Task<'_>) -> Result<u32, Failure> {
    let by = match parameters.by {
        Some("KEY") => By::Key(parameters.key.ok_or_else(|| Failure::new("by = KEY needs a key"))?),
        Some("BLOB") => {
            let blob = parameters.key_blob.as_deref();
            By::Blob(blob.ok_or_else(|| Failure::new("by = BLOB needs a key_blob"))?)
        }
        Some("URL") => return Ok(shard::key_of(&url(task))),
        _ => match task.client.hash() {
            Some(digest) if task.bereq.is_some() => {
                return By::Digest(&digest).key().map_err(Failure::new);
            }
            _ => return Ok(shard::key_of(&url(task))),
        },
    };
    by.key().map_err(Failure::new)
}

/// Returns the URL of the current request.
fn url(task: &Task<'_>) -> Vec<u8> {
    let request = task.request(Message::Bereq).or_else(|_| task.request(Message::Req));
    request.map(|request| request.target.as_str().as_bytes().to_vec()).unwrap_or_default()
}

/// Returns the object index of the `shard_param` passed as an argument, which must be the result of
/// `use()`.
pub(super) fn set_argument(call: &Call<'_, '_>, index: usize) -> Result<Option<u32>, Failure> {
    let set = call.parameters(index);
    if set.is_none() && call.is_given(index) {
        return Err(Failure::new("param must be the result of use() of a shard_param"));
    }
    Ok(set)
}

/// Returns the parameters in `set`, with the changes made by `task`.
pub(super) fn current(set: u32, program: &Program, task: &Task<'_>) -> Parameters {
    let changed = task.kept.shard_sets.iter().find(|changed| changed.set == set);
    match changed {
        Some(changed) => changed.parameters.clone(),
        None => {
            ObjectRef::new(program, set).map(|this| this.object::<Parameters>().clone()).unwrap_or_default()
        }
    }
}

fn current_of(call: &Call<'_, '_>) -> Parameters {
    // During `vcl_init`, the objects are not part of the program yet.
    if call.sub == Sub::Init {
        return call.object::<Parameters>().clone();
    }
    current(call.index, call.program, call.task)
}

fn change(set: u32, given: Parameters, program: &Program, task: &mut Task<'_>) {
    let parameters = given.or(&current(set, program, task));
    let sets = &mut task.kept.shard_sets;
    // There is at most one entry per `shard_param`, so the number of entries is bounded.
    sets.retain(|changed| changed.set != set);
    sets.push(ChangedSet { set, parameters });
}
