//! `thalweg check FILE.vcl` as its user sees it, and a policy's end.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod program;

use expect_test::{Expect, expect};
use rustix::process::{Pid, Signal, kill_process};

use program::{Directory, Running, thalweg};

/// Checks the first of `files` in a directory that has all of them; status, standard output and standard error.
fn check(files: &[(&str, &str)], expected: Expect) {
    let directory = Directory::new();
    for (name, text) in files {
        directory.write(name, text);
    }
    let output = thalweg(&["check", files[0].0]).current_dir(directory.path()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    expected.assert_eq(&format!("status {}\n{out}{err}", output.status.code().unwrap()));
}

#[test]
fn a_right_policy() {
    let right = "vcl 4.1;\nbackend b { .host = \"::1\"; }\nsub vcl_recv { return (hash); }\n";
    check(&[("right.vcl", right)], expect![[]]);
}

#[test]
fn a_warning_is_told_and_changes_nothing() {
    let unused = "vcl 4.1;\nbackend b none;\nacl nobody { \"192.0.2.1\"; }\n";
    check(&[("unused.vcl", unused)], expect![[]]);
}

#[test]
fn every_fault_at_once_with_its_line_a_caret_what_is_allowed_and_the_nearest_name() {
    let wrong = r#"vcl 4.1;
import std;
backend b { .host = "::1"; .prot = "80"; }
sub vcl_recv {
    set req.urll = "/";
    set req.http.ttl = beresp.ttl;
    set req.ttl = "five";
    if (req.url ~ "a(b") { return (lookup); }
    std.lgo("here");
    call helpr;
}
sub helper { unset req.url; }
"#;
    check(&[("wrong.vcl", wrong)], expect![[]]);
}

#[test]
fn a_fault_in_what_is_included_names_that_file() {
    let main = "vcl 4.1;\ninclude \"parts/first.vcl\";\nbackend b none;\nsub vcl_recv { call first; }\n";
    let directory = Directory::new();
    std::fs::create_dir(directory.path().join("parts")).unwrap();
    directory.write("main.vcl", main);
    directory.write("parts/first.vcl", "include \"second.vcl\";\nsub first { call second; }\n");
    directory.write("parts/second.vcl", "sub second {\n    set req.urll = \"/\";\n}\n");
    let told = |expected: Expect| {
        let output = thalweg(&["check", "main.vcl"]).current_dir(directory.path()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        expected.assert_eq(&format!("status {}\n{error}", output.status.code().unwrap()));
    };
    told(expect![[]]);
    std::fs::remove_file(directory.path().join("parts/second.vcl")).unwrap();
    told(expect![[]]);
}

#[test]
fn a_file_that_is_not_there() {
    let output = thalweg(&["check", "/nosuch/a.vcl"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    expect![[]].assert_eq(&format!("status {}\n{error}", output.status.code().unwrap()));
}

#[test]
fn vcl_fini_is_run_when_a_policy_is_discarded_or_the_edge_ends() {
    let directory = Directory::new();
    let text =
        "vcl 4.1; import std; backend b none; sub vcl_fini { std.log(\"the end of NAME\"); return (ok); }";
    let first = directory.write("first.vcl", &text.replace("NAME", "first"));
    let second = directory.write("second.vcl", &text.replace("NAME", "second"));
    let policy = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--policy", first.to_str().unwrap()];
    let mut edge = Running::start(thalweg(&[&["edge"][..], &policy].concat()));
    edge.listening("edge");
    let admin = edge.listening("admin");
    let ask = |args: &[&str]| {
        let output = thalweg(&[&["policy"], args, &["--admin", &admin]].concat()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
    };
    ask(&["load", "second", second.to_str().unwrap()]);
    ask(&["use", "second"]);
    ask(&["discard", "boot"]);
    edge.err_line_with("the end of first");
    let process = Pid::from_raw(edge.id().try_into().unwrap()).unwrap();
    kill_process(process, Signal::TERM).unwrap();
    edge.err_line_with("the end of second");
}
