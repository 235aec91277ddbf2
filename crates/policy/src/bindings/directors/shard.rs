//! The `shard` director: consistent hashing, its arguments perhaps from a set of parameters.
//!
//! Where there is a request to a backend, `backend(resolve = LAZY, …)` is kept until the director is asked. On the
//! client's side and in `vcl_init` it gives the director alone, as in Varnish.

use super::parameters::{self, Parameters};
use super::{BACKEND, INIT, added, url};
use crate::bindings::failed;
use crate::functions::{Argument, Asked, Call, Class, Default, Director, Function, Instance, function};
use crate::functions::{may, needs, with};
use crate::modules::directors::Shard;
use crate::modules::directors::shard::{self, By, Health, REPLICAS_DEFAULT};
use crate::program::Program;
use crate::step::{Sub, Subs};
use crate::task::{Backend, Task};
use crate::types::Type;
use crate::value::{Failure, Value};

/// What `new` makes.
#[derive(Default)]
struct Sharding {
    ring: Shard<Backend>,
    /// The set of parameters that counts where a call names none, by its object.
    associated: Option<u32>,
}

pub(super) const CLASS: Class = Class {
    name: "shard",
    arguments: &[],
    new: |_| Ok(Box::new(Sharding::default()) as Instance),
    methods: METHODS,
    ready: Some(|object| {
        if let Some(director) = object.downcast_mut::<Sharding>() {
            // An empty ring gives no backend, which is told where one is needed.
            let _ = director.ring.reconfigure(REPLICAS_DEFAULT);
        }
    }),
    director: Some(Director {
        resolve: |asked, task| {
            let kept = task.kept.shards.iter().find(|lazy| lazy.director == asked.index);
            let (own, set) = kept.map_or((Parameters::default(), None), |lazy| (lazy.own.clone(), lazy.set));
            // What cannot be decided is no backend, which ends the fetch.
            pick(&asked, own, set, task).unwrap_or_default()
        },
        members: |asked| asked.object::<Sharding>().ring.members().copied().collect(),
    }),
};

/// `backend(resolve = LAZY, …)`, kept for a director until it is asked.
#[derive(Debug)]
pub(crate) struct Lazy {
    director: u32,
    own: Parameters,
    set: Option<u32>,
}

const METHODS: &[Function] = &[
    function(
        "set_warmup",
        &[with("probability", Type::Real, Default::Real(0.0))],
        Type::Void,
        INIT,
        |call| {
            let warmup = call.real(0).unwrap_or(0.0);
            call.object_mut::<Sharding>().ring.set_warmup(warmup).map_err(failed)?;
            Ok(Value::Void)
        },
    ),
    function(
        "set_rampup",
        &[with("duration", Type::Duration, Default::Duration(0.0))],
        Type::Void,
        INIT,
        |call| {
            let rampup_s = call.real(0).unwrap_or(0.0);
            call.object_mut::<Sharding>().ring.set_rampup(rampup_s).map_err(failed)?;
            Ok(Value::Void)
        },
    ),
    function("associate", &[may("param", Type::Blob)], Type::Void, INIT, |call| {
        let set = parameters::given(call, 0)?;
        call.object_mut::<Sharding>().associated = set;
        Ok(Value::Void)
    }),
    function(
        "add_backend",
        &[BACKEND, may("ident", Type::String), may("rampup", Type::Duration), may("weight", Type::Real)],
        Type::Bool,
        INIT,
        |call| {
            let backend = added(call)?;
            let ident = match call.maybe_text(1) {
                Some(ident) => String::from_utf8_lossy(ident).into_owned(),
                None => call.backend_name(backend).to_owned(),
            };
            let mut instance = shard::Instance::new(ident);
            instance.rampup_s = call.real(2);
            instance.weight = call.real(3).unwrap_or(1.0);
            let added = call.object_mut::<Sharding>().ring.add(backend, instance);
            Ok(Value::Bool(added.map_err(failed)?))
        },
    ),
    function(
        "remove_backend",
        &[may("backend", Type::Backend), may("ident", Type::String)],
        Type::Bool,
        INIT,
        |call| {
            let ident = call.maybe_text(1).map(|ident| String::from_utf8_lossy(ident).into_owned());
            let backend = call.backend(0);
            let ring = &mut call.object_mut::<Sharding>().ring;
            let removed = match (&ident, &backend) {
                (Some(ident), _) => ring.remove_ident(ident),
                (None, Some(backend)) => ring.remove(backend),
                (None, None) => false,
            };
            Ok(Value::Bool(removed))
        },
    ),
    function("clear", &[], Type::Bool, INIT, |call| {
        call.object_mut::<Sharding>().ring.clear();
        Ok(Value::Bool(true))
    }),
    function(
        "reconfigure",
        &[with("replicas", Type::Int, Default::Int(REPLICAS_DEFAULT))],
        Type::Bool,
        INIT,
        |call| {
            let replicas = call.int(0).unwrap_or(REPLICAS_DEFAULT);
            call.object_mut::<Sharding>().ring.reconfigure(replicas).map_err(failed)?;
            Ok(Value::Bool(true))
        },
    ),
    function("key", &[needs("string", Type::String)], Type::Int, Subs::ALL, |call| {
        Ok(Value::Int(i64::from(shard::key_of(call.text(0)))))
    }),
    function("backend", BACKEND_ARGUMENTS, Type::Backend, Subs::ALL, backend),
];

const BACKEND_ARGUMENTS: &[Argument] = {
    let [by, key, key_blob, alt, warmup, rampup, healthy] = parameters::ARGUMENTS;
    let param = may("param", Type::Blob);
    &[by, key, key_blob, alt, warmup, rampup, healthy, param, may("resolve", Type::Enum(&["NOW", "LAZY"]))]
};
const PARAM: usize = 7;
const RESOLVE: usize = 8;

fn backend(call: &mut Call<'_, '_>) -> Result<Value<'static>, Failure> {
    let own = Parameters::of(call)?;
    let set = parameters::given(call, PARAM)?;
    let is_init = call.sub == Sub::Init;
    if call.word(RESOLVE) == "LAZY" || is_init {
        let is_plain = own == Parameters::default() && set.is_none();
        if call.task.bereq.is_some() {
            // What the last call says of a director counts; so there are at most as many as the policy has directors.
            let kept = &mut call.task.kept.shards;
            kept.retain(|other| other.director != call.index);
            kept.push(Lazy { director: call.index, own, set });
        } else if !is_plain {
            return Err(Failure::new("shard.backend with resolve = LAZY takes no other argument here"));
        }
        return Ok(Value::Backend(call.as_director()));
    }
    let Call { task, program, index, .. } = call;
    let Some(asked) = Asked::new(program, *index) else { return Ok(Value::Backend(Backend::None)) };
    Ok(Value::Backend(pick(&asked, own, set, task)?))
}

/// The member for the arguments `own`, then for those of `set`, or of the set that is associated.
fn pick(
    asked: &Asked<'_>,
    own: Parameters,
    set: Option<u32>,
    task: &mut Task<'_>,
) -> Result<Backend, Failure> {
    let director: &Sharding = asked.object();
    let program: &Program = asked.program;
    let all = match set.or(director.associated) {
        Some(set) => own.or(&parameters::of_set(set, program, task)),
        None => own,
    };
    let key = all.key(task)?;
    let random = task.draw();
    let health = |member: &Backend| Health {
        is_healthy: program.is_healthy(*member, task.host),
        changed_s: match member {
            Backend::Declared(index) => task.host.changed_s(*index),
            _ => 0.0,
        },
    };
    let picked = director.ring.pick(key, all.wanted(), task.now_s, health, || random);
    Ok(picked.copied().unwrap_or_default())
}

/// The key of the request itself: of what was hashed where there is a request to a backend, else its URL.
pub(super) fn key_of_request(task: &Task<'_>) -> Result<u32, Failure> {
    match task.client.hash() {
        Some(digest) if task.bereq.is_some() => By::Digest(&digest).key().map_err(failed),
        _ => Ok(shard::key_of(&url(task))),
    }
}
