//! `directors` (vmod_directors(3)): which of several backends a request goes to.
//!
//! Members are added in `vcl_init`. `backend()` of `round_robin`, `fallback` and `random` gives the director itself,
//! which is asked when a backend is needed: a response from the cache moves none of them on. A director as a member is
//! as healthy as its members, and is asked in its turn.

mod parameters;
mod shard;

pub(crate) use parameters::Changed;
pub(crate) use shard::Lazy;

use std::any::Any;
use std::marker::PhantomData;

use super::failed;
use crate::functions::{Argument, Asked, Call, Class, Default, Director, Function, Instance, Module, New};
use crate::functions::{function, needs, with};
use crate::modules::directors::{Fallback, InTurn, RoundRobin, Weighted, weighted};
use crate::step::{Sub, Subs};
use crate::task::{Backend, Message, Task};
use crate::types::Type;
use crate::value::{Failure, Value};

const INIT: Subs = Subs::of(&[Sub::Init]);
const BACKEND: Argument = needs("backend", Type::Backend);

pub(super) const MODULE: Module = Module {
    name: "directors",
    functions: &[function(
        "lookup",
        &[needs("name", Type::String)],
        Type::Backend,
        Subs::of(&[Sub::Init, Sub::Fini]),
        |call| Ok(Value::Backend(call.program.backend_named(&call.str(0)))),
    )],
    classes: &[ROUND_ROBIN, FALLBACK, RANDOM, HASH, shard::CLASS, parameters::CLASS],
};

const ROUND_ROBIN: Class = Row::<RoundRobin<Backend>>::class("round_robin", &[], |_| {
    Ok(Box::new(RoundRobin::<Backend>::default()) as Instance)
});

const FALLBACK: Class = Row::<Fallback<Backend>>::class(
    "fallback",
    &[with("sticky", Type::Bool, Default::Bool(false))],
    |call| Ok(Box::new(Fallback::<Backend>::new(call.bool(0) == Some(true))) as Instance),
);

/// The class of directors `D`.
struct Row<D>(PhantomData<D>);

impl<D: InTurn<Backend> + Any> Row<D> {
    const METHODS: &[Function] = &[
        function("add_backend", &[BACKEND], Type::Void, INIT, |call| {
            let backend = added(call)?;
            call.object_mut::<D>().add(backend).map_err(failed)?;
            Ok(Value::Void)
        }),
        function("remove_backend", &[BACKEND], Type::Void, INIT, |call| {
            let backend = backend(call);
            call.object_mut::<D>().remove(&backend);
            Ok(Value::Void)
        }),
        LATER,
    ];

    const fn class(name: &'static str, arguments: &'static [Argument], new: New) -> Class {
        let director = Director {
            resolve: |asked, task| {
                let director: &D = asked.object();
                director.pick(|member| is_healthy(&asked, task, *member)).copied().unwrap_or_default()
            },
            members: |asked| asked.object::<D>().members().to_vec(),
        };
        Class { name, arguments, new, methods: Self::METHODS, ready: None, director: Some(director) }
    }
}

const RANDOM: Class = Class {
    name: "random",
    arguments: &[],
    new: |_| Ok(Box::new(Weighted::<Backend>::default()) as Instance),
    methods: &[ADD_WEIGHTED, REMOVE_WEIGHTED, LATER],
    ready: None,
    director: Some(Director {
        resolve: |asked, task| {
            let unit = task.draw();
            let director: &Weighted<Backend> = asked.object();
            director.pick(unit, |member| is_healthy(&asked, task, *member)).copied().unwrap_or_default()
        },
        members: |asked| asked.object::<Weighted<Backend>>().members().copied().collect(),
    }),
};

const HASH: Class = Class {
    name: "hash",
    arguments: &[],
    new: |_| Ok(Box::new(Weighted::<Backend>::default()) as Instance),
    methods: &[
        ADD_WEIGHTED,
        REMOVE_WEIGHTED,
        function("backend", &[needs("key", Type::String)], Type::Backend, Subs::REQUEST, |call| {
            let unit = weighted::unit_of(call.text(0));
            let director: &Weighted<Backend> = call.object();
            let host = call.task.host;
            let picked = director.pick(unit, |member| call.program.is_healthy(*member, host));
            Ok(Value::Backend(picked.copied().unwrap_or_default()))
        }),
    ],
    ready: None,
    director: None,
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
        let (backend, weight) = (added(call)?, call.real(1).unwrap_or(1.0));
        call.object_mut::<Weighted<Backend>>().add(backend, weight).map_err(failed)?;
        Ok(Value::Void)
    },
);

const REMOVE_WEIGHTED: Function = function("remove_backend", &[BACKEND], Type::Void, INIT, |call| {
    let backend = backend(call);
    call.object_mut::<Weighted<Backend>>().remove(&backend);
    Ok(Value::Void)
});

/// The backend to add. One that is none, as `directors.lookup` gives it for a name that nothing has, is a failure as in
/// Varnish.
fn added(call: &Call<'_, '_>) -> Result<Backend, Failure> {
    let backend = backend(call);
    let is_none = match backend {
        Backend::None => true,
        Backend::Declared(index) => call.program.backends()[index as usize].address.is_none(),
        Backend::Director(_) => false,
    };
    if is_none { Err(Failure::new("none cannot be added to a director")) } else { Ok(backend) }
}

fn backend(call: &Call<'_, '_>) -> Backend {
    call.backend(0).unwrap_or_default()
}

/// The URL of the request that the task is about.
fn url(task: &Task<'_>) -> Vec<u8> {
    let request = task.request(Message::Bereq).or_else(|_| task.request(Message::Req));
    request.map(|request| request.target.as_str().as_bytes().to_vec()).unwrap_or_default()
}

fn is_healthy(asked: &Asked<'_>, task: &Task<'_>, member: Backend) -> bool {
    asked.program.is_healthy(member, task.host)
}
