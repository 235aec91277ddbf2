//! Expression tests: records that match, faults that are reported, and a name for every JSON field.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use thalweg_record::{
    Cmcd, Cut, Decider, Delivery, LineTag, Lines, ResponseRecord, Steered, StreamType, TcpState,
};

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
        written_us: 2_000_000,
        delivery: Some(Delivery {
            testable_bytes_per_s: Some(9_000_000),
            reached_hd: Some(true),
            is_source_limited: true,
            ..Delivery::complete(1_258_291, 2_000_000)
        }),
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
            pacing_rate_bytes_per_s: Some(1_250_000),
            delivery_rate_app_limited: Some(true),
            ..TcpState::default()
        }),
        steered: Some(Steered {
            bundle: 42,
            rule: Some("203.0.113.0/24".to_owned()),
            is_holdout: true,
            experiment: Some("live-bbr".to_owned()),
            arm: Some("as-is".to_owned()),
            refused: Some("not there".to_owned()),
            draw_period: None,
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

/// Returns a record without optional fields.
fn bare() -> Value {
    let mut bare = record();
    let fields = bare.as_object_mut().unwrap();
    for name in [
        "ttfb_us",
        "cut",
        "tcp",
        "delivery",
        "goodput_bytes_per_s",
        "steered",
        "lines",
        "detail",
        "backend",
        "xid",
        "restarts",
    ] {
        fields.remove(name);
    }
    fields.insert("complete".to_owned(), true.into());
    bare
}

/// Checks that each expression matches the record and that its negation does not.
fn hold(record: &Value, expressions: &[&str]) {
    for text in expressions {
        let query = |text: &str| Query::parse(text).unwrap_or_else(|error| panic!("{error}"));
        let holds = |text: &str| query(text).holds(record).unwrap();
        assert!(holds(text), "{text}");
        assert!(!holds(&format!("not ({text})")), "not ({text})");
    }
}

#[test]
fn expressions_match() {
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
            "!(status >= 500 && bytes > 0) || path == x && !complete",
            "path ~ ^/(vod|live)/ && bytes > 1 MiB && time > 22:59",
            "tcp and tcpi and steered and FetchError and VCL_Log ~ bbr and FetchError == \"no route\"",
            "CC == bbr and RTT == 120ms and MIN == 80ms and CWND == 10 and DELIVERY == 8Mbit/s and RETR == 2 and ST == 200",
            "CONTENT == 1258291 and WRITTEN == 2s and GOODPUT < 8Mbit/s and LOST == 0 and CACHE == hit",
            "steered.holdout and steered.bundle == 42 and steered.arm == as-is and steered.rule ~ /24",
        ],
    );
}

#[test]
fn ago_is_relative_to_the_time_of_parsing() {
    let now_us = 1_795_215_600_123_456 + 600_000_000;
    let holds = |text| Query::parse_at(text, now_us).unwrap().holds(&record()).unwrap();
    assert!(holds("time > 11min ago and time < 9.5min ago"));
    assert!(!holds("time > 9min ago") && !holds("time < 0.2h ago"));
}

#[test]
fn absent_field_is_unequal_and_unordered() {
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
fn every_printed_tag_and_column_has_a_name() {
    let tags = LineTag::ALL.iter().map(|tag| tag.as_str());
    let header =
        thalweg_record::human_header().replace("TIME (UTC)", "TIME").replace("REQUEST", "METHOD HOST PATH");
    for name in tags.chain(header.split_whitespace()) {
        Query::parse(name).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn every_json_field_has_a_name() {
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
    // These fields are not leaves of the JSON line.
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
fn faults_report_what_is_allowed() {
    let check = |text: &str, expected: Expect| {
        expected.assert_eq(&Query::parse(text).map(|_| ()).unwrap_err());
    };
    check(
        "tcpi.rt > 100ms and FetchEror ~ refused",
        expect![[r#"
        unknown field tcpi.rt; did you mean tcpi.rtt?
          tcpi.rt > 100ms and FetchEror ~ refused
          ^^^^^^^
        unknown field FetchEror; did you mean fetcherror?
          tcpi.rt > 100ms and FetchEror ~ refused
                              ^^^^^^^^^"#]],
    );
    check(
        "steered == 3",
        expect![[r#"
        steered does not support ==; use it alone, to test whether any part is present
          steered == 3
                  ^^"#]],
    );
    check(
        "status == 200 and colour",
        expect![[r#"
            unknown field colour; thalweg log --help lists the fields
              status == 200 and colour
                                ^^^^^^"#]],
    );
    check(
        "path > a or status ~ ^4",
        expect![[r#"
        path does not support >; it supports == != ~ !~
          path > a or status ~ ^4
               ^
        status does not support ~; it supports == != < <= > >=
          path > a or status ~ ^4
                             ^"#]],
    );
    check(
        "tcp.rtt > 100 or tcp.rtt > 100MB or tcp.rtt > fast",
        expect![[r#"
        compare tcp.rtt with a duration such as 100ms; units: us, ms, s, min, h
          tcp.rtt > 100 or tcp.rtt > 100MB or tcp.rtt > fast
                    ^^^
        compare tcp.rtt with a duration such as 100ms; units: us, ms, s, min, h
          tcp.rtt > 100 or tcp.rtt > 100MB or tcp.rtt > fast
                                     ^^^^^
        compare tcp.rtt with a duration such as 100ms; units: us, ms, s, min, h
          tcp.rtt > 100 or tcp.rtt > 100MB or tcp.rtt > fast
                                                        ^^^^"#]],
    );
    check(
        "cache == warm or complete == yes",
        expect![[r#"
        compare cache with one of hit, join, miss, validated, stale, pass, purge, synth, pipe, error
          cache == warm or complete == yes
                   ^^^^
        compare complete with true or false
          cache == warm or complete == yes
                                       ^^^"#]],
    );
    check(
        "status == 5xx or status > 10min ago",
        expect![[r#"
        compare status with a number such as 404
          status == 5xx or status > 10min ago
                    ^^^
        compare status with a number such as 404
          status == 5xx or status > 10min ago
                                    ^^^^^^^^^"#]],
    );
    check(
        "time > 1640 or time > 10parsecs ago or time > 2026-02-29",
        expect![[r#"
        compare time with a time: 2026-11-20, 2026-11-20T23:00, 2026-11-20T23:00:05.5Z, 23:00 or 23:00:05 of any day, all in UTC, or 10min ago
          time > 1640 or time > 10parsecs ago or time > 2026-02-29
                 ^^^^
        compare time with a time: 2026-11-20, 2026-11-20T23:00, 2026-11-20T23:00:05.5Z, 23:00 or 23:00:05 of any day, all in UTC, or 10min ago
          time > 1640 or time > 10parsecs ago or time > 2026-02-29
                                ^^^^^^^^^^^^^
        compare time with a time: 2026-11-20, 2026-11-20T23:00, 2026-11-20T23:00:05.5Z, 23:00 or 23:00:05 of any day, all in UTC, or 10min ago
          time > 1640 or time > 10parsecs ago or time > 2026-02-29
                                                        ^^^^^^^^^^"#]],
    );
    check(
        "RespStatus > 1 or tcpi_rtt > 1 or ReqURL ~ a",
        expect![[r#"
        unknown field RespStatus; did you mean status?
          RespStatus > 1 or tcpi_rtt > 1 or ReqURL ~ a
          ^^^^^^^^^^
        unknown field tcpi_rtt; did you mean tcpi.rtt?
          RespStatus > 1 or tcpi_rtt > 1 or ReqURL ~ a
                            ^^^^^^^^
        unknown field ReqURL; did you mean path?
          RespStatus > 1 or tcpi_rtt > 1 or ReqURL ~ a
                                            ^^^^^^"#]],
    );
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,60}") {
        if let Ok(query) = Query::parse(&text) {
            let _ = query.holds(&record());
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
            let _ = (query.holds(&record()), query.holds(&bare()));
        }
    }
}
