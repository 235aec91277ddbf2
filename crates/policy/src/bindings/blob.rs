//! Bindings of `blob` (vmod_blob(3)).

use crate::functions::{
    Argument, Call, Class, Default, Function, Instance, Module, function, optional_or, required,
};
use crate::modules::blob::{self, Case, Encoding};
use crate::step::Subs;
use crate::types::Type;
use crate::value::{Failure, Value};

const ENCODINGS: Type =
    Type::Enum(&["IDENTITY", "BASE64", "BASE64URL", "BASE64URLNOPAD", "BASE64CF", "HEX", "URL"]);
const CASES: Type = Type::Enum(&["LOWER", "UPPER", "DEFAULT"]);

pub(super) const MODULE: Module = Module { name: "blob", functions: FUNCTIONS, classes: &[BLOB] };

const DECODING: Argument = optional_or("decoding", ENCODINGS, Default::Word("IDENTITY"));
const ENCODING: Argument = optional_or("encoding", ENCODINGS, Default::Word("IDENTITY"));
const CASE: Argument = optional_or("case", CASES, Default::Word("DEFAULT"));
const LENGTH: Argument = optional_or("length", Type::Int, Default::Int(0));

const FUNCTIONS: &[Function] = &[
    function(
        "decode",
        &[DECODING, LENGTH, required("encoded", Type::String)],
        Type::Blob,
        Subs::ALL,
        |call| {
            let bytes = blob::decode(encoding(call, 0)?, call.int(1), call.text(2)).map_err(Failure::new)?;
            Ok(Value::Blob(bytes.into()))
        },
    ),
    function("encode", &[ENCODING, CASE, required("blob", Type::Blob)], Type::String, Subs::ALL, |call| {
        Ok(Value::owned(blob::encode(encoding(call, 0)?, case(call, 1), call.text(2)).map_err(Failure::new)?))
    }),
    function(
        "transcode",
        &[DECODING, ENCODING, CASE, LENGTH, required("encoded", Type::String)],
        Type::String,
        Subs::ALL,
        |call| {
            let length = call.int(3);
            let (from, to) = (encoding(call, 0)?, encoding(call, 1)?);
            Ok(Value::owned(
                blob::transcode(from, to, case(call, 2), length, call.text(4)).map_err(Failure::new)?,
            ))
        },
    ),
    SAME,
    Function { name: "equal", ..SAME },
    function("length", &[required("blob", Type::Blob)], Type::Int, Subs::ALL, |call| {
        Ok(Value::Int(i64::try_from(call.text(0).len()).unwrap_or(i64::MAX)))
    }),
    function(
        "sub",
        &[
            required("blob", Type::Blob),
            required("length", Type::Bytes),
            optional_or("offset", Type::Bytes, Default::Int(0)),
        ],
        Type::Blob,
        Subs::ALL,
        |call| {
            let unsigned = |value: i64| u64::try_from(value).unwrap_or(u64::MAX);
            let part = blob::sub(call.text(0), unsigned(call.int(1)), unsigned(call.int(2)))
                .map_err(Failure::new)?;
            Ok(Value::Blob(part.to_vec().into()))
        },
    ),
];

const SAME: Function = function(
    "same",
    &[required("x", Type::Blob), required("y", Type::Blob)],
    Type::Bool,
    Subs::ALL,
    |call| Ok(Value::Bool(call.text(0) == call.text(1))),
);

/// Octets decoded once, in `vcl_init`.
const BLOB: Class = Class::new(
    "blob",
    &[DECODING, required("encoded", Type::String)],
    |call| {
        let octets = blob::decode(encoding(call, 0)?, 0, call.text(1)).map_err(Failure::new)?;
        Ok(Box::new(octets) as Instance)
    },
    &[
        function("get", &[], Type::Blob, Subs::ALL, |call| {
            Ok(Value::Blob(call.object::<Vec<u8>>().clone().into()))
        }),
        function("encode", &[ENCODING, CASE], Type::String, Subs::ALL, |call| {
            let octets: &Vec<u8> = call.object();
            let text = blob::encode(encoding(call, 0)?, case(call, 1), octets).map_err(Failure::new)?;
            Ok(Value::owned(text))
        }),
    ],
);

fn encoding(call: &Call<'_, '_>, index: usize) -> Result<Encoding, Failure> {
    Encoding::named(call.word(index)).ok_or_else(|| Failure::new("unknown encoding"))
}

fn case(call: &Call<'_, '_>, index: usize) -> Case {
    match call.word(index) {
        "LOWER" => Case::Lower,
        "UPPER" => Case::Upper,
        _ => Case::Default,
    }
}
