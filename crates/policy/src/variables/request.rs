//! Variables of requests: `req`, `req_top`, `bereq`.

use thalweg_http::{Method, Version as Protocol};

use super::{Variable, count, optional, plain, storage_name, string, xid};
use crate::message::Message;
use crate::parse::Version;
use crate::step::{Sub, Subs};
use crate::task::Task;
use crate::types::Type;
use crate::value::{Failure, Value};

/// Subroutines that have a backend request.
const BEREQ: Subs = Subs::BACKEND.and(Subs::of(&[Sub::Pipe]));
/// Subroutines in which the cache key is known.
const HASHED: Subs = Subs::of(&[Sub::Hit, Sub::Miss, Sub::Pass, Sub::Purge, Sub::Deliver]);
/// Value of a duration that was never set, as in Varnish.
const UNSET_S: f64 = -1.0;

pub(super) static TABLE: [Variable; 45] = [
    Variable::new("req", Type::Http, Subs::CLIENT, |_| Ok(Value::Http(Message::Req))),
    plain!("req.backend_hint", Backend, Subs::CLIENT, Subs::CLIENT, client.backend_hint),
    Variable::new("req.can_gzip", Type::Bool, Subs::CLIENT, |task| {
        let fields = task.fields(Message::Req)?;
        let is_gzip = |coding: &[u8]| {
            let name = coding.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
            name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip")
        };
        let is_refused = |coding: &[u8]| {
            coding.split(|byte| *byte == b';').skip(1).any(|weight| {
                let weight = weight.trim_ascii();
                weight
                    .strip_prefix(b"q=")
                    .is_some_and(|value| value.iter().all(|byte| matches!(byte, b'0' | b'.')))
            })
        };
        Ok(Value::Bool(fields.list("accept-encoding").any(|coding| is_gzip(coding) && !is_refused(coding))))
    }),
    Variable::new("req.esi", Type::Bool, Subs::CLIENT, |task| Ok(Value::Bool(!task.client.no_esi)))
        .set(Subs::CLIENT, |task, value| {
            task.client.no_esi = value == Value::Bool(false);
            Ok(())
        })
        .only(Version::V40),
    // There are no sub-requests.
    Variable::new("req.esi_level", Type::Int, Subs::CLIENT, |_| Ok(Value::Int(0))),
    optional!("req.grace", Duration, Subs::CLIENT, client.grace_s),
    Variable::new("req.hash", Type::Blob, HASHED, |task| Ok(hash(task))),
    plain!("req.hash_always_miss", Bool, Subs::CLIENT, Subs::CLIENT, client.hash_always_miss),
    plain!("req.hash_ignore_busy", Bool, Subs::CLIENT, Subs::CLIENT, client.hash_ignore_busy),
    plain!("req.hash_ignore_vary", Bool, Subs::CLIENT, Subs::CLIENT, client.hash_ignore_vary),
    Variable::headers("req.http.*", Message::Req, Subs::CLIENT, Subs::CLIENT),
    plain!("req.is_hitmiss", Bool, Subs::CLIENT, client.is_hitmiss),
    plain!("req.is_hitpass", Bool, Subs::CLIENT, client.is_hitpass),
    Variable::new("req.method", Type::String, Subs::CLIENT, |task| method(task, Message::Req))
        .lent(|task| method_text(task, Message::Req))
        .set(Subs::CLIENT, |task, value| set_method(task, Message::Req, value)),
    Variable::new("req.proto", Type::String, Subs::CLIENT, |task| proto(task, Message::Req))
        .set_40(Subs::CLIENT, |task, value| set_proto(task, Message::Req, value)),
    Variable::new("req.restarts", Type::Int, Subs::CLIENT, |task| Ok(count(task.client.restarts))),
    optional!("req.storage", Stevedore, Subs::CLIENT, client.storage),
    plain!("req.time", Time, Subs::CLIENT, client.time_s),
    Variable::new("req.transport", Type::String, Subs::CLIENT, |_| Ok(Value::text("HTTP/1"))),
    optional!("req.ttl", Duration, Subs::CLIENT, client.ttl_s),
    Variable::new("req.url", Type::String, Subs::CLIENT, |task| url(task, Message::Req))
        .lent(|task| url_text(task, Message::Req))
        .set(Subs::CLIENT, |task, value| set_url(task, Message::Req, value)),
    Variable::new("req.xid", Type::String, Subs::CLIENT, |task| Ok(xid(task.client.xid))),
    Variable::headers("req_top.http.*", Message::ReqTop, Subs::CLIENT, Subs::NONE),
    Variable::new("req_top.method", Type::String, Subs::CLIENT, |task| method(task, Message::Req)),
    Variable::new("req_top.proto", Type::String, Subs::CLIENT, |task| proto(task, Message::Req)),
    plain!("req_top.time", Time, Subs::CLIENT, client.time_s),
    Variable::new("req_top.url", Type::String, Subs::CLIENT, |task| url(task, Message::Req)),
    Variable::new("bereq", Type::Http, Subs::BACKEND, |_| Ok(Value::Http(Message::Bereq))),
    plain!("bereq.backend", Backend, BEREQ, BEREQ, fetch.backend),
    plain!(
        "bereq.between_bytes_timeout",
        Duration,
        Subs::BACKEND,
        Subs::BACKEND,
        fetch.between_bytes_timeout_s
    ),
    Variable::new("bereq.body", Type::Body, Subs::NONE, |_| Ok(Value::Void)).unset(
        Subs::of(&[Sub::BackendFetch]),
        |task| {
            task.fetch.drop_body = true;
            task.request_mut(Message::Bereq)?.fields.remove("Content-Length");
            Ok(())
        },
    ),
    plain!("bereq.connect_timeout", Duration, BEREQ, BEREQ, fetch.connect_timeout_s),
    plain!("bereq.first_byte_timeout", Duration, Subs::BACKEND, Subs::BACKEND, fetch.first_byte_timeout_s),
    Variable::new("bereq.hash", Type::Blob, BEREQ, |task| Ok(hash(task))),
    Variable::headers("bereq.http.*", Message::Bereq, BEREQ, BEREQ),
    plain!("bereq.is_bgfetch", Bool, Subs::BACKEND, fetch.is_bgfetch),
    plain!("bereq.is_hitmiss", Bool, Subs::BACKEND, fetch.is_hitmiss),
    plain!("bereq.is_hitpass", Bool, Subs::BACKEND, fetch.is_hitpass),
    Variable::new("bereq.method", Type::String, BEREQ, |task| method(task, Message::Bereq))
        .lent(|task| method_text(task, Message::Bereq))
        .set(BEREQ, |task, value| set_method(task, Message::Bereq, value)),
    Variable::new("bereq.proto", Type::String, BEREQ, |task| proto(task, Message::Bereq))
        .set_40(BEREQ, |task, value| set_proto(task, Message::Bereq, value)),
    Variable::new("bereq.retries", Type::Int, Subs::BACKEND, |task| Ok(count(task.fetch.retries))),
    plain!("bereq.time", Time, BEREQ, fetch.time_s),
    plain!("bereq.uncacheable", Bool, Subs::BACKEND, fetch.is_pass),
    Variable::new("bereq.url", Type::String, BEREQ, |task| url(task, Message::Bereq))
        .lent(|task| url_text(task, Message::Bereq))
        .set(BEREQ, |task, value| set_url(task, Message::Bereq, value)),
    Variable::new("bereq.xid", Type::String, BEREQ, |task| Ok(xid(task.fetch.xid))),
];

/// Returns the cache key as a BLOB; empty if nothing was hashed.
fn hash(task: &Task<'_>) -> Value<'static> {
    Value::Blob(task.client.hash().map(Vec::from).unwrap_or_default().into())
}

fn method<'t>(task: &'t Task<'_>, message: Message) -> Result<Value<'t>, Failure> {
    Ok(Value::text(task.request(message)?.method_str()))
}

fn method_text<'t>(task: &'t Task<'_>, message: Message) -> Result<&'t [u8], Failure> {
    Ok(task.request(message)?.method_str().as_bytes())
}

fn set_method(task: &mut Task<'_>, message: Message, value: Value<'_>) -> Result<(), Failure> {
    let method = string(value);
    if !thalweg_http::token::is_token(method.as_bytes()) {
        return Err(Failure::new(format!("invalid method {method:?}")));
    }
    let request = task.request_mut(message)?;
    request.method = Method::parse(method.as_bytes());
    request.method_text = if request.method == Method::Other { method } else { String::new() };
    Ok(())
}

fn proto<'t>(task: &'t Task<'_>, message: Message) -> Result<Value<'t>, Failure> {
    Ok(Value::text(match task.request(message)?.version {
        Protocol::Http10 => "HTTP/1.0",
        Protocol::Http11 => "HTTP/1.1",
    }))
}

fn set_proto(task: &mut Task<'_>, message: Message, value: Value<'_>) -> Result<(), Failure> {
    let proto = string(value);
    task.request_mut(message)?.version = super::protocol(&proto)?;
    Ok(())
}

fn url<'t>(task: &'t Task<'_>, message: Message) -> Result<Value<'t>, Failure> {
    Ok(Value::text(task.request(message)?.target.as_str()))
}

fn url_text<'t>(task: &'t Task<'_>, message: Message) -> Result<&'t [u8], Failure> {
    Ok(task.request(message)?.target.as_str().as_bytes())
}

fn set_url(task: &mut Task<'_>, message: Message, value: Value<'_>) -> Result<(), Failure> {
    let Value::Text(Some(url)) = &value else { return Err(Failure::new("the URL is not a string")) };
    let target = &mut task.request_mut(message)?.target;
    // Skip validation if the URL is unchanged, for example after a substitution without a match.
    if target.as_str().as_bytes() == &url[..] {
        return Ok(());
    }
    let url = str::from_utf8(url).map_err(|_| Failure::new("the URL is not visible ASCII"))?;
    let refused = |error| Failure::new(format!("cannot set {}.url to {url:?}: {error}", message.as_str()));
    target.set(url).map_err(refused)
}
