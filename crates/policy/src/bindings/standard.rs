//! Bindings of `std` (vmod_std(3)).
//!
//! `late_100_continue` has no effect, because the edge never asks the client for content before it
//! has sent the request header section to the backend. `cache_req_body` always returns false,
//! because request content is streamed to the backend.

use crate::functions::{
    Argument, Call, Default, Function, Module, function, optional, optional_or, required,
};
use crate::modules::standard::{Error, address, glob, number, strftime, text, time};
use crate::step::Subs;
use crate::task::LogSource;
use crate::types::Type;
use crate::value::{Backend, Failure, Value};

type Outcome = Result<Value<'static>, Failure>;

pub(super) const MODULE: Module = Module { name: "std", functions: FUNCTIONS, classes: &[] };

const FUNCTIONS: &[Function] = &[
    function(
        "random",
        &[required("lo", Type::Real), required("hi", Type::Real)],
        Type::Real,
        Subs::ALL,
        |call| {
            let (low, high) = (call.real(0), call.real(1));
            Ok(Value::Real(number::random(low, high, call.task.draw())))
        },
    ),
    function("round", &[required("r", Type::Real)], Type::Real, Subs::ALL, |call| {
        Ok(Value::Real(number::round(call.real(0))))
    }),
    function(
        "collect",
        &[required("hdr", Type::Header), optional_or("sep", Type::String, Default::Text(", "))],
        Type::Void,
        Subs::REQUEST,
        |call| {
            let Some((message, name)) = call.header(0) else { return Ok(Value::Void) };
            let separator = call.text(1).to_vec();
            text::collect(call.task.fields_mut(message)?, name, &separator);
            Ok(Value::Void)
        },
    ),
    function("querysort", &[required("s", Type::String)], Type::String, Subs::ALL, |call| {
        Ok(Value::owned(text::query_sort(call.text(0))))
    }),
    function("toupper", &[required("s", Type::String)], Type::String, Subs::ALL, |call| {
        Ok(Value::owned(text::to_upper(call.text(0))))
    }),
    function("tolower", &[required("s", Type::String)], Type::String, Subs::ALL, |call| {
        Ok(Value::owned(text::to_lower(call.text(0))))
    }),
    function("strlen", &[required("s", Type::String)], Type::Int, Subs::ALL, |call| {
        Ok(Value::Int(i64::try_from(text::length_bytes(call.text(0))).unwrap_or(i64::MAX)))
    }),
    function(
        "strstr",
        &[required("s1", Type::String), required("s2", Type::String)],
        Type::String,
        Subs::ALL,
        |call| {
            // If not found, return an unset string, which is false as a BOOL.
            Ok(Value::Text(text::find(call.text(0), call.text(1)).map(|found| found.to_vec().into())))
        },
    ),
    function(
        "fnmatch",
        &[
            required("pattern", Type::String),
            required("subject", Type::String),
            optional_or("pathname", Type::Bool, Default::Bool(true)),
            optional_or("noescape", Type::Bool, Default::Bool(false)),
            optional_or("period", Type::Bool, Default::Bool(false)),
        ],
        Type::Bool,
        Subs::ALL,
        |call| {
            let (Some(pattern), Some(subject)) = (call.maybe_text(0), call.maybe_text(1)) else {
                return Err(Failure::new("std.fnmatch was called with an unset header"));
            };
            let flags = glob::Flags { pathname: call.bool(2), noescape: call.bool(3), period: call.bool(4) };
            Ok(Value::Bool(glob::matches(pattern, subject, flags)))
        },
    ),
    function("fileread", &[required("path", Type::String)], Type::String, Subs::ALL, |call| {
        Ok(Value::Text(read_file(call).map(Into::into)))
    }),
    function("blobread", &[required("path", Type::String)], Type::Blob, Subs::ALL, |call| {
        Ok(Value::Blob(read_file(call).unwrap_or_default().into()))
    }),
    function("file_exists", &[required("path", Type::String)], Type::Bool, Subs::ALL, |call| {
        Ok(Value::Bool(call.task.host.file_exists(&call.str(0))))
    }),
    function("healthy", &[required("be", Type::Backend)], Type::Bool, Subs::ALL, |call| {
        let backend = call.backend(0).unwrap_or_default();
        // If the policy declares no backend, the host's configured backends are used, which count
        // as healthy.
        let is_configured = backend == Backend::None && call.program.default_backend().is_none();
        Ok(Value::Bool(is_configured || call.program.is_healthy(backend, call.task.host)))
    }),
    function("port", &[required("ip", Type::Ip)], Type::Int, Subs::ALL, |call| {
        Ok(Value::Int(call.ip(0).map_or(0, |address| i64::from(address.port()))))
    }),
    function("duration", &number_arguments(Type::Duration), Type::Duration, Subs::ALL, |call| {
        from_number(call, number::duration_s, Ok, |integer| Ok(integer as f64), Value::Duration)
    }),
    function("bytes", &number_arguments(Type::Bytes), Type::Bytes, Subs::ALL, |call| {
        let (of_real, of_integer) = (number::bytes_from_real, number::bytes_from_integer);
        from_number(call, number::bytes, of_real, of_integer, Value::Bytes)
    }),
    function(
        "integer",
        &[
            optional("s", Type::String),
            optional("fallback", Type::Int),
            optional("bool", Type::Bool),
            optional("bytes", Type::Bytes),
            optional("duration", Type::Duration),
            optional("real", Type::Real),
            optional("time", Type::Time),
        ],
        Type::Int,
        Subs::ALL,
        |call| {
            let real = call.maybe_real(4).or(call.maybe_real(5)).or(call.maybe_real(6));
            let given = match (call.maybe_text(0), call.maybe_bool(2), call.maybe_int(3), real) {
                (Some(text), ..) => number::integer(text),
                (_, Some(value), ..) => Ok(i64::from(value)),
                (_, _, Some(bytes), _) => Ok(bytes),
                (_, _, _, Some(real)) => number::integer_from_real(real),
                _ => Err(Error::Number),
            };
            or_fallback(call, given.map(Value::Int))
        },
    ),
    function(
        "ip",
        &[
            required("s", Type::String),
            optional("fallback", Type::Ip),
            optional_or("resolve", Type::Bool, Default::Bool(true)),
            optional("p", Type::String),
        ],
        Type::Ip,
        Subs::ALL,
        |call| {
            let port = call.maybe_text(3).map_or(Some(address::PORT_DEFAULT), |port| {
                str::from_utf8(port).ok().and_then(|port| port.parse().ok())
            });
            let given = port.ok_or(Error::Address).and_then(|port| address::address(call.text(0), port));
            or_fallback(call, given.map(Value::Ip))
        },
    ),
    function(
        "real",
        &[
            optional("s", Type::String),
            optional("fallback", Type::Real),
            optional("integer", Type::Int),
            optional("bool", Type::Bool),
            optional("bytes", Type::Bytes),
            optional("duration", Type::Duration),
            optional("time", Type::Time),
        ],
        Type::Real,
        Subs::ALL,
        |call| {
            let integer = call.maybe_int(2).or(call.maybe_int(4)).or(call.maybe_bool(3).map(i64::from));
            let given = match (call.maybe_text(0), integer, call.maybe_real(5).or(call.maybe_real(6))) {
                (Some(text), ..) => number::real(text),
                (_, Some(integer), _) => Ok(integer as f64),
                (_, _, Some(real)) => Ok(real),
                _ => Err(Error::Number),
            };
            or_fallback(call, given.map(Value::Real))
        },
    ),
    function("time", &number_arguments(Type::Time), Type::Time, Subs::ALL, |call| {
        let of_integer = |integer| number::time_from_real(integer as f64);
        from_number(call, time::time_s, number::time_from_real, of_integer, Value::Time)
    }),
    function(
        "strftime",
        &[required("time", Type::Time), required("format", Type::String)],
        Type::String,
        Subs::ALL,
        |call| Ok(Value::owned(strftime::format(call.real(0), call.text(1)))),
    ),
    function("log", &[required("s", Type::String)], Type::Void, Subs::ALL, |call| {
        log_text(call, LogSource::Log, 0)
    }),
    function(
        "syslog",
        &[required("priority", Type::Int), required("s", Type::String)],
        Type::Void,
        Subs::ALL,
        |call| log_text(call, LogSource::Log, 1),
    ),
    function("timestamp", &[required("s", Type::String)], Type::Void, Subs::ALL, timestamp),
    function("syntax", &[required("version", Type::Real)], Type::Bool, Subs::ALL, |call| {
        Ok(Value::Bool(crate::modules::standard::syntax(call.real(0), call.program.version)))
    }),
    function("getenv", &[required("name", Type::String)], Type::String, Subs::ALL, |call| {
        Ok(Value::Text(call.task.host.environment(&call.str(0)).map(|value| value.into_bytes().into())))
    }),
    function("cache_req_body", &[required("size", Type::Bytes)], Type::Bool, Subs::CLIENT, |_| {
        Ok(Value::Bool(false))
    }),
    function("set_ip_tos", &[required("tos", Type::Int)], Type::Void, Subs::CLIENT, |call| {
        let value =
            u8::try_from(call.int(0)).map_err(|_| Failure::new("type of service must be 0 to 255"))?;
        if let Err(error) = call.task.connection.set_type_of_service(value) {
            call.task.push_log(LogSource::Error, error);
        }
        Ok(Value::Void)
    }),
    function("late_100_continue", &[required("late", Type::Bool)], Type::Void, Subs::CLIENT, |_| {
        Ok(Value::Void)
    }),
    function("rollback", &[required("h", Type::Http)], Type::Void, Subs::REQUEST, |call| {
        let Some(message) = call.message(0) else { return Ok(Value::Void) };
        call.task.roll_back(message)?;
        Ok(Value::Void)
    }),
    function("ban", &[required("ban", Type::String)], Type::Bool, Subs::REQUEST, |call| {
        let result = call.task.host.ban(&call.str(0));
        call.task.kept.ban_error = result.err().unwrap_or_default();
        Ok(Value::Bool(call.task.kept.ban_error.is_empty()))
    }),
    function("ban_error", &[], Type::String, Subs::REQUEST, |call| {
        Ok(Value::owned(call.task.kept.ban_error.clone()))
    }),
    function(
        "real2integer",
        &[required("r", Type::Real), required("fallback", Type::Int)],
        Type::Int,
        Subs::ALL,
        to_integer,
    ),
    function(
        "real2time",
        &[required("r", Type::Real), required("fallback", Type::Time)],
        Type::Time,
        Subs::ALL,
        |call| or_fallback(call, number::time_from_real(call.real(0)).map(Value::Time)),
    ),
    function(
        "time2integer",
        &[required("t", Type::Time), required("fallback", Type::Int)],
        Type::Int,
        Subs::ALL,
        to_integer,
    ),
    function(
        "time2real",
        &[required("t", Type::Time), required("fallback", Type::Real)],
        Type::Real,
        Subs::ALL,
        |call| Ok(Value::Real(call.real(0))),
    ),
];

/// Returns the parameters of a conversion from a string or a number to `kind`.
const fn number_arguments(kind: Type) -> [Argument; 4] {
    [
        optional("s", Type::String),
        optional("fallback", kind),
        optional("real", Type::Real),
        optional("integer", Type::Int),
    ]
}

/// Converts the first argument present, in the order of [`number_arguments`].
fn from_number<T>(
    call: &Call<'_, '_>,
    of_text: fn(&[u8]) -> Result<T, Error>,
    of_real: fn(f64) -> Result<T, Error>,
    of_integer: fn(i64) -> Result<T, Error>,
    value: fn(T) -> Value<'static>,
) -> Outcome {
    let given = match (call.maybe_text(0), call.maybe_real(2), call.maybe_int(3)) {
        (None, Some(real), _) => of_real(real),
        (None, None, Some(integer)) => of_integer(integer),
        (text, ..) => of_text(text.unwrap_or_default()),
    };
    or_fallback(call, given.map(value))
}

fn to_integer(call: &mut Call<'_, '_>) -> Outcome {
    or_fallback(call, number::integer_from_real(number::round(call.real(0))).map(Value::Int))
}

/// Returns the result of a conversion or, if the conversion failed, the fallback (the second
/// argument). Without a fallback, evaluation fails.
fn or_fallback(call: &Call<'_, '_>, given: Result<Value<'static>, Error>) -> Outcome {
    given.or_else(|error| call.value(1).ok_or_else(|| Failure::new(error)))
}

fn read_file(call: &mut Call<'_, '_>) -> Option<Vec<u8>> {
    let (path, host) = (call.str(0).into_owned(), call.task.host);
    match call.program.files.get(&path, || host.read_file(&path)) {
        Ok(bytes) => Some(bytes.to_vec()),
        Err(error) => {
            call.task.push_log(LogSource::Error, error);
            None
        }
    }
}

/// Logs a line like Varnish's `Timestamp` record. The line has a label and three times in seconds:
/// Unix time, time since the request or fetch started, and time since the previous timestamp.
fn timestamp(call: &mut Call<'_, '_>) -> Outcome {
    let label = call.str(0).into_owned();
    let task = &mut *call.task;
    let now_s = task.host.now_s().unwrap_or(task.now_s);
    let (started_s, last_s) = match task.req {
        Some(_) => (task.client.time_s, &mut task.client.timestamp_s),
        None => (task.fetch.time_s, &mut task.fetch.timestamp_s),
    };
    let before_s = if *last_s == 0.0 { started_s } else { *last_s };
    *last_s = now_s;
    // The clock may have been set back.
    let since = |then_s: f64| (now_s - then_s).max(0.0);
    task.push_log(
        LogSource::Timestamp,
        format!("{label}: {now_s:.6} {:.6} {:.6}", since(started_s), since(before_s)),
    );
    Ok(Value::Void)
}

fn log_text(call: &mut Call<'_, '_>, tag: LogSource, index: usize) -> Outcome {
    let text = call.str(index).into_owned();
    call.task.push_log(tag, text);
    Ok(Value::Void)
}
