//! Bindings of `header` (vmod_header of varnish-modules).

use crate::functions::{Call, Default, Function, Module, function, optional_or, required};
use crate::message::Message;
use crate::modules::header;
use crate::step::Subs;
use crate::types::Type;
use crate::value::{Failure, Value};

pub(super) const MODULE: Module = Module { name: "header", functions: FUNCTIONS, classes: &[] };

const FUNCTIONS: &[Function] = &[
    function(
        "append",
        &[required("hdr", Type::Header), required("s", Type::String)],
        Type::Void,
        Subs::REQUEST,
        |call| {
            let (message, name) = header(call, 0)?;
            let value = call.text(1).to_vec();
            header::append(call.task.fields_mut(message)?, name, &value).map_err(Failure::new)?;
            Ok(Value::Void)
        },
    ),
    function(
        "copy",
        &[required("src", Type::Header), required("dst", Type::Header)],
        Type::Void,
        Subs::REQUEST,
        |call| {
            let ((message, name), (to, to_name)) = (header(call, 0)?, header(call, 1)?);
            if message == to {
                header::copy_within(call.task.fields_mut(to)?, name, to_name).map_err(Failure::new)?;
            } else {
                let from = call.task.fields(message)?.clone();
                header::copy(&from, name, call.task.fields_mut(to)?, to_name).map_err(Failure::new)?;
            }
            Ok(Value::Void)
        },
    ),
    function(
        "get",
        &[required("header", Type::Header), required("regex", Type::Regex)],
        Type::String,
        Subs::REQUEST,
        |call| {
            let (message, name) = header(call, 0)?;
            let found = header::get(call.task.fields(message)?, name, call.matcher(1));
            Ok(Value::Text(found.map(|value| value.to_vec().into())))
        },
    ),
    function(
        "remove",
        &[required("header", Type::Header), required("regex", Type::Regex)],
        Type::Void,
        Subs::REQUEST,
        |call| {
            let (message, name) = header(call, 0)?;
            let is_match = call.matcher(1);
            header::remove(call.task.fields_mut(message)?, name, is_match);
            Ok(Value::Void)
        },
    ),
    function(
        "regsub",
        &[
            required("hp", Type::Http),
            required("regex", Type::Regex),
            required("sub", Type::String),
            optional_or("all", Type::Bool, Default::Bool(false)),
        ],
        Type::Void,
        Subs::REQUEST,
        |call| {
            let message = call.message(0).ok_or_else(|| Failure::new("missing message"))?;
            let Some(regex) = call.regex(1) else { return Ok(Value::Void) };
            let (with, all) = (call.text(2).to_vec(), call.bool(3));
            let bytes_max = call.task.workspace.bytes_max;
            let mut failure = None;
            let substitute = |line: &[u8]| {
                if !regex.is_match(line).unwrap_or(false) {
                    return None;
                }
                let mut changed = Vec::new();
                let result = regex.substitute(line, &with, all, bytes_max, &mut changed);
                failure = failure.take().or(result.err());
                Some(changed)
            };
            header::regsub(call.task.fields_mut(message)?, substitute).map_err(Failure::new)?;
            failure.map_or(Ok(Value::Void), Err)
        },
    ),
];

fn header<'c>(call: &Call<'c, '_>, index: usize) -> Result<(Message, &'c str), Failure> {
    call.header(index).ok_or_else(|| Failure::new("missing header"))
}
