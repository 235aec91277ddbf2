//! Table tests, which run every variable and function once. A new row fails until its expected
//! result is added.

use std::collections::BTreeMap;

use crate::common::{Bench, build, request};
use expect_test::expect_file;
use thalweg_policy::Sub;
use thalweg_policy::bindings::MODULES;
use thalweg_policy::functions::{Argument, Default as Otherwise, Function};
use thalweg_policy::step::Subs;
use thalweg_policy::types::Type;
use thalweg_policy::variables::{self, Variable};

/// Returns the variable's name, with `*` filled in for a pattern.
fn name(variable: &Variable) -> String {
    let part = if variable.name.starts_with("storage") { "s0" } else { "X-Two" };
    variable.name.replace('*', part)
}

/// Returns a value other than the default.
fn sample(kind: Type, name: &str) -> &'static str {
    match (kind, name) {
        (Type::Bool, "beresp.do_stream" | "req.esi") => "false",
        (Type::Bool, _) => "true",
        (Type::Int, "resp.status" | "beresp.status") => "404",
        (Type::Int, _) => "77",
        (Type::Duration, _) => "7.5s",
        (Type::Backend, _) => "other",
        (Type::Stevedore, _) => "storage.Transient",
        (_, "req.url" | "bereq.url") => "\"/set\"",
        (_, "req.method" | "bereq.method") => "\"SET\"",
        (_, "client.socket.congestion_algorithm") => "\"bbr\"",
        (_, "req.proto" | "bereq.proto" | "resp.proto" | "beresp.proto") => "\"HTTP/1.0\"",
        _ => "\"set\"",
    }
}

/// Returns the message in which a subroutine stores its results.
fn message(sub: Sub) -> &'static str {
    if Subs::BACKEND.contains(sub) { "bereq" } else { "req" }
}

fn run(version: &str, sub: Sub, statements: &str) -> (Bench, String) {
    let text = format!(
        "vcl {version}; import blob; import std;\nbackend b {{ .host = \"::1\"; }}\nbackend other {{ .host = \"::2\"; }}\n\
         sub unused {{ set req.backend_hint = other; }}\nsub {sub} {{\n{statements}\n}}"
    );
    let (program, _) = build(&text).unwrap_or_else(|report| panic!("{text}\n{report}"));
    let original = Some(request("GET /as/it/came HTTP/1.1\nHost: came.example"));
    let mut bench = Bench { original, ..Bench::default() };
    let result = match bench.run(&program, sub) {
        Ok(_) => String::new(),
        Err(failure) => format!(" failed: {failure}"),
    };
    (bench, result)
}

fn seen(bench: &Bench, sub: Sub, header: &str) -> String {
    let head = if message(sub) == "bereq" { &bench.bereq } else { &bench.req };
    match head.fields.get(header) {
        Some(value) => String::from_utf8_lossy(value).into_owned(),
        None => "(unset)".to_owned(),
    }
}

/// Formats the variable's initial value and the results of setting and unsetting it.
fn variable(variable: &Variable, version: &str) -> String {
    let name = name(variable);
    let mut line = format!("{:<36} {:<9}", variable.name, variable.kind.as_str());
    let mut is_run = false;
    let out = |sub| format!("{}.http.X-Seen", message(sub));
    if let Some(sub) = variable.read.iter().next() {
        is_run = true;
        let read = match variable.kind {
            // These types do not convert to STRING.
            Type::Blob => format!("set {} = blob.encode(HEX, blob = {name});", out(sub)),
            Type::Http => format!("std.rollback({name}); set {} = {}.url;", out(sub), message(sub)),
            _ => format!("set {} = \"\" + {name};", out(sub)),
        };
        let (bench, failed) = run(version, sub, &read);
        line.push_str(&format!(" {}{failed}", seen(&bench, sub, "X-Seen")));
    }
    if let Some(sub) = variable.set.iter().next() {
        is_run = true;
        let value = sample(variable.kind, variable.name);
        // Return early, because the built-in policy would replace the body.
        let end = if variable.kind == Type::Body { "return (deliver);" } else { "" };
        let read = if variable.read.is_empty() {
            String::new()
        } else {
            format!("set {} = \"\" + {name};", out(sub))
        };
        let (bench, failed) = run(version, sub, &format!("set {name} = {value}; {read} {end}"));
        let after = match variable.name {
            "resp.body" => String::from_utf8_lossy(&bench.client.body.unwrap_or_default()).into_owned(),
            "beresp.body" => String::from_utf8_lossy(&bench.fetch.body.unwrap_or_default()).into_owned(),
            "client.socket.cwnd" => bench.wire.cwnd.to_string(),
            _ => seen(&bench, sub, "X-Seen"),
        };
        line.push_str(&format!(" set {after}{failed}"));
    }
    if let Some(sub) = variable.unset.iter().next() {
        is_run = true;
        let (bench, failed) = run(version, sub, &format!("unset {name};"));
        let gone = if variable.name == "bereq.body" {
            bench.fetch.drop_body.to_string()
        } else {
            let head = match variable.name.split('.').next() {
                Some("req") => &bench.req.fields,
                Some("bereq") => &bench.bereq.fields,
                Some("beresp") => &bench.beresp.fields,
                _ => &bench.resp.fields,
            };
            head.get("X-Two").is_none().to_string()
        };
        line.push_str(&format!(" unset {gone}{failed}"));
    }
    assert!(is_run, "{} was not run", variable.name);
    line.push('\n');
    line
}

#[test]
fn every_variable_runs() {
    let mut text = String::new();
    for row in variables::all() {
        text.push_str(&variable(row, row.version().unwrap_or("4.1")));
    }
    // Variables that can be set only in VCL 4.0.
    for name in ["req.proto", "bereq.proto", "beresp.proto", "resp.proto"] {
        let sub = if name.starts_with("be") { Sub::BackendResponse } else { Sub::Deliver };
        let (bench, failed) = run(
            "4.0",
            sub,
            &format!("set {name} = \"HTTP/1.0\"; set {}.http.X-Seen = {name};", message(sub)),
        );
        text.push_str(&format!("{name} in 4.0: {}{failed}\n", seen(&bench, sub, "X-Seen")));
    }
    expect_file!["variables.txt"].assert_eq(&text);
}

/// Text of the variables reference above the table.
const VARIABLES_HEAD: &str = "\
# Policy variables

Every variable of the policy language, and the subroutines that may read, set or unset it. `client` stands for all
client-side subroutines, and `backend` for all backend-side subroutines. An empty cell means that no subroutine may do
so. A test generates this page from `crates/policy/src/variables`. [Policies](../explanation/policies.md) lists the
variables that have no effect.

";

/// Text of the variables reference below the table.
const VARIABLES_NOTES: &str = "
## Units and limits

| variable | notes |
|---|---|
| `client.requests` | number of requests on the connection, including this one |
| `client.socket.congestion_algorithm` | setting an algorithm that the kernel does not provide logs a `VCL_Error` and changes nothing |
| `client.socket.pace` | in KiB/s. 0 removes the limit; a positive value below 128 becomes 128; setting a negative value logs a `VCL_Error` and changes nothing |
| `client.socket.cwnd` | in packets. Linux does not allow setting it; an attempt logs a `VCL_Error` and changes nothing |
| `client.socket.tcpi_*` | the kernel's value when the variable is read, or 0 if the kernel does not report it. Times are in µs, except that `tcpi_last_data_sent` is in ms |
| `client.socket.tcp_info` | the fields `rtt`, `rttvar`, `min_rtt`, `snd_cwnd`, `snd_mss`, `pmtu`, `delivery_rate`, `pacing_rate`, `total_retrans`, `lost` and `notsent_bytes` as one string of `name=value` pairs |
| `client.geo.*`, `client.as.*` | read from the databases listed in the `geoip` setting. An unknown string is unset, and an unknown number is 0. Names are in English. `client.geo.region` is the code of the country's largest subdivision that contains the address |
";

/// The reference must list each variable and the subroutines that may use it, as in the table.
#[test]
fn variables_reference_matches_the_table() {
    let mut table =
        String::from("| Variable | Type | Read | Set | Unset | Version |\n|---|---|---|---|---|---|\n");
    for row in variables::all() {
        let ours = if row.is_ours { ", not in Varnish" } else { "" };
        let version = row.version().unwrap_or("4.0, 4.1");
        table.push_str(&format!(
            "| `{}` | {} | {} | {} | {} | {version}{ours} |\n",
            row.name, row.kind, row.read, row.set, row.unset
        ));
    }
    expect_file!["../../../../docs/reference/policy-variables.md"]
        .assert_eq(&format!("{VARIABLES_HEAD}{table}{VARIABLES_NOTES}"));
}

/// Formats a function's parameters as in `docs/reference/policy-functions.md`, with optional
/// parameters in brackets.
fn signature(owner: &str, name: &str, arguments: &[Argument]) -> String {
    let shown = |argument: &Argument| {
        let kind = match argument.kind {
            Type::Enum(words) => format!("ENUM {{{}}}", words.join(", ")),
            kind => kind.to_string(),
        };
        let named = format!("{kind} {}", argument.name);
        match argument.default {
            Otherwise::Required => named,
            Otherwise::Missing => format!("[{named}]"),
            Otherwise::Text(text) => format!("[{named} = {text:?}]"),
            Otherwise::Int(value) => format!("[{named} = {value}]"),
            Otherwise::Real(value) => format!("[{named} = {value:?}]"),
            Otherwise::Bool(value) => format!("[{named} = {value}]"),
            Otherwise::Word(word) => format!("[{named} = {word}]"),
            Otherwise::Duration(seconds) => format!("[{named} = {seconds}s]"),
        }
    };
    format!("{owner}.{name}({})", arguments.iter().map(shown).collect::<Vec<_>>().join(", "))
}

#[test]
fn functions_reference_matches_the_table() {
    let mut text = String::from(
        "# Policy functions\n\nEvery module, function and method of the policy language. A test generates this page \
         from `crates/policy/src/bindings`.\n\n\
         - Arguments in brackets are optional. Any argument can be named: `name = value`.\n\
         - `client` stands for all client-side subroutines, and `backend` for all backend-side subroutines.\n\
         - A class is instantiated with `new` in `vcl_init`. Call its methods on the object's name.\n",
    );
    for module in MODULES {
        text.push_str(&format!(
            "\n## {}\n\n| Function | Returns | Allowed in |\n|---|---|---|\n",
            module.name
        ));
        let row = |owner: &str, function: &Function| {
            let signature = signature(owner, function.name, function.arguments);
            format!("| `{signature}` | {} | {} |\n", function.returns, function.allowed)
        };
        text.extend(module.functions.iter().map(|function| row(module.name, function)));
        for class in module.classes {
            let new = signature(module.name, class.name, class.arguments);
            text.push_str(&format!("| `new {} = {new}` | an object | vcl_init |\n", class.name));
            text.extend(class.methods.iter().map(|function| row(class.name, function)));
        }
    }
    expect_file!["../../../../docs/reference/policy-functions.md"].assert_eq(&text);
}

/// Returns an example call for each function, by full name, and the subroutine that runs it.
fn calls() -> BTreeMap<&'static str, (Sub, &'static str)> {
    BTreeMap::from(include!("calls.in"))
}

#[test]
fn every_function_runs() {
    let calls = calls();
    let mut text = String::new();
    for module in MODULES {
        let owner = |class: &'static str| {
            // The class `blob` of the module `blob`.
            if class == module.name { format!("{class}.{class}") } else { class.to_owned() }
        };
        let classes = module.classes.iter().map(|class| (owner(class.name), class.methods));
        for (owner, functions) in std::iter::once((module.name.to_owned(), module.functions)).chain(classes) {
            for function in functions {
                let name = format!("{owner}.{}", function.name);
                let (sub, call) =
                    calls.get(name.as_str()).unwrap_or_else(|| panic!("{name} has no call in calls.in"));
                let blob = if call.contains("blob.") && module.name != "blob" { "import blob;" } else { "" };
                let policy = if call.contains("new ") {
                    (*call).to_owned()
                } else {
                    format!("sub {sub} {{ {call} }}")
                };
                let policy = format!(
                    "vcl 4.1; {blob} import {};\nbackend b {{ .host = \"::1\"; }}\nbackend other {{ .host = \"::2\"; }}\n{policy}",
                    module.name
                );
                let (mut program, _) = build(&policy).unwrap_or_else(|report| panic!("{policy}\n{report}"));
                let mut bench = Bench::default();
                bench.original = Some(bench.req.clone());
                let initialised = program.init(&mut bench.task());
                let result = initialised.and_then(|_| bench.run(&program, *sub));
                let failed = result.err().map(|failure| format!(" failed: {failure}")).unwrap_or_default();
                let log: Vec<String> =
                    bench.log.iter().map(|line| format!("{:?}: {}", line.tag, line.text)).collect();
                text.push_str(&format!(
                    "{name}: {}{failed} {}\n",
                    seen(&bench, *sub, "X-Seen"),
                    log.join(" | ")
                ));
            }
        }
    }
    expect_file!["functions.txt"].assert_eq(&text);
}
