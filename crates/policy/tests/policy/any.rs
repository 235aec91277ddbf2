//! Property tests with random input: the compiler never panics or hangs, and no accepted policy
//! panics at run time.

use crate::common::{Bench, build};
use proptest::prelude::*;
use thalweg_policy::Sub;

const PIECES: [&str; 68] = [
    "vcl 4.1;",
    "sub ",
    "vcl_recv ",
    "vcl_deliver ",
    "vcl_backend_response ",
    "vcl_init ",
    "{",
    "}",
    "(",
    ")",
    ";",
    " = ",
    " + ",
    " - ",
    " * ",
    " / ",
    " % ",
    " ~ ",
    " !~ ",
    "==",
    "<",
    "!",
    "&&",
    "||",
    ",",
    ".",
    "set ",
    "unset ",
    "call ",
    "return ",
    "(pass)",
    "(synth(404, \"a\"))",
    "if ",
    "else ",
    "new ",
    "import std;",
    "std.log",
    "std.integer",
    "regsub",
    "req.http.a ",
    "req.url ",
    "req.ttl ",
    "beresp.ttl ",
    "client.ip ",
    "now ",
    "resp.body ",
    "5 ",
    "5s ",
    "1.5 ",
    "1KB ",
    "\"a\" ",
    "\"(\" ",
    "{\"x\"}",
    ":YQ==:",
    "true ",
    "b ",
    "l ",
    "backend b { .host = \"::1\"; }",
    "acl l { \"::1\"; }",
    "probe p { .url = \"/\"; }",
    "include \"x\";",
    "C{ }C",
    "/* ",
    "# \n",
    "\n",
    "9999999999999999",
    ".upper()",
    "d.backend()",
];

fn run_all(text: &str) {
    let Ok((mut program, _)) = build(text) else { return };
    let mut bench = Bench::default();
    let _ = program.init(&mut bench.task());
    for sub in Sub::ALL {
        let _ = bench.run(&program, sub);
        bench.workspace.bytes_used = 0;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn random_pieces_do_not_panic(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..60)) {
        run_all(&pieces.concat());
    }

    #[test]
    fn random_statements_do_not_panic(
        sub in prop::sample::select(&Sub::ALL[..]),
        pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..20),
    ) {
        run_all(&format!("vcl 4.1; import std; backend b none; acl l {{ \"::1\"; }} sub {sub} {{ {} }}", pieces.concat()));
    }

    #[test]
    fn random_text_does_not_panic(text in "\\PC{0,200}") {
        run_all(&text);
        run_all(&format!("vcl 4.1; backend b none; sub vcl_recv {{ {text} }}"));
    }
}

/// Deeply nested input must either be rejected or run, and must never overflow the stack.
#[test]
fn deep_nesting_faults_or_runs() {
    for open in ["(", "!(", "-(", "((", "std.tolower(", "{", "if (true) {", "!", "-", "\"a\" + (", "a.b(a.b("]
    {
        for count in [10, 40, 47, 60, 5_000] {
            let (open, close) =
                (open.repeat(count), if open.contains('{') { "}" } else { ")" }.repeat(count));
            run_all(&format!(
                "vcl 4.1; import std; backend b none; sub vcl_recv {{ set req.http.a = {open}\"a\"{close}; }}"
            ));
            run_all(&format!("vcl 4.1; import std; backend b none; sub vcl_recv {{ {open} {close} }}"));
            run_all(&open);
        }
    }
}
