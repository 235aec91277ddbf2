//! `xkey` (vmod_xkey of varnish-modules): purges by the tags of responses.

use crate::functions::{Call, Function, Module, function, needs};
use crate::step::Subs;
use crate::types::Type;
use crate::value::{Failure, Value};

pub(super) const MODULE: Module = Module { name: "xkey", functions: FUNCTIONS, classes: &[] };

const FUNCTIONS: &[Function] = &[
    function("purge", &[needs("keys", Type::String)], Type::Int, Subs::REQUEST, |call| purge(call, false)),
    function("softpurge", &[needs("keys", Type::String)], Type::Int, Subs::REQUEST, |call| purge(call, true)),
];

/// How many responses it was about, as far as the host knows at once. A purge that was not done ends the evaluation: who
/// asked for it is not to be told that it was.
fn purge(call: &mut Call<'_, '_>, soft: bool) -> Result<Value<'static>, Failure> {
    let count = call.task.host.purge_tags(&call.str(0), soft).map_err(Failure::new)?;
    Ok(Value::Int(i64::try_from(count).unwrap_or(i64::MAX)))
}
