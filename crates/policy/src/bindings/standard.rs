//! `std` (vmod_std(3)).
//!
//! `late_100_continue` changes nothing: content is always asked for once a backend has the head. `cache_req_body` says
//! false: content goes to the backend as it comes.

use super::failed;
use crate::functions::{Call, Default, Function, Module, function, may, needs, with};
use crate::modules::standard::{Error, address, glob, number, strftime, text, time};
use crate::step::Subs;
use crate::task::{Backend, Tag};
use crate::types::Type;
use crate::value::{Failure, Value};

type Given = Result<Value<'static>, Failure>;

pub(super) const MODULE: Module = Module { name: "std", functions: FUNCTIONS, classes: &[] };

const FUNCTIONS: &[Function] = &[
    function("random", &[needs("lo", Type::Real), needs("hi", Type::Real)], Type::Real, Subs::ALL, |call| {
        let (low, high) = (call.real(0).unwrap_or(0.0), call.real(1).unwrap_or(0.0));
        Ok(Value::Real(number::random(low, high, call.task.draw())))
    }),
    function("round", &[needs("r", Type::Real)], Type::Real, Subs::ALL, |call| {
        Ok(Value::Real(number::round(call.real(0).unwrap_or(0.0))))
    }),
    function(
        "collect",
        &[needs("hdr", Type::Header), with("sep", Type::String, Default::Text(", "))],
        Type::Void,
        Subs::REQUEST,
        |call| {
            let Some((message, name)) = call.header(0) else { return Ok(Value::Void) };
            let separator = call.text(1).to_vec();
            text::collect(call.task.fields_mut(message)?, name, &separator);
            Ok(Value::Void)
        },
    ),
    function("querysort", &[needs("s", Type::String)], Type::String, Subs::ALL, |call| {
        Ok(Value::owned(text::query_sort(call.text(0))))
    }),
    function("toupper", &[needs("s", Type::String)], Type::String, Subs::ALL, |call| {
        Ok(Value::owned(text::to_upper(call.text(0))))
    }),
    function("tolower", &[needs("s", Type::String)], Type::String, Subs::ALL, |call| {
        Ok(Value::owned(text::to_lower(call.text(0))))
    }),
    function("strlen", &[needs("s", Type::String)], Type::Int, Subs::ALL, |call| {
        Ok(Value::Int(i64::try_from(text::length_bytes(call.text(0))).unwrap_or(i64::MAX)))
    }),
    function(
        "strstr",
        &[needs("s1", Type::String), needs("s2", Type::String)],
        Type::String,
        Subs::ALL,
        |call| {
            // Unset where it is not found, so that it is false by itself.
            Ok(Value::Text(text::find(call.text(0), call.text(1)).map(|found| found.to_vec().into())))
        },
    ),
    function(
        "fnmatch",
        &[
            needs("pattern", Type::String),
            needs("subject", Type::String),
            with("pathname", Type::Bool, Default::Bool(true)),
            with("noescape", Type::Bool, Default::Bool(false)),
            with("period", Type::Bool, Default::Bool(false)),
        ],
        Type::Bool,
        Subs::ALL,
        |call| {
            let (Some(pattern), Some(subject)) = (call.maybe_text(0), call.maybe_text(1)) else {
                return Err(Failure::new("std.fnmatch of an unset header"));
            };
            let flags = glob::Flags {
                pathname: call.bool(2) == Some(true),
                noescape: call.bool(3) == Some(true),
                period: call.bool(4) == Some(true),
            };
            Ok(Value::Bool(glob::matches(pattern, subject, flags)))
        },
    ),
    function("fileread", &[needs("path", Type::String)], Type::String, Subs::ALL, |call| {
        Ok(Value::Text(read_file(call).map(Into::into)))
    }),
    function("blobread", &[needs("path", Type::String)], Type::Blob, Subs::ALL, |call| {
        Ok(Value::Blob(read_file(call).unwrap_or_default().into()))
    }),
    function("file_exists", &[needs("path", Type::String)], Type::Bool, Subs::ALL, |call| {
        Ok(Value::Bool(call.task.host.file_exists(&call.str(0))))
    }),
    function("healthy", &[needs("be", Type::Backend)], Type::Bool, Subs::ALL, |call| {
        let backend = call.backend(0).unwrap_or_default();
        // A host may have backends that no policy names.
        let is_configured = backend == Backend::None && call.program.default_backend().is_none();
        Ok(Value::Bool(is_configured || call.program.is_healthy(backend, call.task.host)))
    }),
    function("port", &[needs("ip", Type::Ip)], Type::Int, Subs::ALL, |call| {
        Ok(Value::Int(call.ip(0).map_or(0, |address| i64::from(address.port()))))
    }),
    function(
        "duration",
        &[
            may("s", Type::String),
            may("fallback", Type::Duration),
            may("real", Type::Real),
            may("integer", Type::Int),
        ],
        Type::Duration,
        Subs::ALL,
        |call| {
            let given = match (call.maybe_text(0), call.real(2), call.int(3)) {
                (Some(text), _, _) => number::duration_s(text),
                (None, Some(real), _) => Ok(real),
                (None, None, Some(integer)) => Ok(integer as f64),
                _ => Err(Error::Number),
            };
            or_fallback(given.map(Value::Duration), call.real(1).map(Value::Duration))
        },
    ),
    function(
        "bytes",
        &[
            may("s", Type::String),
            may("fallback", Type::Bytes),
            may("real", Type::Real),
            may("integer", Type::Int),
        ],
        Type::Bytes,
        Subs::ALL,
        |call| {
            let given = match (call.maybe_text(0), call.real(2), call.int(3)) {
                (Some(text), _, _) => number::bytes(text),
                (None, Some(real), _) => number::bytes_from_real(real),
                (None, None, Some(integer)) => number::bytes_from_integer(integer),
                _ => Err(Error::Number),
            };
            let bytes = given.and_then(|bytes| i64::try_from(bytes).map_err(|_| Error::Range));
            or_fallback(bytes.map(Value::Bytes), call.int(1).map(Value::Bytes))
        },
    ),
    function(
        "integer",
        &[
            may("s", Type::String),
            may("fallback", Type::Int),
            may("bool", Type::Bool),
            may("bytes", Type::Bytes),
            may("duration", Type::Duration),
            may("real", Type::Real),
            may("time", Type::Time),
        ],
        Type::Int,
        Subs::ALL,
        |call| {
            let real = call.real(4).or(call.real(5)).or(call.real(6));
            let given = match (call.maybe_text(0), call.bool(2), call.int(3), real) {
                (Some(text), ..) => number::integer(text),
                (_, Some(value), ..) => Ok(i64::from(value)),
                (_, _, Some(bytes), _) => Ok(bytes),
                (_, _, _, Some(real)) => number::integer_from_real(real),
                _ => Err(Error::Number),
            };
            or_fallback(given.map(Value::Int), call.int(1).map(Value::Int))
        },
    ),
    function(
        "ip",
        &[
            needs("s", Type::String),
            may("fallback", Type::Ip),
            with("resolve", Type::Bool, Default::Bool(true)),
            may("p", Type::String),
        ],
        Type::Ip,
        Subs::ALL,
        |call| {
            let port = call.maybe_text(3).map_or(Some(address::PORT_DEFAULT), |port| {
                str::from_utf8(port).ok().and_then(|port| port.parse().ok())
            });
            let given = port.ok_or(Error::Address).and_then(|port| address::address(call.text(0), port));
            or_fallback(given.map(Value::Ip), call.ip(1).map(Value::Ip))
        },
    ),
    function(
        "real",
        &[
            may("s", Type::String),
            may("fallback", Type::Real),
            may("integer", Type::Int),
            may("bool", Type::Bool),
            may("bytes", Type::Bytes),
            may("duration", Type::Duration),
            may("time", Type::Time),
        ],
        Type::Real,
        Subs::ALL,
        |call| {
            let integer = call.int(2).or(call.int(4)).or(call.bool(3).map(i64::from));
            let given = match (call.maybe_text(0), integer, call.real(5).or(call.real(6))) {
                (Some(text), ..) => number::real(text),
                (_, Some(integer), _) => Ok(integer as f64),
                (_, _, Some(real)) => Ok(real),
                _ => Err(Error::Number),
            };
            or_fallback(given.map(Value::Real), call.real(1).map(Value::Real))
        },
    ),
    function(
        "time",
        &[
            may("s", Type::String),
            may("fallback", Type::Time),
            may("real", Type::Real),
            may("integer", Type::Int),
        ],
        Type::Time,
        Subs::ALL,
        |call| {
            let given = match (call.maybe_text(0), call.real(2), call.int(3)) {
                (Some(text), _, _) => time::time_s(text),
                (None, Some(real), _) => number::time_from_real(real),
                (None, None, Some(integer)) => number::time_from_real(integer as f64),
                _ => Err(Error::Time),
            };
            or_fallback(given.map(Value::Time), call.real(1).map(Value::Time))
        },
    ),
    function(
        "strftime",
        &[needs("time", Type::Time), needs("format", Type::String)],
        Type::String,
        Subs::ALL,
        |call| Ok(Value::owned(strftime::format(call.real(0).unwrap_or(0.0), call.text(1)))),
    ),
    function("log", &[needs("s", Type::String)], Type::Void, Subs::ALL, |call| tell(call, Tag::Log, 0)),
    function(
        "syslog",
        &[needs("priority", Type::Int), needs("s", Type::String)],
        Type::Void,
        Subs::ALL,
        |call| tell(call, Tag::Log, 1),
    ),
    function("timestamp", &[needs("s", Type::String)], Type::Void, Subs::REQUEST, timestamp),
    function("syntax", &[needs("version", Type::Real)], Type::Bool, Subs::ALL, |call| {
        Ok(Value::Bool(crate::modules::standard::syntax(call.real(0).unwrap_or(0.0), call.program.version)))
    }),
    function("getenv", &[needs("name", Type::String)], Type::String, Subs::ALL, |call| {
        Ok(Value::Text(call.task.host.environment(&call.str(0)).map(|value| value.into_bytes().into())))
    }),
    function("cache_req_body", &[needs("size", Type::Bytes)], Type::Bool, Subs::CLIENT, |_| {
        Ok(Value::Bool(false))
    }),
    function("set_ip_tos", &[needs("tos", Type::Int)], Type::Void, Subs::CLIENT, |call| {
        let value = u8::try_from(call.int(0).unwrap_or(0))
            .map_err(|_| Failure::new("a type of service is 0 to 255"))?;
        if let Err(error) = call.task.connection.set_type_of_service(value) {
            call.task.tell(Tag::Error, error);
        }
        Ok(Value::Void)
    }),
    function("late_100_continue", &[needs("late", Type::Bool)], Type::Void, Subs::CLIENT, |_| {
        Ok(Value::Void)
    }),
    function("rollback", &[needs("h", Type::Http)], Type::Void, Subs::REQUEST, |call| {
        let Some(message) = call.message(0) else { return Ok(Value::Void) };
        call.task.roll_back(message)?;
        Ok(Value::Void)
    }),
    function("ban", &[needs("ban", Type::String)], Type::Bool, Subs::REQUEST, |call| {
        let result = call.task.host.ban(&call.str(0));
        call.task.kept.ban_error = result.err().unwrap_or_default();
        Ok(Value::Bool(call.task.kept.ban_error.is_empty()))
    }),
    function("ban_error", &[], Type::String, Subs::REQUEST, |call| {
        Ok(Value::owned(call.task.kept.ban_error.clone()))
    }),
    function(
        "real2integer",
        &[needs("r", Type::Real), needs("fallback", Type::Int)],
        Type::Int,
        Subs::ALL,
        |call| {
            let given = number::integer_from_real(number::round(call.real(0).unwrap_or(0.0)));
            or_fallback(given.map(Value::Int), call.int(1).map(Value::Int))
        },
    ),
    function(
        "real2time",
        &[needs("r", Type::Real), needs("fallback", Type::Time)],
        Type::Time,
        Subs::ALL,
        |call| {
            let given = number::time_from_real(call.real(0).unwrap_or(0.0));
            or_fallback(given.map(Value::Time), call.real(1).map(Value::Time))
        },
    ),
    function(
        "time2integer",
        &[needs("t", Type::Time), needs("fallback", Type::Int)],
        Type::Int,
        Subs::ALL,
        |call| {
            let given = number::integer_from_real(number::round(call.real(0).unwrap_or(0.0)));
            or_fallback(given.map(Value::Int), call.int(1).map(Value::Int))
        },
    ),
    function(
        "time2real",
        &[needs("t", Type::Time), needs("fallback", Type::Real)],
        Type::Real,
        Subs::ALL,
        |call| Ok(Value::Real(call.real(0).unwrap_or(0.0))),
    ),
];

/// What a conversion gave, else the fallback, else the end of the evaluation.
fn or_fallback(given: Result<Value<'static>, Error>, fallback: Option<Value<'static>>) -> Given {
    match (given, fallback) {
        (Ok(value), _) | (Err(_), Some(value)) => Ok(value),
        (Err(error), None) => Err(failed(error)),
    }
}

fn read_file(call: &mut Call<'_, '_>) -> Option<Vec<u8>> {
    let (path, host) = (call.str(0).into_owned(), call.task.host);
    match call.program.files.get(&path, || host.read_file(&path)) {
        Ok(bytes) => Some(bytes.to_vec()),
        Err(error) => {
            call.task.tell(Tag::Error, error);
            None
        }
    }
}

/// As Varnish's record `Timestamp`: the label, unix seconds, those since the request or the fetch began, and those since the
/// timestamp before.
fn timestamp(call: &mut Call<'_, '_>) -> Given {
    let label = call.str(0).into_owned();
    let task = &mut *call.task;
    let now_s = task.host.now_s().unwrap_or(task.now_s);
    let (began_s, last_s) = match task.req {
        Some(_) => (task.client.time_s, &mut task.client.timestamp_s),
        None => (task.fetch.time_s, &mut task.fetch.timestamp_s),
    };
    let before_s = if *last_s == 0.0 { began_s } else { *last_s };
    *last_s = now_s;
    // A clock may be set back.
    let since = |then_s: f64| (now_s - then_s).max(0.0);
    task.tell(Tag::Timestamp, format!("{label}: {now_s:.6} {:.6} {:.6}", since(began_s), since(before_s)));
    Ok(Value::Void)
}

fn tell(call: &mut Call<'_, '_>, tag: Tag, index: usize) -> Given {
    let text = call.str(index).into_owned();
    call.task.tell(tag, text);
    Ok(Value::Void)
}
