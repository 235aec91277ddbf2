//! Variables of responses: `beresp`, `obj`, `resp`.

use thalweg_http::{Version as Protocol, status};

use super::{Variable, count, optional, plain, protocol, storage_name, string, text};
use crate::message::Message;
use crate::parse::Version;
use crate::step::{Sub, Subs};
use crate::task::{LogSource, Task};
use crate::types::Type;
use crate::value::{Failure, Value, final_status};

const RESPONSE: Subs = Subs::RESPONSE;
const REPLY: Subs = Subs::REPLY;
const OBJECT: Subs = Subs::OBJECT;
const HIT: Subs = Subs::of(&[Sub::Hit]);
const BACKEND_RESPONSE: Subs = Subs::of(&[Sub::BackendResponse]);

pub(super) static TABLE: [Variable; 46] = [
    Variable::new("beresp", Type::Http, RESPONSE, |_| Ok(Value::Http(Message::Beresp))),
    plain!("beresp.age", Duration, RESPONSE, fetch.age_s),
    plain!("beresp.backend", Backend, RESPONSE, fetch.answered),
    plain!("beresp.backend.ip", Ip, BACKEND_RESPONSE, fetch.answered_address).only(Version::V40),
    // The evaluator converts the backend to its name.
    plain!("beresp.backend.name", Backend, RESPONSE, fetch.answered),
    Variable::new("beresp.body", Type::Body, Subs::NONE, |task| Ok(body(task.fetch.body.as_ref()))).set(
        Subs::of(&[Sub::BackendError]),
        |task, value| {
            task.fetch.body = Some(text(value));
            Ok(())
        },
    ),
    plain!("beresp.do_esi", Bool, RESPONSE, RESPONSE, fetch.do_esi),
    plain!("beresp.do_gunzip", Bool, RESPONSE, RESPONSE, fetch.do_gunzip),
    plain!("beresp.do_gzip", Bool, RESPONSE, RESPONSE, fetch.do_gzip),
    plain!("beresp.do_stream", Bool, RESPONSE, RESPONSE, fetch.do_stream),
    optional!("beresp.filters", String, BACKEND_RESPONSE, fetch.filters),
    plain!("beresp.grace", Duration, RESPONSE, RESPONSE, fetch.grace_s),
    Variable::headers("beresp.http.*", Message::Beresp, RESPONSE, RESPONSE),
    plain!("beresp.keep", Duration, RESPONSE, RESPONSE, fetch.keep_s),
    Variable::new("beresp.proto", Type::String, RESPONSE, |task| proto(task, Message::Beresp))
        .set_40(RESPONSE, |task, value| set_proto(task, Message::Beresp, value)),
    Variable::new("beresp.reason", Type::String, RESPONSE, |task| reason(task, Message::Beresp))
        .set(RESPONSE, |task, value| set_reason(task, Message::Beresp, value)),
    Variable::new("beresp.status", Type::Int, RESPONSE, |task| {
        Ok(count(task.response(Message::Beresp)?.status))
    })
    .set(RESPONSE, |task, value| set_status(task, Message::Beresp, value)),
    optional!("beresp.storage", Stevedore, RESPONSE, fetch.storage),
    optional!("beresp.storage_hint", String, RESPONSE, fetch.storage).only(Version::V40),
    plain!("beresp.time", Time, RESPONSE, fetch.response_time_s),
    plain!("beresp.ttl", Duration, RESPONSE, RESPONSE, fetch.ttl_s),
    plain!("beresp.uncacheable", Bool, RESPONSE, fetch.uncacheable).set(RESPONSE, |task, value| {
        match value {
            Value::Bool(false) if task.fetch.uncacheable => {
                task.push_log(LogSource::Error, "Ignoring attempt to reset beresp.uncacheable");
            }
            Value::Bool(uncacheable) => task.fetch.uncacheable = uncacheable,
            _ => {}
        }
        Ok(())
    }),
    plain!("beresp.was_304", Bool, RESPONSE, fetch.was_304),
    plain!("obj.age", Duration, OBJECT, object.age_s),
    plain!("obj.can_esi", Bool, OBJECT, object.can_esi),
    plain!("obj.grace", Duration, OBJECT, object.grace_s),
    Variable::new("obj.hits", Type::Int, OBJECT, |task| Ok(count(task.object.hits))),
    Variable::headers("obj.http.*", Message::Obj, HIT, Subs::NONE),
    plain!("obj.keep", Duration, OBJECT, object.keep_s),
    Variable::new("obj.proto", Type::String, HIT, |task| proto(task, Message::Obj)),
    Variable::new("obj.reason", Type::String, HIT, |task| reason(task, Message::Obj)),
    Variable::new("obj.status", Type::Int, HIT, |task| Ok(count(task.response(Message::Obj)?.status))),
    Variable::new("obj.storage", Type::Stevedore, OBJECT, |task| {
        Ok(Value::Storage(task.object.storage.as_deref().map(Into::into)))
    }),
    plain!("obj.time", Time, OBJECT, object.time_s),
    plain!("obj.ttl", Duration, OBJECT, object.ttl_s),
    plain!("obj.uncacheable", Bool, Subs::of(&[Sub::Deliver]), object.uncacheable),
    Variable::new("resp", Type::Http, REPLY, |_| Ok(Value::Http(Message::Resp))),
    Variable::new("resp.body", Type::Body, Subs::NONE, |task| Ok(body(task.client.body.as_ref()))).set(
        Subs::of(&[Sub::Synth]),
        |task, value| {
            task.client.body = Some(text(value));
            Ok(())
        },
    ),
    plain!("resp.do_esi", Bool, REPLY, REPLY, client.do_esi).only(Version::V41),
    optional!("resp.filters", String, REPLY, client.filters),
    Variable::headers("resp.http.*", Message::Resp, REPLY, REPLY),
    plain!("resp.is_streaming", Bool, REPLY, client.is_streaming),
    Variable::new("resp.proto", Type::String, REPLY, |task| proto(task, Message::Resp))
        .set_40(REPLY, |task, value| set_proto(task, Message::Resp, value)),
    Variable::new("resp.reason", Type::String, REPLY, |task| reason(task, Message::Resp))
        .set(REPLY, |task, value| set_reason(task, Message::Resp, value)),
    Variable::new("resp.status", Type::Int, REPLY, |task| Ok(count(task.response(Message::Resp)?.status)))
        .set(REPLY, |task, value| set_status(task, Message::Resp, value)),
    plain!("resp.time", Time, REPLY, client.response_time_s),
];

fn body(body: Option<&Vec<u8>>) -> Value<'_> {
    Value::Text(body.map(|body| body.as_slice().into()))
}

fn proto<'t>(task: &'t Task<'_>, message: Message) -> Result<Value<'t>, Failure> {
    Ok(Value::text(match task.response(message)?.version {
        Protocol::Http10 => "HTTP/1.0",
        Protocol::Http11 => "HTTP/1.1",
    }))
}

fn set_proto(task: &mut Task<'_>, message: Message, value: Value<'_>) -> Result<(), Failure> {
    let proto = string(value);
    task.response_mut(message)?.version = protocol(&proto)?;
    Ok(())
}

/// Returns the response's own reason phrase, or the standard one for its status.
fn reason<'t>(task: &'t Task<'_>, message: Message) -> Result<Value<'t>, Failure> {
    let response = task.response(message)?;
    Ok(Value::text(status::phrase(response.status % 1000, response.reason.as_deref())))
}

fn set_reason(task: &mut Task<'_>, message: Message, value: Value<'_>) -> Result<(), Failure> {
    let response = task.response_mut(message)?;
    response.reason = status::unusual_reason(response.status % 1000, &string(value));
    Ok(())
}

fn set_status(task: &mut Task<'_>, message: Message, value: Value<'_>) -> Result<(), Failure> {
    let Value::Int(status) = value else { return Ok(()) };
    let response = task.response_mut(message)?;
    (response.status, response.reason) = (final_status(status)?, None);
    Ok(())
}
