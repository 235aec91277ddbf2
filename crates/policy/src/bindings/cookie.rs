//! Bindings of `cookie` (vmod_cookie(3)). Parsed cookies are stored in the task.

use crate::functions::{Function, Module, function, required};
use crate::modules::cookie;
use crate::step::Subs;
use crate::types::Type;
use crate::value::{Failure, Value};

pub(super) const MODULE: Module = Module { name: "cookie", functions: FUNCTIONS, classes: &[] };

const FUNCTIONS: &[Function] = &[
    function("parse", &[required("cookieheader", Type::String)], Type::Void, Subs::REQUEST, |call| {
        let text = call.text(0).to_vec();
        call.task.kept.cookies.parse(&text).map_err(Failure::new)?;
        Ok(Value::Void)
    }),
    function("clean", &[], Type::Void, Subs::REQUEST, |call| {
        call.task.kept.cookies.clean();
        Ok(Value::Void)
    }),
    function("get", &[required("cookiename", Type::String)], Type::String, Subs::REQUEST, |call| {
        Ok(Value::Text(call.task.kept.cookies.get(call.text(0)).map(|value| value.to_vec().into())))
    }),
    function("get_re", &[required("expression", Type::Regex)], Type::String, Subs::REQUEST, |call| {
        let found = call.task.kept.cookies.get_where(call.matcher(0));
        Ok(Value::Text(found.map(|value| value.to_vec().into())))
    }),
    function("isset", &[required("cookiename", Type::String)], Type::Bool, Subs::REQUEST, |call| {
        Ok(Value::Bool(call.task.kept.cookies.contains(call.text(0))))
    }),
    function(
        "set",
        &[required("cookiename", Type::String), required("value", Type::String)],
        Type::Void,
        Subs::REQUEST,
        |call| {
            let (name, value) = (call.text(0).to_vec(), call.text(1).to_vec());
            call.task.kept.cookies.set(&name, &value).map_err(Failure::new)?;
            Ok(Value::Void)
        },
    ),
    function("delete", &[required("cookiename", Type::String)], Type::Void, Subs::REQUEST, |call| {
        let name = call.text(0).to_vec();
        call.task.kept.cookies.delete(&name);
        Ok(Value::Void)
    }),
    function("filter", &[required("filterstring", Type::String)], Type::Void, Subs::REQUEST, |call| {
        let names = call.text(0).to_vec();
        call.task.kept.cookies.filter(&names);
        Ok(Value::Void)
    }),
    function("keep", &[required("filterstring", Type::String)], Type::Void, Subs::REQUEST, |call| {
        let names = call.text(0).to_vec();
        call.task.kept.cookies.keep(&names);
        Ok(Value::Void)
    }),
    function("filter_re", &[required("expression", Type::Regex)], Type::Void, Subs::REQUEST, |call| {
        let is_match = call.matcher(0);
        call.task.kept.cookies.filter_where(is_match);
        Ok(Value::Void)
    }),
    function("keep_re", &[required("expression", Type::Regex)], Type::Void, Subs::REQUEST, |call| {
        let is_match = call.matcher(0);
        call.task.kept.cookies.filter_where(|name| !is_match(name));
        Ok(Value::Void)
    }),
    function("get_string", &[], Type::String, Subs::REQUEST, |call| {
        Ok(Value::owned(call.task.kept.cookies.text()))
    }),
    FORMAT_DATE,
    // Name of `format_date` before Varnish 7.
    Function { name: "format_rfc1123", ..FORMAT_DATE },
];

const FORMAT_DATE: Function = function(
    "format_date",
    &[required("now", Type::Time), required("timedelta", Type::Duration)],
    Type::String,
    Subs::ALL,
    |call| Ok(Value::owned(cookie::format_date(call.real(0), call.real(1)))),
);
