//! `thalweg`: what players say of themselves (CTA-5004), as typed values.
//!
//! A number that the player did not send is the fallback, -1 unless said; a text is unset.

use crate::functions::{Argument, Call, Default, Function, Module, function, with};
use crate::modules::{cmcd::Cmcd, pace};
use crate::step::Subs;
use crate::task::Message;
use crate::types::Type;
use crate::value::{Failure, Value};

pub(super) const MODULE: Module = Module { name: "thalweg", functions: FUNCTIONS, classes: &[] };

const FALLBACK: &[Argument] = &[with("fallback", Type::Int, Default::Int(-1))];

/// An INT of the data.
macro_rules! int {
    ($name:literal, $field:ident) => {
        function($name, FALLBACK, Type::Int, Subs::CLIENT, |call| {
            let fallback = call.int(0).unwrap_or(-1);
            Ok(Value::Int(
                cmcd(call)?.$field.map_or(fallback, |value| i64::try_from(value).unwrap_or(i64::MAX)),
            ))
        })
    };
}

/// A text of the data.
macro_rules! text {
    ($name:literal, $field:ident) => {
        function($name, &[], Type::String, Subs::CLIENT, |call| {
            Ok(Value::Text(cmcd(call)?.$field.map(|text| text.into_bytes().into())))
        })
    };
}

/// A word of the data.
macro_rules! word {
    ($name:literal, $field:ident) => {
        function($name, &[], Type::String, Subs::CLIENT, |call| {
            Ok(Value::maybe(cmcd(call)?.$field.map(|word| word.token())))
        })
    };
}

const FUNCTIONS: &[Function] = &[
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
        &[with("fallback", Type::Real, Default::Real(1.0))],
        Type::Real,
        Subs::CLIENT,
        |call| {
            let fallback = call.real(0).unwrap_or(1.0);
            Ok(Value::Real(cmcd(call)?.pr.unwrap_or(fallback)))
        },
    ),
    int!("cmcd_rtp", rtp_kbps),
    word!("cmcd_sf", sf),
    text!("cmcd_sid", sid),
    word!("cmcd_st", st),
    function("cmcd_su", &[], Type::Bool, Subs::CLIENT, |call| Ok(Value::Bool(cmcd(call)?.su))),
    int!("cmcd_tb", tb_kbps),
    // KB a second for client.socket.pace; 0 for as fast as it goes.
    function("cmcd_pace", &[], Type::Int, Subs::CLIENT, |call| {
        Ok(Value::Int(pace::of_cmcd(&cmcd(call)?).map_or(0, pace::to_kb_per_s)))
    }),
];

fn cmcd(call: &Call<'_, '_>) -> Result<Cmcd, Failure> {
    let request = call.task.request(Message::Req)?;
    Ok(Cmcd::of_request(request.target.query().map(str::as_bytes), &request.fields))
}
