//! Program tests from the user's perspective: output and exit status.

use std::io::Write;
use std::process::Stdio;

use expect_test::{Expect, expect};

use crate::program::{Directory, thalweg};

/// Runs the program in a directory with this `thalweg.toml`, and compares status, standard output
/// and standard error.
fn check(config: &str, args: &[&str], expected: Expect) {
    let directory = Directory::new();
    directory.write("thalweg.toml", config);
    let output = thalweg(args).current_dir(directory.path()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    let report = format!("status {}\n{out}{err}", output.status.code().unwrap());
    expected.assert_eq(&report.replace(&directory.path().display().to_string(), "DIR"));
}

#[test]
fn unknown_or_reserved_kafka_property_is_rejected() {
    let consumer =
        ["consumer", "--kafka", "127.0.0.1:1", "--clickhouse", "http://127.0.0.1:1/", "--kafka-set"];
    check(
        "",
        &[&consumer[..], &["foo=bar"]].concat(),
        expect![[r#"
        status 2
        --kafka-set: cannot read from Kafka at 127.0.0.1:1: Client config error: No such configuration property: "foo" foo bar
    "#]],
    );
    check(
        "",
        &[&consumer[..], &["acks=1"]].concat(),
        expect![[r#"
        status 2
        --kafka-set: acks cannot be set: exactly-once delivery depends on it
    "#]],
    );
}

#[test]
fn unknown_key_is_reported() {
    let config = "[origin]\nlisten = '127.0.0.1:0'\n\n[edge]\n\nlistn = '127.0.0.1:0'\n";
    check(
        config,
        &["up"],
        expect![[r#"
        status 2
        thalweg.toml:6:1: unknown key "listn" in [edge]; did you mean "listen"?
    "#]],
    );
    check(
        config,
        &["check", "thalweg.toml"],
        expect![[r#"
        status 1
        thalweg.toml:6:1: unknown key "listn" in [edge]; did you mean "listen"?
    "#]],
    );
}

#[test]
fn wrong_flag_or_value_is_reported() {
    check(
        "",
        &["edge", "--listen", "here", "--memory", "1"],
        expect![[r#"
        status 2
        --listen: "here" is not an address and a port such as "127.0.0.1:8080"
        --memory: "1" has no unit: write 1B, 1KiB or 1MiB
    "#]],
    );
    check(
        "",
        &["edge", "--listen", "127.0.0.1:0"],
        expect![[r#"
            status 2
            the edge has no backend: give --backend http://HOST:PORT, or a --policy that declares one
        "#]],
    );
    check(
        "",
        &["edge", "--backend", "http://127.0.0.1:1", "--backend", "ftp://b"],
        expect![[r#"
        status 2
        --backend: "ftp://b": invalid backend URL (expected http://HOST[:PORT])
    "#]],
    );
    check(
        "",
        &["origin", "--media", "not-there"],
        expect![[r#"
            status 2
            --media: cannot read directory not-there: No such file or directory (os error 2)
        "#]],
    );
    check(
        "",
        &["source", "--media", ".", "--to", "http://127.0.0.1:1"],
        expect![[r#"
        status 2
        error: invalid value 'http://127.0.0.1:1' for '--to <http://HOST:PORT/ingest/CHANNEL>': "http://127.0.0.1:1" is not a publishing point: write a publishing point such as "http://127.0.0.1:8084/ingest/CHANNEL"

        For more information, try '--help'.
    "#]],
    );
    check(
        "",
        &["source", "--media", ".", "--to", "http://127.0.0.1:1/ingest/a"],
        expect![[r#"
            status 2
            --media: no track in .: a track is a file ending in .mp4, .m4v, .m4a, .m4s, .cmfv, .cmfa, .cmft or .vtt
        "#]],
    );
    check(
        "",
        &["ban", "req.url = /a"],
        expect![[r#"
        status 2
        error: invalid value 'req.url = /a' for '<EXPRESSION>': = assigns, it does not compare; did you mean ==?
          req.url = /a
                  ^

        For more information, try '--help'.
    "#]],
    );
    check(
        "",
        &["purge"],
        expect![[r#"
        status 2
        error: the following required arguments were not provided:
          <URL>...

        Usage: thalweg purge <URL>...

        For more information, try '--help'.
    "#]],
    );
    check(
        "",
        &["fly"],
        expect![[r#"
        status 2
        error: unrecognized subcommand 'fly'

        Usage: thalweg <COMMAND>

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn missing_file_is_reported() {
    check(
        "",
        &["up", "--config", "other.toml"],
        expect![[r#"
        status 2
        other.toml: cannot read the file: No such file or directory (os error 2)
    "#]],
    );
    check(
        "",
        &[
            &["edge", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"][..],
            &["--backend", "http://127.0.0.1:1", "--geoip", "city.mmdb"],
        ]
        .concat(),
        expect![[r#"
            status 2
            --geoip: cannot read database city.mmdb: No such file or directory (os error 2)
        "#]],
    );
    check(
        "",
        &["log", "other.json"],
        expect![[r#"
        status 1
        thalweg: cannot read other.json: No such file or directory (os error 2)
    "#]],
    );
}

#[test]
fn source_without_media_is_reported() {
    let directory = Directory::new();
    directory
        .write("thalweg.toml", "[origin]\nlisten = '127.0.0.1:0'\n[[source]]\nchannel = 'a'\nmedia = '.'\n");
    directory.write("video.mp4", "\0\0\0\x20moov");
    let output = thalweg(&["up"]).current_dir(directory.path()).output().unwrap();
    let report =
        format!("status {}\n{}", output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap());
    expect![[r#"
        status 2
        thalweg.toml:5:9: media: ./video.mp4: offset 0: box 'moov': must follow an ftyp
    "#]]
    .assert_eq(&report);
}

#[test]
fn valid_file_passes_the_check() {
    check(
        "[edge]\nbackends = 'http://127.0.0.1:1'\n",
        &["check", "thalweg.toml"],
        expect![[r#"
        status 0
        thalweg.toml: no errors found
    "#]],
    );
}

#[test]
fn port_in_use_ends_the_program_before_any_role_starts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let run = |config: &str, args: &[&str]| {
        let directory = Directory::new();
        directory.write("thalweg.toml", &config.replace("PORT", &port.to_string()));
        let args: Vec<_> = args.iter().map(|arg| arg.replace("PORT", &port.to_string())).collect();
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let output = thalweg(&args).current_dir(directory.path()).output().unwrap();
        assert_eq!(output.stdout, b"");
        let report = String::from_utf8(output.stderr).unwrap().replace(&port.to_string(), "PORT");
        format!("status {}\n{report}", output.status.code().unwrap())
    };
    let free = "[origin]\nlisten = '127.0.0.1:0'\ningest = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n[edge]\nlisten = '127.0.0.1:0'\n";
    expect![[r#"
        status 2
        thalweg.toml:7:9: admin: cannot listen on 127.0.0.1:PORT: Address already in use (os error 98)
    "#]]
    .assert_eq(&run(&format!("{free}admin = '127.0.0.1:PORT'\n"), &["up"]));
    expect![[r#"
        status 2
        thalweg.toml:9:10: listen: cannot listen on 127.0.0.1:PORT: Address already in use (os error 98)
    "#]]
    .assert_eq(&run(&format!("{free}admin = '127.0.0.1:0'\n[console]\nlisten = '127.0.0.1:PORT'"), &["up"]));
    expect![[r#"
        status 2
        thalweg.toml:2:10: listen: cannot listen on 127.0.0.1:PORT: Address already in use (os error 98)
    "#]]
    .assert_eq(&run(
        "[origin]\nlisten = '127.0.0.1:PORT'\ningest = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n",
        &["up"],
    ));
    expect![[r#"
        status 2
        thalweg.toml:3:10: ingest: cannot listen on 127.0.0.1:PORT: Address already in use (os error 98)
    "#]]
    .assert_eq(&run(
        "[origin]\nlisten = '127.0.0.1:0'\ningest = '127.0.0.1:PORT'\nadmin = '127.0.0.1:0'\n",
        &["up"],
    ));
    let edge = ["edge", "--listen", "127.0.0.1:PORT", "--backend", "http://127.0.0.1:1"];
    expect![[r#"
        status 2
        --listen: cannot listen on 127.0.0.1:PORT: Address already in use (os error 98)
    "#]]
    .assert_eq(&run("", &edge));
}

#[test]
fn help_lists_commands_and_flags() {
    check(
        "",
        &["--help"],
        expect![[r#"
            status 0
            Streaming media along the fastest line the network has

            Usage: thalweg <COMMAND>

            Commands:
              up           Run all roles of a config file in one process
              edge         Run an edge: an HTTP cache that relays responses while they are still arriving
              origin       Run an origin: HLS and DASH, just in time, from CMAF files and from live ingest
              agent        Record every TCP socket as the kernel sees it, and the responses of edges
              source       Push a presentation to an origin as a live channel, in a loop and in real time
              check        Check config files, policies and bundles, or list all settings
              log          Follow the request log, with the kernel's view of each connection
              sockets      Show every TCP socket of this machine, with the kernel's view of its path
              purge        Purge URLs or tags from a running edge's cache
              ban          Ban the stored responses of a running edge that match an expression
              bans         List the bans of a running edge that still have responses to test
              policy       List, show, load, use or discard the policies of a running edge
              backends     List the backends of a running edge, or set the health of one
              schema       Create, compare or print the ClickHouse tables for telemetry
              consumer     Move telemetry from Kafka to ClickHouse, each record exactly once
              query        Query stored telemetry: predefined queries over five-minute windows of sockets and
                           responses
              controller   Decide which client networks get another congestion control, and measure whether it
                           helps
              routes       Steer servers other than Thalweg: apply a bundle's rules as kernel routes
              bundle       Convert a bundle's rules for a server other than Thalweg
              completions  Print a completion script for a shell
              help         Print this message or the help of the given subcommand(s)

            Options:
              -h, --help     Print help
              -V, --version  Print version

            Exit status: 0 success, 1 failure, 2 usage error.
            Messages are written to standard error. THALWEG_LOG=debug shows more of them,
            THALWEG_LOG=thalweg_edge=debug more from the edge alone.
        "#]],
    );
    let flags =
        ["--listen", "--backend", "--memory", "--admin", "--log", "--congestion-control", "--send-timeout"];
    let help = String::from_utf8(thalweg(&["edge", "--help"]).output().unwrap().stdout).unwrap();
    for flag in flags {
        assert!(help.contains(flag), "{flag} is not in\n{help}");
    }
}

#[test]
fn completions_are_printed_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = thalweg(&["completions", shell]).output().unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("congestion-control"), "{shell}: {script}");
    }
}

/// Where an argument is a path, Bash must complete the files and directories here; elsewhere, only
/// the listed words.
#[test]
fn bash_completes_paths_only_where_a_path_is_expected() {
    let directory = Directory::new();
    directory.write("live.vcl", "");
    std::fs::create_dir(directory.path().join("lib")).unwrap();
    directory.write(
        "thalweg.bash",
        &String::from_utf8(thalweg(&["completion", "bash"]).output().unwrap().stdout).unwrap(),
    );
    let offered = |words: &[&str]| {
        let script = r#"source thalweg.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            _thalweg thalweg "${@: -1}" "${@: -2:1}" 2>/dev/null; printf '%s\n' "${COMPREPLY[@]}" | sort | xargs"#;
        let mut bash = std::process::Command::new("bash");
        let output =
            bash.args(["-c", script, "bash"]).args(words).current_dir(directory.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    let check = |words: &[&str], expected: Expect| expected.assert_eq(&offered(words));
    check(&["thalweg", "edge", "--policy", "li"], expect!["lib live.vcl"]);
    for words in [
        &["check"][..],
        &["log"],
        &["check", "live.vcl"],
        &["policy", "load", "evening"],
        &["origin", "inspect"],
        &["routes", "apply"],
        &["bundle", "varnish"],
    ] {
        check(&[&["thalweg"], words, &[""]].concat(), expect!["lib live.vcl thalweg.bash"]);
    }
    check(&["thalweg", "check", "--s"], expect!["--settings"]);
    check(&["thalweg", "edge", "--surrogate-control", ""], expect!["off on"]);
    check(&["thalweg", "edge", "--abandoned-fills", "ha"], expect!["half"]);
    check(&["thalweg", "edge", "--grace", "l"], expect!["l"]);
    check(&["thalweg", "completions", "z"], expect!["zsh"]);
    check(&["thalweg", "backends", "a", "si"], expect!["sick"]);
}

/// Each file must be checked as the kind that its name or text indicates.
#[test]
fn several_files_are_checked() {
    let files =
        ["right.vcl", "wrong.vcl", "bundle", "policy.txt", "thalweg.toml", "nosuch.toml", "nosuch.vcl"];
    let directory = Directory::new();
    directory.write("right.vcl", "vcl 4.1; backend b none;");
    directory.write("wrong.vcl", "vcl 4.1; backend b none; sub vcl_fetch { }");
    directory.write("bundle", "\n{}");
    directory.write("policy.txt", "vcl 4.1; backend b none;");
    directory.write("thalweg.toml", "[edge]\nlistn = ''\n");
    let output = thalweg(&[&["check"], &files[..]].concat()).current_dir(directory.path()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    expect![[r#"
        status 1
        right.vcl: no errors found
        policy.txt: no errors found
        error: unknown subroutine vcl_fetch
         --> wrong.vcl:1:30
          |
        1 | vcl 4.1; backend b none; sub vcl_fetch { }
          |                              ^^^^^^^^^
          = use vcl_backend_response, with bereq in place of req
        bundle:2:2: missing field `experiments`
        thalweg.toml:2:1: unknown key "listn" in [edge]; did you mean "listen"?
        thalweg: cannot read nosuch.toml: No such file or directory (os error 2)
        thalweg: cannot read nosuch.vcl: No such file or directory (os error 2)
    "#]]
    .assert_eq(&format!("status {}\n{out}{err}", output.status.code().unwrap()));
}

/// Piped configs and bundles must be checked although a pipe can be read only once.
#[test]
fn piped_input_is_checked() {
    for (text, expected) in [
        ("[edge]\nbackends = 'http://127.0.0.1:1'\n", "/dev/stdin: no errors found\n"),
        (
            "[edge]\nlistn = ''\n",
            "/dev/stdin:2:1: unknown key \"listn\" in [edge]; did you mean \"listen\"?\n",
        ),
        ("{}", "/dev/stdin:1:2: missing field `experiments`\n"),
    ] {
        let mut command = thalweg(&["check", "/dev/stdin"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let report = [output.stdout, output.stderr].map(|report| String::from_utf8(report).unwrap()).concat();
        assert_eq!(report, expected);
    }
}

#[test]
fn bundle_is_checked() {
    let directory = Directory::new();
    let check = |name: &str, document: &str, expected: Expect| {
        directory.write(name, document);
        let output = thalweg(&["check", name]).current_dir(directory.path()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(output.stdout), text(output.stderr));
        expected.assert_eq(&format!("status {}\n{out}{err}", output.status.code().unwrap()));
    };
    check(
        "broken.json",
        "{\n  \"format\": 1,\n}",
        expect![[r#"
        status 1
        broken.json:3:1: trailing comma
    "#]],
    );
    let document = |checksum: &str| {
        format!(
            r#"{{"format": 4, "number": 1, "made_at": "2026-11-20T23:00:00Z", "reason": "by hand", "checksum": "{checksum}",
                 "rules": [{{"prefix": "203.0.113.0/24", "congestion_control": "bbr", "holdout": 0.1, "reason": ""}}],
                 "experiments": []}}"#
        )
    };
    let wrong = document("sha256:").replace("203.0.113.0/24", "203.0.113.1/24").replace(": 0.1", ": 2");
    check(
        "wrong.json",
        &wrong,
        expect![[r#"
            status 1
            wrong.json: /checksum: does not match the content, expected sha256:60ef390cdb9f406bce5556d5b0a012b85a544b9322b39bbb9aee1f90b637e6d5
            wrong.json: /rules/0/prefix: bits after the prefix are set: write 203.0.113.0/24
            wrong.json: /rules/0/holdout: must be from 0 to 1 with at most six decimals
        "#]],
    );
    check(
        "unsealed.json",
        &document(""),
        expect![[r#"
            status 1
            unsealed.json: /checksum: does not match the content, expected sha256:75bbe4d759f175299392e0979547a583d2402044141318a6c741a861b1e973d6
        "#]],
    );
    check(
        "right.json",
        &document("sha256:75bbe4d759f175299392e0979547a583d2402044141318a6c741a861b1e973d6"),
        expect![[r#"
            status 0
            right.json: no errors found: bundle 1, rules: 1, experiments: 0
        "#]],
    );
}

#[test]
fn algorithm_missing_in_the_kernel_is_a_warning() {
    let directory = Directory::new();
    let check = |checksum: &str| {
        let document = format!(
            r#"{{"format": 4, "number": 1, "made_at": "2026-11-20T23:00:00Z", "reason": "by hand", "checksum": "{checksum}",
                 "rules": [{{"prefix": "203.0.113.0/24", "congestion_control": "cubic", "holdout": 0.1, "reason": ""}}],
                 "experiments": [{{"name": "live", "hosts": ["live.example"], "salt": "a", "unit": "client", "arms": [
                    {{"name": "as-is", "share": 0.5}}, {{"name": "new", "share": 0.5, "congestion_control": "nosuch"}}]}}]}}"#
        );
        directory.write("a.json", &document);
        let output = thalweg(&["check", "a.json"]).current_dir(directory.path()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (_, _, error) = check("");
    let (status, out, error) = check(error.trim_end().rsplit_once(' ').unwrap().1);
    assert_eq!(
        (status, &*out),
        (Some(0), "a.json: no errors found: bundle 1, rules: 1, experiments: 1\n"),
        "{error}"
    );
    let warning = "a.json: warning: arm live/new: this kernel has no congestion control \"nosuch\"; it has ";
    assert!(error.starts_with(warning) && error.lines().count() == 1, "{error}");
}
