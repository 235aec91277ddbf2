//! The program as its user sees it: what it prints, where, and its exit status.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod program;

use std::io::Write;
use std::process::Stdio;

use expect_test::{Expect, expect};

use program::{Directory, thalweg};

/// Runs the program in a directory that holds `thalweg.toml`, and shows status, standard output and standard
/// error.
fn check(config: &str, args: &[&str], expected: Expect) {
    let directory = Directory::new();
    directory.write("thalweg.toml", config);
    let output = thalweg(args).current_dir(directory.path()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    let said = format!("status {}\n{out}{err}", output.status.code().unwrap());
    expected.assert_eq(&said.replace(&directory.path().display().to_string(), "DIR"));
}

#[test]
fn a_property_of_kafka_that_does_not_exist_or_is_not_to_be_set() {
    let consumer =
        ["consumer", "--kafka", "127.0.0.1:1", "--clickhouse", "http://127.0.0.1:1/", "--kafka-set"];
    check(
        "",
        &[&consumer[..], &["foo=bar"]].concat(),
        expect![[r#"
        status 2
        --kafka-set: cannot read Kafka at 127.0.0.1:1: Client config error: No such configuration property: "foo" foo bar
    "#]],
    );
    check(
        "",
        &[&consumer[..], &["acks=1"]].concat(),
        expect![[r#"
        status 2
        --kafka-set: acks is not to be set: that records are kept once rests on it
    "#]],
    );
}

#[test]
fn bundles_over_kafka_that_nobody_would_get() {
    check(
        "",
        &["agent", "--kafka-bundles", "thalweg.telemetry"],
        expect![[r#"
        status 2
        --kafka-bundles: set kafka, where the topic is
        --kafka-bundles: set pop, whose bundles they are
        --kafka-bundles: set bundle_file, where they go
        --kafka-bundles: set edges, which take them
        --kafka-bundles: the topic of records: name another
    "#]],
    );
    check(
        "",
        &["agent", "--bundle-file", "b.json"],
        expect![[r#"
        status 2
        --bundle-file: kafka_bundles says what comes there
    "#]],
    );
    let topics = ["--kafka", "127.0.0.1:1", "--kafka-topic", "a", "--kafka-bundles", "a"];
    check(
        "",
        &[&["controller", "run"][..], &topics].concat(),
        expect![[r#"
        status 2
        --kafka-bundles: the topic of records: name another
    "#]],
    );
    // One that cannot begin for another reason tells that.
    let directory = Directory::new();
    let agent = "agent --spool spool=64MiB --kafka 127.0.0.1:1 --kafka-bundles a --pop p --bundle-file b.json --edge 127.0.0.1:1 \
                 --sqlite there/is/none";
    let agent: Vec<_> = agent.split_whitespace().collect();
    let output = thalweg(&agent).current_dir(directory.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let why = "--sqlite: cannot open there/is/none: No such file or directory (os error 2)";
    assert!(said.lines().any(|line| line == why), "{said}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn an_unknown_key() {
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
fn a_wrong_flag_or_value() {
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
            the edge has no backend: give --backend http://HOST:PORT, or a --policy that has one
        "#]],
    );
    check(
        "",
        &["edge", "--backend", "http://127.0.0.1:1", "--backend", "ftp://b"],
        expect![[r#"
        status 2
        --backend: "ftp://b": a backend is http://HOST[:PORT]
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
        error: invalid value 'http://127.0.0.1:1' for '--to <http://HOST:PORT/ingest/CHANNEL>': "http://127.0.0.1:1" names no publishing point: write a publishing point such as "http://127.0.0.1:8081/ingest/CHANNEL"

        For more information, try '--help'.
    "#]],
    );
    check(
        "",
        &["source", "--media", ".", "--to", "http://127.0.0.1:1/ingest/a"],
        expect![[r#"
            status 2
            --media: no track in .: a track is a file ending in .mp4, .m4v, .m4a, .m4s, .cmfv, .cmfa or .cmft
        "#]],
    );
    check(
        "",
        &["ban", "req.url = /a"],
        expect![[r#"
        status 2
        error: invalid value 'req.url = /a' for '<EXPRESSION>': column 9: "=" is no operator of req.url; it takes == != ~ !~

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
fn a_file_that_is_not_there() {
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
            --geoip: cannot read the database city.mmdb: No such file or directory (os error 2)
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
fn a_source_that_is_no_media() {
    let directory = Directory::new();
    directory
        .write("thalweg.toml", "[origin]\nlisten = '127.0.0.1:0'\n[[source]]\nchannel = 'a'\nmedia = '.'\n");
    directory.write("video.mp4", "\0\0\0\x20moov");
    let output = thalweg(&["up"]).current_dir(directory.path()).output().unwrap();
    let said =
        format!("status {}\n{}", output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap());
    expect![[r#"
        status 2
        thalweg.toml:5:9: media: ./video.mp4: offset 0: box 'moov': no ftyp before it
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_right_file() {
    check(
        "[edge]\nbackends = 'http://127.0.0.1:1'\n",
        &["check", "thalweg.toml"],
        expect![[r#"
        status 0
        thalweg.toml: no fault found
    "#]],
    );
}

#[test]
fn a_port_in_use_ends_it_before_anything_begins() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let run = |config: &str, args: &[&str]| {
        let directory = Directory::new();
        directory.write("thalweg.toml", &config.replace("PORT", &port.to_string()));
        let args: Vec<_> = args.iter().map(|arg| arg.replace("PORT", &port.to_string())).collect();
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let output = thalweg(&args).current_dir(directory.path()).output().unwrap();
        assert_eq!(output.stdout, b"");
        let said = String::from_utf8(output.stderr).unwrap().replace(&port.to_string(), "PORT");
        format!("status {}\n{said}", output.status.code().unwrap())
    };
    let free = "[origin]\nlisten = '127.0.0.1:0'\n[edge]\nlisten = '127.0.0.1:0'\n";
    expect![[r#"
        status 2
        thalweg.toml:5:9: admin: cannot listen on 127.0.0.1:PORT: Address already in use (os error 98)
    "#]]
    .assert_eq(&run(&format!("{free}admin = '127.0.0.1:PORT'\n"), &["up"]));
    expect![[r#"
        status 2
        thalweg.toml:7:10: listen: cannot listen on 127.0.0.1:PORT: Address already in use (os error 98)
    "#]]
    .assert_eq(&run(&format!("{free}admin = '127.0.0.1:0'\n[console]\nlisten = '127.0.0.1:PORT'"), &["up"]));
    expect![[r#"
        status 2
        thalweg.toml:2:10: listen: cannot listen on 127.0.0.1:PORT: Address already in use (os error 98)
    "#]]
    .assert_eq(&run("[origin]\nlisten = '127.0.0.1:PORT'\n", &["up"]));
    let edge = ["edge", "--listen", "127.0.0.1:PORT", "--backend", "http://127.0.0.1:1"];
    expect![[r#"
        status 2
        --listen: cannot listen on 127.0.0.1:PORT: Address already in use (os error 98)
    "#]]
    .assert_eq(&run("", &edge));
}

#[test]
fn help_teaches() {
    check(
        "",
        &["--help"],
        expect![[r#"
            status 0
            Streaming media along the fastest line the network has

            Usage: thalweg <COMMAND>

            Commands:
              up           Run every role that a config file names, in one process
              edge         Run an edge: an HTTP cache that relays a response to everyone while it is still
                           arriving
              origin       Run an origin: HLS and DASH, just in time, from CMAF files and from live ingest
              agent        Record what the kernel says of every TCP socket, beside any server, and the responses
                           of edges
              source       Push a presentation to an origin as a live channel: in a loop, in real time
              check        Check config files, policies and bundles, or print what can be set
              log          Follow the request log, with what the kernel said of each connection
              sockets      Show every TCP socket of this machine, with what the kernel knows of its path
              purge        Take URLs or tags out of a running edge's cache
              ban          Take out of a running edge's cache all that an expression holds for
              bans         List the bans that a running edge has not tested everything against yet
              policy       List, show, load, use or discard the policies of a running edge
              backends     List the backends of a running edge, or take one out or in
              schema       Make, compare or print the tables that telemetry has in ClickHouse
              consumer     Bring telemetry from Kafka to ClickHouse, each record once
              query        Ask what has been kept of sockets and responses: ready queries over windows of five
                           minutes
              controller   Decide which client networks get another congestion control, and whether that has
                           helped them
              routes       Steer servers that are not Thalweg: a bundle's rules as kernel routes with a
                           congestion control
              bundle       Write a bundle's rules for a server that is not Thalweg
              completions  Print a completion script for a shell
              help         Print this message or the help of the given subcommand(s)

            Options:
              -h, --help     Print help
              -V, --version  Print version

            Exit status: 0 done, 1 failed, 2 wrong use.
            Messages go to standard error; THALWEG_LOG=debug shows more of them,
            THALWEG_LOG=thalweg_edge=debug those of one part.
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
fn completions_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let output = thalweg(&["completions", shell]).output().unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("congestion-control"), "{shell}: {script}");
    }
}

/// What bash offers for the last of `words`, in a directory with a file and a directory.
#[test]
fn bash_completes_files_as_files_and_words_as_words() {
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

/// Of several files each is checked, as what its name or its text says that it is.
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
        right.vcl: no error found
        policy.txt: no error found
        error: there is no vcl_fetch
         --> wrong.vcl:1:30
          |
        1 | vcl 4.1; backend b none; sub vcl_fetch { }
          |                              ^^^^^^^^^
          = it is vcl_backend_response, and in it req is bereq
        bundle:2:2: missing field `experiments`
        thalweg.toml:2:1: unknown key "listn" in [edge]; did you mean "listen"?
        thalweg: nosuch.toml: No such file or directory (os error 2)
        thalweg: nosuch.vcl: No such file or directory (os error 2)
    "#]]
    .assert_eq(&format!("status {}\n{out}{err}", output.status.code().unwrap()));
}

/// What is piped in can be read once alone.
#[test]
fn what_is_piped_in_is_checked() {
    for (text, expected) in [
        ("[edge]\nbackends = 'http://127.0.0.1:1'\n", "/dev/stdin: no fault found\n"),
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
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
        assert_eq!(said, expected);
    }
}

#[test]
fn a_bundle_is_checked() {
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
            r#"{{"format": 3, "number": 1, "made_at": "2026-11-20T23:00:00Z", "reason": "by hand", "checksum": "{checksum}",
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
            wrong.json: /checksum: not that of the content, which is sha256:7826149040fae1d9704f4c34c68cadc91772a43070ac9e413f67567e3bbb1d61
            wrong.json: /rules/0/prefix: bits after the prefix are set: write 203.0.113.0/24
            wrong.json: /rules/0/holdout: not a share: 0 to 1, with at most six decimals
        "#]],
    );
    check(
        "unsealed.json",
        &document(""),
        expect![[r#"
            status 1
            unsealed.json: /checksum: not that of the content, which is sha256:86ef2ccc3fa308e9aca3a7fa9c6e3e89eccabeb76306efffe34819defb4bade7
        "#]],
    );
    check(
        "right.json",
        &document("sha256:86ef2ccc3fa308e9aca3a7fa9c6e3e89eccabeb76306efffe34819defb4bade7"),
        expect![[r#"
            status 0
            right.json: no fault found: bundle 1, rules: 1, experiments: 0
        "#]],
    );
}

#[test]
fn a_bundle_that_asks_for_what_the_kernel_lacks_is_a_warning() {
    let directory = Directory::new();
    let check = |checksum: &str| {
        let document = format!(
            r#"{{"format": 3, "number": 1, "made_at": "2026-11-20T23:00:00Z", "reason": "by hand", "checksum": "{checksum}",
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
        (Some(0), "a.json: no fault found: bundle 1, rules: 1, experiments: 1\n"),
        "{error}"
    );
    let warning = "a.json: warning: arm live/new: this kernel has no congestion control \"nosuch\"; it has ";
    assert!(error.starts_with(warning) && error.lines().count() == 1, "{error}");
}
