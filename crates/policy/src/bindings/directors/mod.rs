//! Bindings of `directors` (vmod_directors(3)).
//!
//! Members can be added and removed at any time. `backend()` of `round_robin`, `fallback` and
//! `random` returns the director itself. The director is resolved only when a backend is needed, so
//! a cache hit does not advance a round-robin. A director can be a member of another director; such
//! directors are resolved recursively. A director is healthy if any of its members is healthy.

mod parameters;
mod shard;

use std::any::Any;
use std::marker::PhantomData;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::functions::{Argument, Call, Class, Default, Director, Function, Instance, Module, New};
use crate::functions::{function, optional_or, required};
use crate::modules::directors::{Fallback, InTurn, RoundRobin, Weighted, weighted};
use crate::program::Program;
use crate::step::{Sub, Subs};
use crate::task::Host;
use crate::types::Type;
use crate::value::{Backend, Failure, Value};

const INIT: Subs = Subs::of(&[Sub::Init]);
const BACKEND: Argument = required("backend", Type::Backend);

pub(super) const MODULE: Module = Module {
    name: "directors",
    functions: &[function("lookup", &[required("name", Type::String)], Type::Backend, Subs::ALL, |call| {
        Ok(Value::Backend(call.program.backend_named(&call.str(0))))
    })],
    classes: &[ROUND_ROBIN, FALLBACK, RANDOM, HASH, shard::CLASS, parameters::CLASS],
};

const ROUND_ROBIN: Class = Row::<RoundRobin<Backend>>::class("round_robin", &[], |_| {
    Ok(Box::new(RwLock::new(RoundRobin::<Backend>::default())) as Instance)
});

const FALLBACK: Class = Row::<Fallback<Backend>>::class(
    "fallback",
    &[optional_or("sticky", Type::Bool, Default::Bool(false))],
    |call| Ok(Box::new(RwLock::new(Fallback::<Backend>::new(call.bool(0)))) as Instance),
);

/// Class of the director type `D`.
struct Row<D>(PhantomData<D>);

impl<D: InTurn<Backend> + Any + Send + Sync> Row<D> {
    const METHODS: &[Function] = &[
        function("add_backend", &[BACKEND], Type::Void, Subs::ALL, |call| {
            let backend = backend_to_add(call)?;
            write(call.object::<RwLock<D>>()).add(backend).map_err(Failure::new)?;
            Ok(Value::Void)
        }),
        function("remove_backend", &[BACKEND], Type::Void, Subs::ALL, |call| {
            let backend = backend(call);
            write(call.object::<RwLock<D>>()).remove(&backend);
            Ok(Value::Void)
        }),
        SELF_AS_BACKEND,
    ];

    const fn class(name: &'static str, arguments: &'static [Argument], new: New) -> Class {
        let director = Director {
            resolve: |this, task| {
                let director: &RwLock<D> = this.object();
                let members = read(director).members().to_vec();
                let healthy = healthy(this.program, members, task.host);
                read(director).pick(|member| healthy.contains(member)).copied().unwrap_or_default()
            },
            members: |this| read(this.object::<RwLock<D>>()).members().to_vec(),
        };
        Class::new(name, arguments, new, Self::METHODS).director(director)
    }
}

const RANDOM: Class = Class::new("random", &[], WEIGHTED, &[ADD_WEIGHTED, REMOVE_WEIGHTED, SELF_AS_BACKEND])
    .director(Director {
        resolve: |this, task| {
            let unit = task.draw();
            pick_weighted(this.program, this.object(), unit, task.host)
        },
        members: |this| read(this.object::<RwLock<Weighted<Backend>>>()).members().copied().collect(),
    });

const HASH: Class = Class::new("hash", &[], WEIGHTED, &[ADD_WEIGHTED, REMOVE_WEIGHTED, BACKEND_BY_KEY]);

const WEIGHTED: New = |_| Ok(Box::new(RwLock::new(Weighted::<Backend>::default())) as Instance);

const BACKEND_BY_KEY: Function =
    function("backend", &[required("key", Type::String)], Type::Backend, Subs::REQUEST, |call| {
        let unit = weighted::unit_of(call.text(0));
        Ok(Value::Backend(pick_weighted(call.program, call.object(), unit, call.task.host)))
    });

/// The method `backend`, which returns the director itself to be resolved later.
const SELF_AS_BACKEND: Function =
    function("backend", &[], Type::Backend, Subs::ALL, |call| Ok(Value::Backend(call.as_director())));

const ADD_WEIGHTED: Function = function(
    "add_backend",
    &[BACKEND, optional_or("weight", Type::Real, Default::Real(1.0))],
    Type::Void,
    Subs::ALL,
    |call| {
        let (backend, weight) = (backend_to_add(call)?, call.real(1));
        write(call.object::<RwLock<Weighted<Backend>>>()).add(backend, weight).map_err(Failure::new)?;
        Ok(Value::Void)
    },
);

const REMOVE_WEIGHTED: Function = function("remove_backend", &[BACKEND], Type::Void, Subs::ALL, |call| {
    let backend = backend(call);
    write(call.object::<RwLock<Weighted<Backend>>>()).remove(&backend);
    Ok(Value::Void)
});

/// Reads the backend to add. As in Varnish, "no backend" is an error, for example as the result of
/// a failed `directors.lookup`.
fn backend_to_add(call: &Call<'_, '_>) -> Result<Backend, Failure> {
    let backend = backend(call);
    let is_none = match backend {
        Backend::None => true,
        Backend::Declared(index) => call.program.backends()[index as usize].address.is_none(),
        Backend::Director(_) => false,
    };
    if is_none { Err(Failure::new("cannot add backend none to a director")) } else { Ok(backend) }
}

fn backend(call: &Call<'_, '_>) -> Backend {
    call.backend(0).unwrap_or_default()
}

/// Returns the healthy `members`. The caller must not hold a lock on a director: a director may
/// contain itself, and the check could then deadlock.
fn healthy(program: &Program, mut members: Vec<Backend>, host: &dyn Host) -> Vec<Backend> {
    members.retain(|member| program.is_healthy(*member, host));
    members
}

fn pick_weighted(
    program: &Program,
    director: &RwLock<Weighted<Backend>>,
    unit: f64,
    host: &dyn Host,
) -> Backend {
    let members = read(director).members().copied().collect();
    let healthy = healthy(program, members, host);
    read(director).pick(unit, |member| healthy.contains(member)).copied().unwrap_or_default()
}

fn read<D>(director: &RwLock<D>) -> RwLockReadGuard<'_, D> {
    director.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<D>(director: &RwLock<D>) -> RwLockWriteGuard<'_, D> {
    director.write().unwrap_or_else(PoisonError::into_inner)
}
