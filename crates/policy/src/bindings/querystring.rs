//! Bindings of `querystring` (libvmod-querystring): functions and `filter` objects.

use crate::functions::{
    Argument, Call, Class, Default, Function, Instance, Module, function, optional_or, required,
};
use crate::modules::querystring::{self, By, Filter, Mode};
use crate::regex::Regex;
use crate::step::{Sub, Subs};
use crate::types::Type;
use crate::value::{Failure, Value};

const INIT: Subs = Subs::of(&[Sub::Init]);
const MODES: Type = Type::Enum(&["drop", "keep"]);

pub(super) const MODULE: Module = Module {
    name: "querystring",
    functions: &[
        function("clean", &[required("url", Type::String)], Type::String, Subs::ALL, |call| {
            Ok(Value::owned(querystring::clean(call.text(0))))
        }),
        function("remove", &[required("url", Type::String)], Type::String, Subs::ALL, |call| {
            Ok(Value::owned(querystring::remove(call.text(0))))
        }),
        function(
            "sort",
            &[required("url", Type::String), optional_or("uniq", Type::Bool, Default::Bool(false))],
            Type::String,
            Subs::ALL,
            |call| Ok(Value::owned(querystring::sort(call.text(0), call.bool(1)))),
        ),
        function("regfilter", REGEX, Type::String, Subs::ALL, |call| by_regex(call, Mode::Drop)),
        function("regfilter_except", REGEX, Type::String, Subs::ALL, |call| by_regex(call, Mode::Keep)),
        function("globfilter", GLOB, Type::String, Subs::ALL, |call| by_glob(call, Mode::Drop)),
        function("globfilter_except", GLOB, Type::String, Subs::ALL, |call| by_glob(call, Mode::Keep)),
    ],
    classes: &[Class::new(
        "filter",
        &[
            optional_or("sort", Type::Bool, Default::Bool(false)),
            optional_or("uniq", Type::Bool, Default::Bool(false)),
            optional_or("match", Type::Enum(&["name", "param"]), Default::Word("name")),
        ],
        |call| {
            let by = if call.word(2) == "param" { By::Parameter } else { By::Name };
            let how = Filter { sort: call.bool(0), unique: call.bool(1), by };
            Ok(Box::new(Criteria { how, any_of: Vec::new() }) as Instance)
        },
        METHODS,
    )],
};

const REGEX: &[Argument] = &[required("url", Type::String), required("regex", Type::Regex)];
const GLOB: &[Argument] = &[required("url", Type::String), required("glob", Type::String)];
const APPLY: &[Argument] =
    &[required("url", Type::String), optional_or("mode", MODES, Default::Word("drop"))];

const METHODS: &[Function] = &[
    function("add_string", &[required("string", Type::String)], Type::Void, INIT, |call| {
        let text = call.text(0).to_vec();
        add(call, Criterion::Text(text))
    }),
    function("add_glob", &[required("glob", Type::String)], Type::Void, INIT, |call| {
        let text = call.text(0).to_vec();
        add(call, Criterion::Glob(text))
    }),
    function("add_regex", &[required("regex", Type::Regex)], Type::Void, INIT, |call| {
        let Some(regex) = call.regex(0) else { return Ok(Value::Void) };
        let regex = Regex::new(&regex.pattern).map_err(Failure::new)?;
        add(call, Criterion::Regex(regex))
    }),
    function("apply", APPLY, Type::String, Subs::ALL, |call| {
        let criteria: &Criteria = call.object();
        Ok(Value::owned(criteria.how.apply(call.text(0), mode(call), |text| criteria.is_match(text))))
    }),
    function("extract", APPLY, Type::String, Subs::ALL, |call| {
        let criteria: &Criteria = call.object();
        Ok(Value::owned(criteria.how.extract(call.text(0), mode(call), |text| criteria.is_match(text))))
    }),
];

/// The state of a `filter` object, set in `vcl_init`.
struct Criteria {
    how: Filter,
    any_of: Vec<Criterion>,
}

enum Criterion {
    Text(Vec<u8>),
    Glob(Vec<u8>),
    Regex(Regex),
}

impl Criteria {
    fn is_match(&self, text: &[u8]) -> bool {
        self.any_of.iter().any(|criterion| match criterion {
            Criterion::Text(wanted) => wanted == text,
            Criterion::Glob(pattern) => querystring::matches_glob(pattern, text),
            Criterion::Regex(regex) => regex.is_match(text).unwrap_or(false),
        })
    }
}

fn add(call: &mut Call<'_, '_>, criterion: Criterion) -> Result<Value<'static>, Failure> {
    call.object_mut::<Criteria>().any_of.push(criterion);
    Ok(Value::Void)
}

fn mode(call: &Call<'_, '_>) -> Mode {
    if call.word(1) == "keep" { Mode::Keep } else { Mode::Drop }
}

fn by_regex(call: &mut Call<'_, '_>, mode: Mode) -> Result<Value<'static>, Failure> {
    Ok(Value::owned(Filter::default().apply(call.text(0), mode, call.matcher(1))))
}

fn by_glob(call: &mut Call<'_, '_>, mode: Mode) -> Result<Value<'static>, Failure> {
    let matches = |name: &[u8]| querystring::matches_glob(call.text(1), name);
    Ok(Value::owned(Filter::default().apply(call.text(0), mode, matches)))
}
