//! `cookie` (vmod_cookie(3)). What was parsed is kept for the task.

use super::failed;
use crate::functions::{Function, Module, function, needs};
use crate::modules::cookie;
use crate::step::Subs;
use crate::types::Type;
use crate::value::Value;

pub(super) const MODULE: Module = Module { name: "cookie", functions: FUNCTIONS, classes: &[] };

const FUNCTIONS: &[Function] = &[
    function("parse", &[needs("cookieheader", Type::String)], Type::Void, Subs::REQUEST, |call| {
        let text = call.text(0).to_vec();
        call.task.kept.cookies.parse(&text).map_err(failed)?;
        Ok(Value::Void)
    }),
    function("clean", &[], Type::Void, Subs::REQUEST, |call| {
        call.task.kept.cookies.clean();
        Ok(Value::Void)
    }),
    function("get", &[needs("cookiename", Type::String)], Type::String, Subs::REQUEST, |call| {
        Ok(Value::Text(call.task.kept.cookies.get(call.text(0)).map(|value| value.to_vec().into())))
    }),
    function("get_re", &[needs("expression", Type::Regex)], Type::String, Subs::REQUEST, |call| {
        let found = call.task.kept.cookies.get_where(|name| call.is_match(0, name));
        Ok(Value::Text(found.map(|value| value.to_vec().into())))
    }),
    function("isset", &[needs("cookiename", Type::String)], Type::Bool, Subs::REQUEST, |call| {
        Ok(Value::Bool(call.task.kept.cookies.contains(call.text(0))))
    }),
    function(
        "set",
        &[needs("cookiename", Type::String), needs("value", Type::String)],
        Type::Void,
        Subs::REQUEST,
        |call| {
            let (name, value) = (call.text(0).to_vec(), call.text(1).to_vec());
            call.task.kept.cookies.set(&name, &value).map_err(failed)?;
            Ok(Value::Void)
        },
    ),
    function("delete", &[needs("cookiename", Type::String)], Type::Void, Subs::REQUEST, |call| {
        let name = call.text(0).to_vec();
        call.task.kept.cookies.delete(&name);
        Ok(Value::Void)
    }),
    function("filter", &[needs("filterstring", Type::String)], Type::Void, Subs::REQUEST, |call| {
        let names = call.text(0).to_vec();
        call.task.kept.cookies.filter(&names);
        Ok(Value::Void)
    }),
    function("keep", &[needs("filterstring", Type::String)], Type::Void, Subs::REQUEST, |call| {
        let names = call.text(0).to_vec();
        call.task.kept.cookies.keep(&names);
        Ok(Value::Void)
    }),
    function("filter_re", &[needs("expression", Type::Regex)], Type::Void, Subs::REQUEST, |call| {
        let regex = call.regex(0);
        let is_match = |name: &[u8]| regex.is_some_and(|regex| regex.is_match(name).unwrap_or(false));
        call.task.kept.cookies.filter_where(is_match);
        Ok(Value::Void)
    }),
    function("keep_re", &[needs("expression", Type::Regex)], Type::Void, Subs::REQUEST, |call| {
        let regex = call.regex(0);
        let is_match = |name: &[u8]| regex.is_some_and(|regex| regex.is_match(name).unwrap_or(false));
        call.task.kept.cookies.filter_where(|name| !is_match(name));
        Ok(Value::Void)
    }),
    function("get_string", &[], Type::String, Subs::REQUEST, |call| {
        Ok(Value::owned(call.task.kept.cookies.text()))
    }),
    function(
        "format_date",
        &[needs("now", Type::Time), needs("timedelta", Type::Duration)],
        Type::String,
        Subs::ALL,
        |call| {
            Ok(Value::owned(cookie::format_date(call.real(0).unwrap_or(0.0), call.real(1).unwrap_or(0.0))))
        },
    ),
];
