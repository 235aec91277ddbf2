//! Bindings of `xkey` (vmod_xkey of varnish-modules): purging by tag.

use crate::functions::{Call, Function, Module, function, required};
use crate::step::Subs;
use crate::types::Type;
use crate::value::{Failure, Value};

pub(super) const MODULE: Module = Module { name: "xkey", functions: FUNCTIONS, classes: &[] };

const FUNCTIONS: &[Function] = &[
    function("purge", &[required("keys", Type::String)], Type::Int, Subs::REQUEST, |call| purge(call, false)),
    function("softpurge", &[required("keys", Type::String)], Type::Int, Subs::REQUEST, |call| {
        purge(call, true)
    }),
];

/// Purges responses by tag and returns the count reported by the host. If the purge fails,
/// evaluation fails too, so that the policy cannot report success to the client.
fn purge(call: &mut Call<'_, '_>, soft: bool) -> Result<Value<'static>, Failure> {
    let count = call.task.host.purge_tags(&call.str(0), soft).map_err(Failure::new)?;
    Ok(Value::Int(i64::try_from(count).unwrap_or(i64::MAX)))
}
