//! Tests for `thalweg check FILE.vcl`, `thalweg policy` and `vcl_fini`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use expect_test::{Expect, expect};
use rustix::process::{Pid, Signal, kill_process};

use crate::program::{Directory, Running, thalweg};

/// Checks the first of `files` in a directory that contains all of them; compares status, standard
/// output and standard error.
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
fn valid_policy_passes() {
    let right = "vcl 4.1;\nbackend b { .host = \"::1\"; }\nsub vcl_recv { return (hash); }\n";
    check(
        &[("right.vcl", right)],
        expect![[r#"
        status 0
        right.vcl: no errors found
    "#]],
    );
}

#[test]
fn warning_does_not_change_the_exit_status() {
    let unused = "vcl 4.1;\nbackend b none;\nacl nobody { \"192.0.2.1\"; }\n";
    check(
        &[("unused.vcl", unused)],
        expect![[r#"
        status 0
        unused.vcl: no errors found
        warning: acl nobody is not used
         --> unused.vcl:3:5
          |
        3 | acl nobody { "192.0.2.1"; }
          |     ^^^^^^
    "#]],
    );
}

#[test]
fn all_faults_are_reported_with_line_caret_and_advice() {
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
    check(
        &[("wrong.vcl", wrong)],
        expect![[r#"
        status 1
        error: a backend has no .prot
         --> wrong.vcl:3:29
          |
        3 | backend b { .host = "::1"; .prot = "80"; }
          |                             ^^^^
          = did you mean port?

        error: unknown variable req.urll
         --> wrong.vcl:5:9
          |
        5 |     set req.urll = "/";
          |         ^^^^^^^^
          = did you mean req.url?

        error: beresp.ttl cannot be read in vcl_recv
         --> wrong.vcl:6:24
          |
        6 |     set req.http.ttl = beresp.ttl;
          |                        ^^^^^^^^^^
          = allowed in: vcl_backend_response, vcl_backend_error

        error: expected DURATION, found STRING
         --> wrong.vcl:7:19
          |
        7 |     set req.ttl = "five";
          |                   ^^^^^^
          = convert it with std.duration(TEXT, FALLBACK)

        error: invalid regular expression: missing closing parenthesis, at byte 3
         --> wrong.vcl:8:19
          |
        8 |     if (req.url ~ "a(b") { return (lookup); }
          |                   ^^^^^

        error: lookup cannot be returned in vcl_recv
         --> wrong.vcl:8:36
          |
        8 |     if (req.url ~ "a(b") { return (lookup); }
          |                                    ^^^^^^
          = allowed in: vcl_hash; since VCL 4.0, use hash in vcl_recv

        error: std has no function lgo
         --> wrong.vcl:9:5
          |
        9 |     std.lgo("here");
          |     ^^^^^^^
          = did you mean log?

        error: unknown subroutine helpr
          --> wrong.vcl:10:10
           |
        10 |     call helpr;
           |          ^^^^^
           = did you mean helper?

        warning: sub helper is never called
          --> wrong.vcl:12:5
           |
        12 | sub helper { unset req.url; }
           |     ^^^^^^

        error: req.url cannot be unset
          --> wrong.vcl:12:20
           |
        12 | sub helper { unset req.url; }
           |                    ^^^^^^^
           = only headers and bereq.body can be unset
    "#]],
    );
}

#[test]
fn fault_in_an_include_names_the_included_file() {
    let main = "vcl 4.1;\ninclude \"parts/first.vcl\";\nbackend b none;\nsub vcl_recv { call first; }\n";
    let directory = Directory::new();
    std::fs::create_dir(directory.path().join("parts")).unwrap();
    directory.write("main.vcl", main);
    directory.write("parts/first.vcl", "include \"second.vcl\";\nsub first { call second; }\n");
    directory.write("parts/second.vcl", "sub second {\n    set req.urll = \"/\";\n}\n");
    let check = |expected: Expect| {
        let output = thalweg(&["check", "main.vcl"]).current_dir(directory.path()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        expected.assert_eq(&format!("status {}\n{error}", output.status.code().unwrap()));
    };
    check(expect![[r#"
        status 1
        error: unknown variable req.urll
         --> parts/second.vcl:2:9
          |
        2 |     set req.urll = "/";
          |         ^^^^^^^^
          = did you mean req.url?
    "#]]);
    std::fs::remove_file(directory.path().join("parts/second.vcl")).unwrap();
    check(expect![[r#"
        status 1
        error: cannot include "second.vcl": parts/second.vcl: No such file or directory (os error 2)
         --> parts/first.vcl:1:9
          |
        1 | include "second.vcl";
          |         ^^^^^^^^^^^^

        error: unknown subroutine second
         --> parts/first.vcl:2:18
          |
        2 | sub first { call second; }
          |                  ^^^^^^
          = allowed here: first
    "#]]);
}

#[test]
fn missing_file_is_reported() {
    let output = thalweg(&["check", "/nosuch/a.vcl"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    expect![[r#"
        status 1
        thalweg: cannot read /nosuch/a.vcl: No such file or directory (os error 2)
    "#]]
    .assert_eq(&format!("status {}\n{error}", output.status.code().unwrap()));
}

#[test]
fn vcl_fini_runs_on_discard_and_shutdown() {
    let directory = Directory::new();
    let text =
        "vcl 4.1; import std; backend b none; sub vcl_fini { std.log(\"the end of NAME\"); return (ok); }";
    let first = directory.write("first.vcl", &text.replace("NAME", "first"));
    let second = directory.write("second.vcl", &text.replace("NAME", "second"));
    let mut edge = start(&first);
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

#[test]
fn startup_warning_is_one_line_with_its_place() {
    let directory = Directory::new();
    let text = "vcl 4.1;\nbackend b none;\nacl nobody { \"192.0.2.1\"; }\nsub vcl_recv {\n#FASTLY recv\n}\n";
    let file = directory.write("warned.vcl", text);
    let mut edge = start(&file);
    edge.listening("edge");
    edge.listening("admin");
    for (report, place) in
        [("warning=\"acl nobody is not used\"", "warned.vcl:3:5"), ("is a comment here\"", "warned.vcl:5:1")]
    {
        let line = edge.err_line();
        assert!(line.contains(report) && line.contains(place), "{line}");
    }
}

/// Starts an edge with a policy.
fn start(policy: &Path) -> Running {
    let mut command =
        thalweg(&["edge", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--state", "off"]);
    command.arg("--policy").arg(policy);
    Running::start(command)
}

/// Starts an edge whose policy is `text`; also returns its admin address.
fn edge(directory: &Directory, text: &str) -> (Running, String) {
    let file = directory.write("boot.vcl", text);
    let mut edge = start(&file);
    edge.listening("edge");
    let admin = edge.listening("admin");
    (edge, admin)
}

#[test]
fn policy_is_loaded_and_used_in_one_step_and_shown_as_loaded() {
    let directory = Directory::new();
    let (_edge, admin) = edge(&directory, "vcl 4.1;\nbackend b none;\n");
    let main = directory.write("main.vcl", "vcl 4.1;\ninclude \"part.vcl\";\nbackend b none;\n\n");
    let part = directory.write("part.vcl", "sub vcl_recv { return (synth(204)); }\n");
    let ask = |args: &[&str]| {
        let output = thalweg(&[&["policy"], args, &["--admin", &admin]].concat()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (status, out, error) = ask(&["load", "--use", "next-1_a", main.to_str().unwrap()]);
    assert_eq!((status, &*out), (Some(0), "next-1_a loaded\nnew requests run through next-1_a\n"), "{error}");
    // Later changes to the files must not matter.
    std::fs::remove_file(&part).unwrap();
    let (status, out, error) = ask(&["show", "next-1_a"]);
    let expected = format!(
        "// {}\nvcl 4.1;\ninclude \"part.vcl\";\nbackend b none;\n// {}\nsub vcl_recv {{ return (synth(204)); }}\n",
        main.display(),
        part.display()
    );
    assert_eq!((status, out), (Some(0), expected), "{error}");
    assert_eq!(
        ask(&["show", "nosuch"]),
        (Some(1), String::new(), "thalweg: there is no policy \"nosuch\"\n".into())
    );
    let (_, list, _) = ask(&["list"]);
    let state = |name: &str| {
        list.lines()
            .find(|line| line.starts_with(name))
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .to_owned()
    };
    assert_eq!((state("next-1_a"), state("boot")), ("active".into(), "loaded".into()));
}

/// A single request must load and use the policy, so that no other `use` can come in between.
#[test]
fn one_request_loads_and_uses() {
    let directory = Directory::new();
    let (_edge, admin) = edge(&directory, "vcl 4.1;\nbackend b none;\n");
    let file = directory.write("next.vcl", "vcl 4.1;\nbackend b none;\n");
    let order = |name: &str, use_it: &str| {
        let answer = post(&admin, &format!(r#"{{"load":"{name}","path":{file:?},"use":{use_it}}}"#));
        let list = thalweg(&["policy", "list", "--admin", &admin]).output().unwrap().stdout;
        let list = String::from_utf8(list).unwrap();
        let active = list.lines().find(|line| line.contains(" active ")).unwrap();
        (answer.split(' ').nth(1).unwrap().to_owned(), active.split(' ').next().unwrap().to_owned())
    };
    assert_eq!(order("kept", "false"), ("200".into(), "boot".into()));
    assert_eq!(order("used", "true"), ("200".into(), "used".into()));
    assert_eq!(order("wrong", "1"), ("400".into(), "used".into()));
}

#[test]
fn files_beyond_the_display_limit_show_their_length() {
    let directory = Directory::new();
    let (_edge, admin) = edge(&directory, "vcl 4.1;\nbackend b none;\n");
    let includes: String = (0..5).map(|part| format!("include \"{part}.vcl\";\n")).collect();
    let main = directory.write("main.vcl", &format!("vcl 4.1;\nbackend b none;\n{includes}"));
    for part in 0..4 {
        // The byte that grows most when escaped in JSON.
        directory.write(&format!("{part}.vcl"), &format!("/*{}*/", "\u{1}".repeat((1 << 20) - 4)));
    }
    directory.write("4.vcl", "# the last\n");
    let ask = |args: &[&str]| thalweg(&[&["policy"], args, &["--admin", &admin]].concat()).output().unwrap();
    let loaded = ask(&["load", "long", main.to_str().unwrap()]);
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
    let shown = ask(&["show", "long"]);
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown = String::from_utf8(shown.stdout).unwrap();
    let lines: Vec<_> = shown.lines().map(|line| &line[line.len().saturating_sub(60)..]).collect();
    let end = format!(
        "// {0}/3.vcl\n// not shown: 1048576 bytes, beyond the display limit\n// {0}/4.vcl\n# the last\n",
        directory.path().display()
    );
    assert!(shown.ends_with(&end), "{lines:?}");
}

#[test]
fn invalid_policy_name_is_rejected_with_the_allowed_form() {
    let directory = Directory::new();
    let (_edge, admin) = edge(&directory, "vcl 4.1;\nbackend b none;\n");
    let may_be = "a letter followed by letters, digits, _ and -, at most 64 characters in all";
    for name in ["bad name", "", "1st", "a.b", "\u{e9}", &"a".repeat(65)] {
        let output = thalweg(&["policy", "load", name, "a.vcl", "--admin", &admin]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(&format!("{name:?} is not a valid policy name: must be {may_be}")), "{error}");
        // The edge must reject the name with the same message if another client sends the request.
        let order = format!("{{\"load\":{name:?},\"path\":\"/a.vcl\"}}").replace("\\u{e9}", "\u{e9}");
        let answer = post(&admin, &order);
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(may_be), "{answer}");
    }
}

/// Posts `order` and returns the response, with its head.
fn post(admin: &str, order: &str) -> String {
    let mut stream = TcpStream::connect(admin).unwrap();
    let length = order.len();
    write!(
        stream,
        "POST /policies HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{order}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
