//! `directors` (vmod_directors(3)): which of several backends a request goes to.
//!
//! Members are added in `vcl_init`. `backend()` of `round_robin`, `fallback` and `random` gives the director itself,
//! which is asked when a backend is needed: a response from the cache moves none of them on. A director as a member
//! counts as healthy; it is asked in its turn.

use super::failed;
use crate::functions::{
    Argument, Call, Class, Default, Function, Instance, Module, function, may, needs, with,
};
use crate::modules::directors::shard::{self, By, Health, Healthy, Wanted};
use crate::modules::directors::{Fallback, RoundRobin, Shard, Weighted, weighted};
use crate::step::{Sub, Subs};
use crate::task::{Backend, Message, Task};
use crate::types::Type;
use crate::value::{Failure, Value};

type Given = Result<Value<'static>, Failure>;

const INIT: Subs = Subs::of(&[Sub::Init]);
const BACKEND: Argument = needs("backend", Type::Backend);
const REPLICAS: i64 = 67;

pub(super) const MODULE: Module = Module {
    name: "directors",
    functions: &[],
    classes: &[
        Class {
            name: "round_robin",
            arguments: &[],
            new: |_| Ok(Box::new(RoundRobin::<Backend>::default()) as Instance),
            methods: &[
                function("add_backend", &[BACKEND], Type::Void, INIT, |call| {
                    let backend = backend(call);
                    call.object_mut::<RoundRobin<Backend>>().add(backend).map_err(failed)?;
                    Ok(Value::Void)
                }),
                function("remove_backend", &[BACKEND], Type::Void, INIT, |call| {
                    let backend = backend(call);
                    call.object_mut::<RoundRobin<Backend>>().remove(&backend);
                    Ok(Value::Void)
                }),
                LATER,
            ],
            ready: None,
            resolve: Some(|object, task| {
                let director: Option<&RoundRobin<Backend>> = object.downcast_ref();
                director
                    .and_then(|director| director.pick(|member| is_healthy(task, *member)).copied())
                    .unwrap_or_default()
            }),
        },
        Class {
            name: "fallback",
            arguments: &[with("sticky", Type::Bool, Default::Bool(false))],
            new: |call| Ok(Box::new(Fallback::<Backend>::new(call.bool(0) == Some(true))) as Instance),
            methods: &[
                function("add_backend", &[BACKEND], Type::Void, INIT, |call| {
                    let backend = backend(call);
                    call.object_mut::<Fallback<Backend>>().add(backend).map_err(failed)?;
                    Ok(Value::Void)
                }),
                function("remove_backend", &[BACKEND], Type::Void, INIT, |call| {
                    let backend = backend(call);
                    call.object_mut::<Fallback<Backend>>().remove(&backend);
                    Ok(Value::Void)
                }),
                LATER,
            ],
            ready: None,
            resolve: Some(|object, task| {
                let director: Option<&Fallback<Backend>> = object.downcast_ref();
                director
                    .and_then(|director| director.pick(|member| is_healthy(task, *member)).copied())
                    .unwrap_or_default()
            }),
        },
        Class {
            name: "random",
            arguments: &[],
            new: |_| Ok(Box::new(Weighted::<Backend>::default()) as Instance),
            methods: &[ADD_WEIGHTED, REMOVE_WEIGHTED, LATER],
            ready: None,
            resolve: Some(|object, task| {
                let unit = task.draw();
                let director: Option<&Weighted<Backend>> = object.downcast_ref();
                let picked =
                    director.and_then(|director| director.pick(unit, |member| is_healthy(task, *member)));
                picked.copied().unwrap_or_default()
            }),
        },
        Class {
            name: "hash",
            arguments: &[],
            new: |_| Ok(Box::new(Weighted::<Backend>::default()) as Instance),
            methods: &[
                ADD_WEIGHTED,
                REMOVE_WEIGHTED,
                function("backend", &[needs("key", Type::String)], Type::Backend, Subs::REQUEST, |call| {
                    let unit = weighted::unit_of(call.text(0));
                    let director: &Weighted<Backend> = call.object();
                    let picked = director.pick(unit, |member| is_healthy(call.task, *member));
                    Ok(Value::Backend(picked.copied().unwrap_or_default()))
                }),
            ],
            ready: None,
            resolve: None,
        },
        Class {
            name: "shard",
            arguments: &[],
            new: |_| Ok(Box::new(Shard::<Backend>::default()) as Instance),
            methods: SHARD,
            ready: Some(|object| {
                if let Some(director) = object.downcast_mut::<Shard<Backend>>() {
                    // An empty ring gives no backend, which is told where one is needed.
                    let _ = director.reconfigure(REPLICAS);
                }
            }),
            resolve: Some(|object, task| {
                let director: Option<&Shard<Backend>> = object.downcast_ref();
                let url = url(task);
                let key = shard::key_of(&url);
                director.map(|director| pick(director, key, Wanted::default(), task)).unwrap_or_default()
            }),
        },
    ],
};

/// The director itself, to be asked later.
const LATER: Function =
    function("backend", &[], Type::Backend, Subs::ALL, |call| Ok(Value::Backend(call.as_director())));

const ADD_WEIGHTED: Function = function(
    "add_backend",
    &[BACKEND, with("weight", Type::Real, Default::Real(1.0))],
    Type::Void,
    INIT,
    |call| {
        let (backend, weight) = (backend(call), call.real(1).unwrap_or(1.0));
        call.object_mut::<Weighted<Backend>>().add(backend, weight).map_err(failed)?;
        Ok(Value::Void)
    },
);

const REMOVE_WEIGHTED: Function = function("remove_backend", &[BACKEND], Type::Void, INIT, |call| {
    let backend = backend(call);
    call.object_mut::<Weighted<Backend>>().remove(&backend);
    Ok(Value::Void)
});

/// The member for `key`. A ring that `reconfigure` did not make is made at the end of `vcl_init`.
fn pick(director: &Shard<Backend>, key: u32, wanted: Wanted, task: &mut Task<'_>) -> Backend {
    let random = task.draw();
    let health = |member: &Backend| Health {
        is_healthy: is_healthy(task, *member),
        changed_s: match member {
            Backend::Declared(index) => task.host.changed_s(*index),
            _ => 0.0,
        },
    };
    director.pick(key, wanted, task.now_s, health, || random).copied().unwrap_or_default()
}

const SHARD: &[Function] = &[
    function(
        "set_warmup",
        &[with("probability", Type::Real, Default::Real(0.0))],
        Type::Void,
        INIT,
        |call| {
            let warmup = call.real(0).unwrap_or(0.0);
            call.object_mut::<Shard<Backend>>().set_warmup(warmup).map_err(failed)?;
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
            call.object_mut::<Shard<Backend>>().set_rampup(rampup_s).map_err(failed)?;
            Ok(Value::Void)
        },
    ),
    function(
        "add_backend",
        &[BACKEND, may("ident", Type::String), may("rampup", Type::Duration), may("weight", Type::Real)],
        Type::Bool,
        INIT,
        |call| {
            let backend = backend(call);
            let ident = match call.maybe_text(1) {
                Some(ident) => String::from_utf8_lossy(ident).into_owned(),
                None => call.backend_name(backend).to_owned(),
            };
            let mut instance = shard::Instance::new(ident);
            instance.rampup_s = call.real(2);
            instance.weight = call.real(3).unwrap_or(1.0);
            let added = call.object_mut::<Shard<Backend>>().add(backend, instance);
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
            let director = call.object_mut::<Shard<Backend>>();
            let removed = match (&ident, &backend) {
                (Some(ident), _) => director.remove_ident(ident),
                (None, Some(backend)) => director.remove(backend),
                (None, None) => false,
            };
            Ok(Value::Bool(removed))
        },
    ),
    function("clear", &[], Type::Bool, INIT, |call| {
        call.object_mut::<Shard<Backend>>().clear();
        Ok(Value::Bool(true))
    }),
    function(
        "reconfigure",
        &[with("replicas", Type::Int, Default::Int(REPLICAS))],
        Type::Bool,
        INIT,
        |call| {
            let replicas = call.int(0).unwrap_or(REPLICAS);
            call.object_mut::<Shard<Backend>>().reconfigure(replicas).map_err(failed)?;
            Ok(Value::Bool(true))
        },
    ),
    function("key", &[needs("string", Type::String)], Type::Int, Subs::ALL, |call| {
        Ok(Value::Int(i64::from(shard::key_of(call.text(0)))))
    }),
    function(
        "backend",
        &[
            with("by", Type::Enum(&["HASH", "URL", "KEY", "BLOB"]), Default::Word("HASH")),
            may("key", Type::Int),
            may("key_blob", Type::Blob),
            with("alt", Type::Int, Default::Int(0)),
            with("warmup", Type::Real, Default::Real(-1.0)),
            with("rampup", Type::Bool, Default::Bool(true)),
            with("healthy", Type::Enum(&["CHOSEN", "IGNORE", "ALL"]), Default::Word("CHOSEN")),
            with("resolve", Type::Enum(&["NOW", "LAZY"]), Default::Word("NOW")),
        ],
        Type::Backend,
        Subs::ALL,
        shard_backend,
    ),
];

fn shard_backend(call: &mut Call<'_, '_>) -> Given {
    if call.word(7) == "LAZY" || call.sub == Sub::Init {
        return Ok(Value::Backend(call.as_director()));
    }
    let key = match call.word(0) {
        "KEY" => By::Key(call.int(1).unwrap_or(-1)).key(),
        "BLOB" => By::Blob(call.text(2)).key(),
        "URL" => Ok(shard::key_of(&url(call.task))),
        _ => match <&[u8; 32]>::try_from(&call.task.client.hash[..]) {
            Ok(digest) if Subs::BACKEND.contains(call.sub) || call.sub == Sub::Pipe => {
                By::Digest(digest).key()
            }
            _ => Ok(shard::key_of(&url(call.task))),
        },
    }
    .map_err(failed)?;
    let wanted = Wanted {
        alternative: usize::try_from(call.int(3).unwrap_or(0)).unwrap_or(0),
        warmup: call.real(4).filter(|warmup| *warmup >= 0.0),
        rampup: call.bool(5) == Some(true),
        healthy: match call.word(6) {
            "IGNORE" => Healthy::Ignore,
            "ALL" => Healthy::All,
            _ => Healthy::Chosen,
        },
    };
    let object = std::mem::replace(&mut call.object, crate::functions::Object::None);
    let director: Option<&Shard<Backend>> = match &object {
        crate::functions::Object::Shared(object) => object.downcast_ref(),
        _ => None,
    };
    Ok(Value::Backend(director.map(|director| pick(director, key, wanted, call.task)).unwrap_or_default()))
}

fn backend(call: &Call<'_, '_>) -> Backend {
    call.backend(0).unwrap_or_default()
}

/// The URL of the request that the task is about.
fn url(task: &Task<'_>) -> Vec<u8> {
    let request = task.request(Message::Bereq).or_else(|_| task.request(Message::Req));
    request.map(|request| request.target.as_str().as_bytes().to_vec()).unwrap_or_default()
}

fn is_healthy(task: &Task<'_>, member: Backend) -> bool {
    match member {
        Backend::None => false,
        Backend::Declared(index) => task.host.is_healthy(index),
        Backend::Director(_) => true,
    }
}
