//! Bindings of `xkey` (vmod_xkey of varnish-modules): purges responses by tag.

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

/// Purges by tag; returns the number of responses purged, as far as the host knows it immediately.
/// If the purge fails, so does the evaluation, so that the client does not see a success.
fn purge(call: &mut Call<'_, '_>, soft: bool) -> Result<Value<'static>, Failure> {
    let count = call.task.host.purge_tags(&call.str(0), soft).map_err(Failure::new)?;
    Ok(Value::Int(i64::try_from(count).unwrap_or(i64::MAX)))
}
