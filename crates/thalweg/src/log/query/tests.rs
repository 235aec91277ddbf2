//! What holds for which record, what each fault says, and that the fields are those of the JSON line.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use thalweg_record::{Cmcd, Cut, Decider, LineTag, Lines, ResponseRecord, Steered, StreamType, TcpState};

use super::fields::FIELDS;
use super::*;

fn record() -> Value {
    let mut lines = Lines::default();
    lines.push(LineTag::Log, "tcpi: snd_mss=1448 rcv_mss=536 lost=0 retrans=0".to_owned());
    lines.push(LineTag::Log, "getsockopt() returned: bbr".to_owned());
    lines.push(LineTag::FetchError, "no route".to_owned());
    lines.push(LineTag::Error, "no such \"thing\"".to_owned());
    let record = ResponseRecord {
        host: "media.example".to_owned(),
        path: "/vod/a/1.m4s".to_owned(),
        bytes: 1_258_291,
        ttfb_us: Some(850),
        duration_us: 2_000_000,
        detail: Some("pass".into()),
        backend: Some("east".to_owned()),
        cut: Some(Cut::ClientStalled),
        tcp: Some(TcpState {
            congestion_control: "bbr".to_owned(),
            congestion_control_start: Some("cubic".to_owned()),
            decider: Some(Decider::Policy),
            rtt_us: 120_000,
            min_rtt_us: Some(80_000),
            snd_cwnd: 10,
            delivery_rate_bytes_per_s: Some(1_000_000),
            retransmits: 2,
            lost: 0,
            pacing_rate_bytes_per_s: Some(1_250_000),
        }),
        steered: Some(Steered {
            bundle: 42,
            rule: Some("203.0.113.0/24".to_owned()),
            is_holdout: true,
            experiment: Some("live-bbr".to_owned()),
            arm: Some("as-is".to_owned()),
            refused: Some("not there".to_owned()),
        }),
        cmcd: Some(Cmcd {
            sid: Some("6e2f".to_owned()),
            st: Some(StreamType::Live),
            br_kbps: Some(3200),
            bl_ms: Some(300),
            mtp_kbps: Some(1400),
            bs: true,
        }),
        xid: Some(7),
        restarts: 1,
        lines,
        ..ResponseRecord::new(1_795_215_600_123_456, "127.0.0.1:50000".parse().unwrap())
    };
    serde_json::from_str(&record.to_json()).unwrap()
}

/// A record without what may be absent.
fn bare() -> Value {
    let mut bare = record();
    let fields = bare.as_object_mut().unwrap();
    for name in ["ttfb_us", "cut", "tcp", "steered", "lines", "detail", "backend", "xid", "restarts"] {
        fields.remove(name);
    }
    fields.insert("complete".to_owned(), true.into());
    bare
}

/// Each of these holds for the record, and its negation does not.
fn hold(record: &Value, expressions: &[&str]) {
    for text in expressions {
        let holds = |text: &str| Query::parse(text).unwrap_or_else(|error| panic!("{error}")).holds(record);
        assert!(holds(text), "{text}");
        assert!(!holds(&format!("not ({text})")), "not ({text})");
    }
}

#[test]
fn what_holds() {
    hold(
        &record(),
        &[
            r#"tcpi.rtt > 100ms and path ~ ".m4s$""#,
            "tcpi.rtt == 120ms",
            "tcp.rtt == 0.12s",
            "tcp.rtt_us == 120000",
            "tcp.rtt_us < 1min",
            "tcpi.rtt != 120us",
            "ttfb <= 850us and ttfb >= 0.85ms",
            "bytes > 1MiB and bytes < 1.26MB and bytes == 1258291",
            "tcp.delivery_rate == 8Mbit/s and tcp.delivery_rate >= 1MB/s",
            "tcp.pacing_rate_bytes_per_s == 1250000",
            "tcp.lost == 0 and tcp.retransmits > 1 and tcp.snd_cwnd >= 10",
            "tcp.decider == policy and tcp.congestion_control_start != bbr",
            r#"method == GET and host == "media.example" and client ~ "^127\.""#,
            "detail == pass and backend == east and xid == 7 and restarts > 0 and steered.refused ~ there",
            "cmcd.bs and cmcd.bl_ms < 1000 and cmcd.st == l and cmcd.br_kbps > 1400 and cmcd.sid ~ ^6e",
            "cache == hit and protocol == HTTP/1.1",
            "cut == client_stalled and cut",
            "complete == false and not complete and complete != true",
            r#"time >= "2026-11-20T23:00" and time < "2026-11-21" and time ~ "T23:""#,
            "time > 22:59 and time > 2026-11-20T23:00:00Z and time >= 2026-11-20T23:00:00.123 and time < 23:00:00.5",
            "time < 2026-11-20T23:30:00.2+00:30 and time == 2026-11-21T00:30:00.123+01:30 and time != 2026-11-20T23:00",
            r#"time > "23:00" and time < "2026-11-20 23:01""#,
            r#"vcl_log ~ "returned: bbr$""#,
            r#"vcl_log ~ "^tcpi: .*lost=0""#,
            r#"vcl_log !~ "thing" and vcl_error ~ "thing" and lines ~ "thing""#,
            r#"vcl_error == "no such \"thing\"""#,
            "vcl_log and not timestamp and not vcl_acl",
            "status >= 500 or status == 200 and bytes > 0",
            "(status >= 500 or status == 200) and bytes > 0",
            "not not not status == 404",
            "path~4s and status>199",
            "tcp and tcpi and steered and FetchError and VCL_Log ~ bbr and FetchError == \"no route\"",
            "CC == bbr and RTT == 120ms and MIN == 80ms and CWND == 10 and DELIVERY == 8Mbit/s and RETR == 2 and ST == 200",
            "CONTENT == 1258291 and TOTAL == 2s and GOODPUT < 8Mbit/s and LOST == 0 and CACHE == hit",
            "steered.holdout and steered.bundle == 42 and steered.arm == as-is and steered.rule ~ /24",
        ],
    );
}

#[test]
fn a_duration_ago_is_counted_from_when_the_expression_is_read() {
    let now = std::time::UNIX_EPOCH + std::time::Duration::from_micros(1_795_215_600_123_456 + 600_000_000);
    let holds = |text| Query(parse::parse(text, now).unwrap()).holds(&record());
    assert!(holds("time > 11min ago and time < 9.5min ago"));
    assert!(!holds("time > 9min ago") && !holds("time < 0.2h ago"));
}

#[test]
fn what_is_absent_is_unequal_and_without_order() {
    hold(
        &bare(),
        &[
            "not ttfb and not cut and not tcp and not tcp.decider and not steered and not lines and not fetcherror",
            "ttfb != 850us and not ttfb == 850us and not ttfb < 1h and not ttfb >= 0",
            r#"cut != client_stalled and not cut ~ "." and cut !~ ".""#,
            r#"vcl_log != "" and vcl_log !~ "." and not vcl_log ~ """#,
            "complete",
        ],
    );
}

#[test]
fn every_tag_and_column_of_a_printed_record_can_be_named() {
    let tags = LineTag::ALL.iter().map(|tag| tag.as_str());
    let header =
        thalweg_record::human_header().replace("TIME (UTC)", "TIME").replace("REQUEST", "METHOD HOST PATH");
    for name in tags.chain(header.split_whitespace()) {
        Query::parse(name).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn every_field_of_the_json_line_can_be_named() {
    fn leaves(value: &Value, path: &str, into: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (name, value) in object {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    leaves(value, &path, into);
                }
            }
            _ => into.push(path.to_owned()),
        }
    }
    // What is not itself a leaf of the line.
    let is_derived = |kind| matches!(kind, Kind::Parts | Kind::Lines(Some(_)));
    let mut record = record();
    record.as_object_mut().unwrap().insert("lines_lost".to_owned(), 3.into());
    let mut named = Vec::new();
    leaves(&record, "", &mut named);
    named.sort_unstable();
    let mut known: Vec<_> = FIELDS.iter().filter(|field| !field.values(&record).is_empty()).collect();
    known.sort_unstable_by_key(|field| field.name);
    let known: Vec<_> =
        known.iter().filter(|field| !is_derived(field.kind)).map(|field| field.name).collect();
    assert_eq!(known, named);
}

#[test]
fn faults_teach() {
    let told = |text: &str| Query::parse(text).map(|_| ()).unwrap_err().to_string();
    // All fields stand at the end where one was expected; the first case has them.
    let check = |text: &str, expected: Expect| {
        let told = told(text);
        let fault = told.split_once("fields:").map_or(&*told, |(fault, _)| fault);
        expected.assert_eq(fault.trim_end());
    };
    expect![[r#"
        no field is named tcpi.rt; did you mean tcpi.rtt?
          tcpi.rt > 100ms
          ^^^^^^^
        fields:
          time client method host path status bytes ttfb duration goodput cache detail backend protocol
          complete cut tcp tcp.congestion_control tcp.congestion_control_start tcp.decider tcp.rtt
          tcp.min_rtt tcp.snd_cwnd tcp.delivery_rate tcp.retransmits tcp.lost tcp.pacing_rate steered
          steered.bundle steered.rule steered.holdout steered.experiment steered.arm steered.refused
          cmcd cmcd.sid cmcd.st cmcd.br_kbps cmcd.bl_ms cmcd.mtp_kbps cmcd.bs xid restarts lines vcl_log
          vcl_error vcl_acl timestamp fetcherror lines_lost v"#]]
    .assert_eq(&told("tcpi.rt > 100ms"));
    check(
        "tcpi.rt > 100ms and path ~ \".m4s$\"",
        expect![[r#"
            no field is named tcpi.rt; did you mean tcpi.rtt?
              tcpi.rt > 100ms and path ~ ".m4s$"
              ^^^^^^^"#]],
    );
    check(
        "steered == 3",
        expect![[r#"
            steered has parts; alone it asks whether a record has it
              steered == 3
              ^^^^^^^"#]],
    );
    check(
        "FetchEror ~ refused",
        expect![[r#"
            no field is named FetchEror; did you mean fetcherror?
              FetchEror ~ refused
              ^^^^^^^^^"#]],
    );
    check(
        "status == 200 and colour",
        expect![[r#"
            no field is named colour
              status == 200 and colour
                                ^^^^^^"#]],
    );
    check(
        "",
        expect![[r#"
            a field is expected here

              ^"#]],
    );
    check(
        "status == 200 and",
        expect![[r#"
            a field is expected here
              status == 200 and
                               ^"#]],
    );
    check(
        "status == 200 && bytes > 1",
        expect![[r#"
        write: and
          status == 200 && bytes > 1
                        ^^"#]],
    );
    check(
        "status = 200",
        expect![[r#"
        equality is written ==
          status = 200
                 ^"#]],
    );
    check(
        "path ~ 'a'",
        expect![[r#"
        text stands in double quotes
          path ~ 'a'
                 ^"#]],
    );
    check(
        "! complete",
        expect![[r#"
        negation is written: not
          ! complete
          ^"#]],
    );
    check(
        "path > \"a\"",
        expect![[r#"
        path is compared by == != ~ !~
          path > "a"
               ^"#]],
    );
    check(
        "status ~ \"^4\"",
        expect![[r#"
        status is compared by == != < <= > >=
          status ~ "^4"
                 ^"#]],
    );
    check(
        "tcp.rtt > 100",
        expect![[r#"
        100 needs a unit: us, ms, s, min, h
          tcp.rtt > 100
                    ^^^"#]],
    );
    check(
        "tcp.rtt > 100 ms",
        expect![[r#"
        100 needs a unit: us, ms, s, min, h
          tcp.rtt > 100 ms
                    ^^^"#]],
    );
    check(
        "tcp.rtt > 100MB",
        expect![[r#"
        tcp.rtt has no unit "MB": us, ms, s, min, h
          tcp.rtt > 100MB
                    ^^^^^"#]],
    );
    check(
        "tcp.rtt > \"100ms\"",
        expect![[r#"
        tcp.rtt is a number: write it without quotes
          tcp.rtt > "100ms"
                    ^^^^^^^"#]],
    );
    check(
        "tcp.rtt > fast",
        expect![[r#"
        tcp.rtt is compared with a duration such as 100ms
          tcp.rtt > fast
                    ^^^^"#]],
    );
    check(
        "tcp.rtt >",
        expect![[r#"
        tcp.rtt is compared with a duration such as 100ms
          tcp.rtt >
                   ^"#]],
    );
    check(
        "cache == warm",
        expect![[r#"
            cache is one of hit, join, miss, validated, stale, pass, purge, synth, pipe, error
              cache == warm
                       ^^^^"#]],
    );
    check(
        "complete == yes",
        expect![[r#"
        complete is true or false
          complete == yes
                      ^^^"#]],
    );
    check(
        "path ~ s=42 and status == 200",
        expect![[r#"
        write it in quotes: "s=42"
          path ~ s=42 and status == 200
                 ^^^^"#]],
    );
    check(
        "status == 5xx",
        expect![[r#"
            status is compared with a number such as 404; a range is two tests: status >= 500 and status < 600
              status == 5xx
                        ^^^"#]],
    );
    for (elsewhere, here) in [("RespStatus", "status"), ("tcpi_rtt", "tcp.rtt"), ("ReqURL", "path")] {
        let error = Query::parse(&format!("{elsewhere} > 1")).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("no field is named {elsewhere}; did you mean {here}?\n")),
            "{error}"
        );
    }
    check(
        "time > 1640",
        expect![[r#"
        time is compared with a time: 2026-11-20, 2026-11-20T23:00, 2026-11-20T23:00:05.5Z, 23:00 or 23:00:05 of any day, all in UTC, or 10min ago
          time > 1640
                 ^^^^"#]],
    );
    check(
        "time > soon",
        expect![[r#"
        time is compared with a time: 2026-11-20, 2026-11-20T23:00, 2026-11-20T23:00:05.5Z, 23:00 or 23:00:05 of any day, all in UTC, or 10min ago
          time > soon
                 ^^^^"#]],
    );
    check(
        "time >",
        expect![[r#"
        time is compared with a time: 2026-11-20, 2026-11-20T23:00, 2026-11-20T23:00:05.5Z, 23:00 or 23:00:05 of any day, all in UTC, or 10min ago
          time >
                ^"#]],
    );
    check(
        "time > 10parsecs ago",
        expect![[r#"
        time is compared with a time: 2026-11-20, 2026-11-20T23:00, 2026-11-20T23:00:05.5Z, 23:00 or 23:00:05 of any day, all in UTC, or 10min ago
          time > 10parsecs ago
                 ^^^^^^^^^"#]],
    );
    check(
        "status > 10min ago",
        expect![[r#"
            status is compared with a number such as 404; a range is two tests: status >= 500 and status < 600
              status > 10min ago
                       ^^^^^"#]],
    );
    check(
        "path ~ \"(\"",
        expect![[r#"
        unclosed group
          path ~ "("
                 ^^^"#]],
    );
    check(
        "path ~ \"é\" and path == \"a",
        expect![[r#"
        this quote does not end
          path ~ "é" and path == "a
                                 ^^"#]],
    );
    check(
        "(status == 200",
        expect![[r#"
        this parenthesis is not closed
          (status == 200
          ^"#]],
    );
    check(
        "status == 200)",
        expect![[r#"
        this parenthesis was not opened
          status == 200)
                       ^"#]],
    );
    check(
        "status == 200 status == 404",
        expect![[r#"
        and, or, or the end is expected here
          status == 200 status == 404
                        ^^^^^^"#]],
    );
    let deep = "(".repeat(NESTING_MAX + 1);
    assert!(Query::parse(&deep).unwrap_err().to_string().starts_with("this is nested too deep\n"));
    let long = " ".repeat(EXPRESSION_BYTES_MAX + 1);
    assert!(Query::parse(&long).unwrap_err().to_string().starts_with("an expression has at most 4096 bytes"));
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,60}") {
        if let Ok(query) = Query::parse(&text) {
            query.holds(&record());
        }
    }

    #[test]
    fn no_sequence_of_tokens_panics(tokens in proptest::collection::vec(
        proptest::sample::select(vec![
            "(", ")", "and", "or", "not", "==", "!=", "<", ">=", "~", "!~", "path", "tcpi.rtt", "bytes", "complete",
            "cut", "vcl_log", "100ms", "1.5.2", "1e400", "\"a\"", "\"(\"", "\"", "\\", "true", "é", "9MB/s",
        ]),
        0..12,
    )) {
        if let Ok(query) = Query::parse(&tokens.join(" ")) {
            query.holds(&record());
            query.holds(&bare());
        }
    }
}
