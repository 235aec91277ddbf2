//! Bindings of the `shard` director.
//!
//! In subroutines that have a backend request, the arguments of `backend(resolve = LAZY, …)` are
//! stored until the director is resolved. On the client side and in `vcl_init`, `backend(resolve =
//! LAZY)` takes no other arguments, as in Varnish.

use super::parameters;
use super::{BACKEND, INIT, backend_to_add};
use crate::functions::{Argument, Call, Class, Default, Director, Function, Instance, ObjectRef, function};
use crate::functions::{optional, optional_or, required};
use crate::modules::directors::Shard;
use crate::modules::directors::parameters::{LazyCall, Parameters};
use crate::modules::directors::shard::{self, Health, REPLICAS_DEFAULT};
use crate::program::Program;
use crate::step::{Sub, Subs};
use crate::task::Task;
use crate::types::Type;
use crate::value::{Backend, Failure, Value};

/// The state of a `shard` object.
#[derive(Default)]
struct ShardObject {
    ring: Shard<Backend>,
    /// The object index of the default `shard_param`.
    associated: Option<u32>,
}

pub(super) const CLASS: Class =
    Class::new("shard", &[], |_| Ok(Box::new(ShardObject::default()) as Instance), METHODS)
        .ready(|object| {
            if let Some(director) = object.downcast_mut::<ShardObject>() {
                // Ignore any error: the ring then stays empty and selects no backend, so the fetch
                // fails with a message.
                let _ = director.ring.reconfigure(REPLICAS_DEFAULT);
            }
        })
        .director(Director {
            resolve: |this, task| {
                let kept = task.kept.shards.iter().find(|lazy| lazy.director == this.index);
                let (own, set) =
                    kept.map_or((Parameters::default(), None), |lazy| (lazy.own.clone(), lazy.set));
                // On error, select no backend: the fetch then fails.
                pick(&this, own, set, task).unwrap_or_default()
            },
            members: |this| this.object::<ShardObject>().ring.members().copied().collect(),
        });

const METHODS: &[Function] = &[
    function(
        "set_warmup",
        &[optional_or("probability", Type::Real, Default::Real(0.0))],
        Type::Void,
        INIT,
        |call| {
            let warmup = call.real(0);
            call.object_mut::<ShardObject>().ring.set_warmup(warmup).map_err(Failure::new)?;
            Ok(Value::Void)
        },
    ),
    function(
        "set_rampup",
        &[optional_or("duration", Type::Duration, Default::Duration(0.0))],
        Type::Void,
        INIT,
        |call| {
            let rampup_s = call.real(0);
            call.object_mut::<ShardObject>().ring.set_rampup(rampup_s).map_err(Failure::new)?;
            Ok(Value::Void)
        },
    ),
    function("associate", &[optional("param", Type::Blob)], Type::Void, INIT, |call| {
        let set = parameters::set_argument(call, 0)?;
        call.object_mut::<ShardObject>().associated = set;
        Ok(Value::Void)
    }),
    function(
        "add_backend",
        &[
            BACKEND,
            optional("ident", Type::String),
            optional("rampup", Type::Duration),
            optional("weight", Type::Real),
        ],
        Type::Bool,
        INIT,
        |call| {
            let backend = backend_to_add(call)?;
            let ident = match call.maybe_text(1) {
                Some(ident) => String::from_utf8_lossy(ident).into_owned(),
                None => call.backend_name(backend).to_owned(),
            };
            let mut instance = shard::Instance::new(ident);
            instance.rampup_s = call.maybe_real(2);
            instance.weight = call.maybe_real(3).unwrap_or(1.0);
            let added = call.object_mut::<ShardObject>().ring.add(backend, instance);
            Ok(Value::Bool(added.map_err(Failure::new)?))
        },
    ),
    function(
        "remove_backend",
        &[optional("backend", Type::Backend), optional("ident", Type::String)],
        Type::Bool,
        INIT,
        |call| {
            let ident = call.maybe_text(1).map(|ident| String::from_utf8_lossy(ident).into_owned());
            let backend = call.backend(0);
            let ring = &mut call.object_mut::<ShardObject>().ring;
            let removed = match (&ident, &backend) {
                (Some(ident), _) => ring.remove_ident(ident),
                (None, Some(backend)) => ring.remove(backend),
                (None, None) => false,
            };
            Ok(Value::Bool(removed))
        },
    ),
    function("clear", &[], Type::Bool, INIT, |call| {
        call.object_mut::<ShardObject>().ring.clear();
        Ok(Value::Bool(true))
    }),
    function(
        "reconfigure",
        &[optional_or("replicas", Type::Int, Default::Int(REPLICAS_DEFAULT))],
        Type::Bool,
        INIT,
        |call| {
            let replicas = call.int(0);
            call.object_mut::<ShardObject>().ring.reconfigure(replicas).map_err(Failure::new)?;
            Ok(Value::Bool(true))
        },
    ),
    function("key", &[required("string", Type::String)], Type::Int, Subs::ALL, |call| {
        Ok(Value::Int(i64::from(shard::key_of(call.text(0)))))
    }),
    function("backend", BACKEND_ARGUMENTS, Type::Backend, Subs::ALL, backend),
];

const BACKEND_ARGUMENTS: &[Argument] = {
    let [by, key, key_blob, alt, warmup, rampup, healthy] = parameters::ARGUMENTS;
    let param = optional("param", Type::Blob);
    &[
        by,
        key,
        key_blob,
        alt,
        warmup,
        rampup,
        healthy,
        param,
        optional("resolve", Type::Enum(&["NOW", "LAZY"])),
    ]
};
const PARAM: usize = 7;
const RESOLVE: usize = 8;

fn backend(call: &mut Call<'_, '_>) -> Result<Value<'static>, Failure> {
    let own = parameters::from_call(call)?;
    let set = parameters::set_argument(call, PARAM)?;
    let is_init = call.sub == Sub::Init;
    if call.word(RESOLVE) == "LAZY" || is_init {
        let is_plain = own == Parameters::default() && set.is_none();
        if call.task.bereq.is_some() {
            // The last call for a director wins. There is at most one entry per director, so the
            // number of entries is bounded.
            let kept = &mut call.task.kept.shards;
            kept.retain(|other| other.director != call.index);
            kept.push(LazyCall { director: call.index, own, set });
        } else if !is_plain {
            return Err(Failure::new("shard.backend with resolve = LAZY takes no other arguments here"));
        }
        return Ok(Value::Backend(call.as_director()));
    }
    let Call { task, program, index, .. } = call;
    let Some(this) = ObjectRef::new(program, *index) else { return Ok(Value::Backend(Backend::None)) };
    Ok(Value::Backend(pick(&this, own, set, task)?))
}

/// Selects a member. Arguments missing from `own` are taken from `set`, or otherwise from the
/// associated `shard_param`.
fn pick(
    this: &ObjectRef<'_>,
    own: Parameters,
    set: Option<u32>,
    task: &mut Task<'_>,
) -> Result<Backend, Failure> {
    let director: &ShardObject = this.object();
    let program: &Program = this.program;
    let all = match set.or(director.associated) {
        Some(set) => own.or(&parameters::current(set, program, task)),
        None => own,
    };
    let key = parameters::key(&all, task)?;
    let random = task.draw();
    let health = |member: &Backend| Health {
        is_healthy: program.is_healthy(*member, task.host),
        changed_s: match member {
            Backend::Declared(index) => task.host.changed_s(*index),
            _ => 0.0,
        },
    };
    let picked = director.ring.pick(key, all.selection(), task.now_s, health, || random);
    Ok(picked.copied().unwrap_or_default())
}
