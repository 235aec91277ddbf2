//! `blob` (vmod_blob(3)).

use super::failed;
use crate::functions::{Argument, Call, Class, Default, Function, Instance, Module, function, needs, with};
use crate::modules::blob::{self, Case, Encoding};
use crate::step::Subs;
use crate::types::Type;
use crate::value::{Failure, Value};

const ENCODINGS: Type =
    Type::Enum(&["IDENTITY", "BASE64", "BASE64URL", "BASE64URLNOPAD", "BASE64CF", "HEX", "URL"]);
const CASES: Type = Type::Enum(&["LOWER", "UPPER", "DEFAULT"]);

pub(super) const MODULE: Module = Module { name: "blob", functions: FUNCTIONS, classes: &[BLOB] };

const DECODING: Argument = with("decoding", ENCODINGS, Default::Word("IDENTITY"));
const ENCODING: Argument = with("encoding", ENCODINGS, Default::Word("IDENTITY"));
const CASE: Argument = with("case", CASES, Default::Word("DEFAULT"));
const LENGTH: Argument = with("length", Type::Int, Default::Int(0));

const FUNCTIONS: &[Function] = &[
    function("decode", &[DECODING, LENGTH, needs("encoded", Type::String)], Type::Blob, Subs::ALL, |call| {
        let bytes =
            blob::decode(encoding(call, 0)?, call.int(1).unwrap_or(0), call.text(2)).map_err(failed)?;
        Ok(Value::Blob(bytes.into()))
    }),
    function("encode", &[ENCODING, CASE, needs("blob", Type::Blob)], Type::String, Subs::ALL, |call| {
        Ok(Value::owned(blob::encode(encoding(call, 0)?, case(call, 1), call.text(2)).map_err(failed)?))
    }),
    function(
        "transcode",
        &[DECODING, ENCODING, CASE, LENGTH, needs("encoded", Type::String)],
        Type::String,
        Subs::ALL,
        |call| {
            let length = call.int(3).unwrap_or(0);
            let (from, to) = (encoding(call, 0)?, encoding(call, 1)?);
            Ok(Value::owned(blob::transcode(from, to, case(call, 2), length, call.text(4)).map_err(failed)?))
        },
    ),
    function("same", &[needs("x", Type::Blob), needs("y", Type::Blob)], Type::Bool, Subs::ALL, |call| {
        Ok(Value::Bool(call.text(0) == call.text(1)))
    }),
    function("equal", &[needs("x", Type::Blob), needs("y", Type::Blob)], Type::Bool, Subs::ALL, |call| {
        Ok(Value::Bool(call.text(0) == call.text(1)))
    }),
    function("length", &[needs("blob", Type::Blob)], Type::Int, Subs::ALL, |call| {
        Ok(Value::Int(i64::try_from(call.text(0).len()).unwrap_or(i64::MAX)))
    }),
    function(
        "sub",
        &[
            needs("blob", Type::Blob),
            needs("length", Type::Bytes),
            with("offset", Type::Bytes, Default::Int(0)),
        ],
        Type::Blob,
        Subs::ALL,
        |call| {
            let unsigned = |value: Option<i64>| u64::try_from(value.unwrap_or(0)).unwrap_or(u64::MAX);
            let part =
                blob::sub(call.text(0), unsigned(call.int(1)), unsigned(call.int(2))).map_err(failed)?;
            Ok(Value::Blob(part.to_vec().into()))
        },
    ),
];

/// Octets that are decoded once, in `vcl_init`.
const BLOB: Class = Class {
    name: "blob",
    arguments: &[DECODING, needs("encoded", Type::String)],
    new: |call| Ok(Box::new(blob::decode(encoding(call, 0)?, 0, call.text(1)).map_err(failed)?) as Instance),
    methods: &[
        function("get", &[], Type::Blob, Subs::ALL, |call| {
            Ok(Value::Blob(call.object::<Vec<u8>>().clone().into()))
        }),
        function("encode", &[ENCODING, CASE], Type::String, Subs::ALL, |call| {
            let octets: &Vec<u8> = call.object();
            Ok(Value::owned(blob::encode(encoding(call, 0)?, case(call, 1), octets).map_err(failed)?))
        }),
    ],
    ready: None,
    director: None,
};

fn encoding(call: &Call<'_, '_>, index: usize) -> Result<Encoding, Failure> {
    Encoding::from_name(call.word(index)).ok_or_else(|| Failure::new("there is no such encoding"))
}

fn case(call: &Call<'_, '_>, index: usize) -> Case {
    match call.word(index) {
        "LOWER" => Case::Lower,
        "UPPER" => Case::Upper,
        _ => Case::Default,
    }
}
