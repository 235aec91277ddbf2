//! Bindings of `thalweg`: CMCD (CTA-5004) as typed values, and the bundle's decisions for the
//! client.
//!
//! A number missing from CMCD yields the fallback, which is -1 unless documented otherwise. A
//! missing string is unset. Values missing from the bundle are empty, false or 0.

use crate::functions::{
    Argument, Call, Default, Function, Module, function, optional, optional_or, required,
};
use crate::message::Message;
use crate::modules::{cmcd::Cmcd, pace};
use crate::step::Subs;
use crate::types::Type;
use crate::value::{Failure, Value};

pub(super) const MODULE: Module = Module { name: "thalweg", functions: FUNCTIONS, classes: &[] };

const FALLBACK: &[Argument] = &[optional_or("fallback", Type::Int, Default::Int(-1))];

/// Declares a function that returns a CMCD value as an INT.
macro_rules! int {
    ($name:literal, $field:ident) => {
        function($name, FALLBACK, Type::Int, Subs::CLIENT, |call| {
            let fallback = call.int(0);
            Ok(Value::Int(
                cmcd(call)?.$field.map_or(fallback, |value| i64::try_from(value).unwrap_or(i64::MAX)),
            ))
        })
    };
}

/// Declares a function that returns a CMCD value as a STRING.
macro_rules! text {
    ($name:literal, $field:ident) => {
        function($name, &[], Type::String, Subs::CLIENT, |call| {
            Ok(Value::Text(cmcd(call)?.$field.map(|text| text.into_bytes().into())))
        })
    };
}

/// Declares a function that returns a CMCD token as a STRING.
macro_rules! word {
    ($name:literal, $field:ident) => {
        function($name, &[], Type::String, Subs::CLIENT, |call| {
            Ok(Value::maybe(cmcd(call)?.$field.map(|word| word.as_str())))
        })
    };
}

const FUNCTIONS: &[Function] = &[
    function("arm", &[required("experiment", Type::String)], Type::String, Subs::CLIENT, |call| {
        let arm = call.task.host.arm(&call.str(0), host(call)?, call.task.session.client);
        Ok(or_empty(arm))
    }),
    function("bundle_number", &[], Type::Int, Subs::CLIENT, |call| {
        let number = call.task.host.bundle_number().unwrap_or(0);
        Ok(Value::Int(i64::try_from(number).unwrap_or(i64::MAX)))
    }),
    int!("cmcd_br", br_kbps),
    int!("cmcd_bl", bl_ms),
    function("cmcd_bs", &[], Type::Bool, Subs::CLIENT, |call| Ok(Value::Bool(cmcd(call)?.bs))),
    text!("cmcd_cid", cid),
    int!("cmcd_d", d_ms),
    int!("cmcd_dl", dl_ms),
    int!("cmcd_mtp", mtp_kbps),
    text!("cmcd_nor", nor),
    word!("cmcd_ot", ot),
    function(
        "cmcd_pr",
        &[optional_or("fallback", Type::Real, Default::Real(1.0))],
        Type::Real,
        Subs::CLIENT,
        |call| {
            let fallback = call.real(0);
            Ok(Value::Real(cmcd(call)?.pr.unwrap_or(fallback)))
        },
    ),
    int!("cmcd_rtp", rtp_kbps),
    word!("cmcd_sf", sf),
    text!("cmcd_sid", sid),
    word!("cmcd_st", st),
    function("cmcd_su", &[], Type::Bool, Subs::CLIENT, |call| Ok(Value::Bool(cmcd(call)?.su))),
    int!("cmcd_tb", tb_kbps),
    // The pace in KiB/s, for `client.socket.pace`; 0 if unpaced.
    function("cmcd_pace", &[], Type::Int, Subs::CLIENT, |call| {
        Ok(Value::Int(pace::from_cmcd(&cmcd(call)?).map_or(0, pace::to_kb_per_s)))
    }),
    function("is_holdout", &[], Type::Bool, Subs::CLIENT, |call| {
        Ok(Value::Bool(call.task.host.is_holdout(call.task.session.client, host(call)?)))
    }),
    function("rule_algorithm", &[optional("ip", Type::Ip)], Type::String, Subs::CLIENT, |call| {
        let address = call.ip(0).unwrap_or(call.task.session.client).ip();
        Ok(or_empty(call.task.host.rule_algorithm(address, host(call)?)))
    }),
];

/// Returns the host in the client's original request, to which the edge applies the bundle's rules.
fn host<'a>(call: &'a Call<'_, '_>) -> Result<&'a str, Failure> {
    let request = call.task.original.map_or_else(|| call.task.request(Message::Req), Ok)?;
    Ok(request.authority.name())
}

/// Returns `text` as a STRING; empty if `None`.
fn or_empty(text: Option<String>) -> Value<'static> {
    Value::Text(Some(text.unwrap_or_default().into_bytes().into()))
}

fn cmcd(call: &Call<'_, '_>) -> Result<Cmcd, Failure> {
    let request = call.task.request(Message::Req)?;
    Ok(Cmcd::of_request(request.target.query().map(str::as_bytes), &request.fields))
}
