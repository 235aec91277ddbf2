//! Record tests: JSON lines, their round trip, and human-readable lines.

mod batches;
mod generated;

use std::borrow::Cow;
use std::net::IpAddr;

use expect_test::{Expect, expect};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::rows::Value;
use crate::value::{Build, Datum, Message};

#[allow(clippy::needless_update, reason = "fields added later must stay unset in these records")]
fn sample() -> ResponseRecord {
    ResponseRecord {
        host: "127.0.0.1:8080".to_owned(),
        path: "/vod/sample/v0/1.m4s?a=%20".to_owned(),
        bytes: 1_258_291,
        ttfb_us: Some(850),
        written_us: 1900,
        tcp: Some(TcpState {
            congestion_control: "bbr".to_owned(),
            congestion_control_start: Some("cubic".to_owned()),
            decider: Some(Decider::Default),
            rtt_us: 120,
            min_rtt_us: Some(80),
            snd_cwnd: 10,
            delivery_rate_bytes_per_s: Some(12_345_678),
            retransmits: 2,
            lost: 1,
            pacing_rate_bytes_per_s: Some(99_000_000),
            ..TcpState::default()
        }),
        delivery: Some(Delivery {
            acked_bytes: 1_258_600,
            acked_us: Some(20_850),
            busy_us: Some(20_000),
            testable_bytes_per_s: Some(120_000_000),
            reached_hd: Some(true),
            is_source_limited: false,
            rwnd_limited_us: Some(4_000),
        }),
        ..ResponseRecord::new(1_795_215_600_123_456, "127.0.0.1:50000".parse().unwrap())
    }
}

/// Returns a record of a connection steered by the policy, with logged lines.
fn steered() -> ResponseRecord {
    let tcp = sample().tcp.map(|tcp| TcpState { decider: Some(Decider::Policy), ..tcp });
    let mut lines = Lines::default();
    lines.push(LineTag::Log, "tcpi: snd_mss=1448 rcv_mss=536 lost=0 retrans=0".to_owned());
    lines.push(LineTag::Error, "a\u{1b}[31m\nb".to_owned());
    ResponseRecord { tcp, lines, ..sample() }
}

/// Returns a record of a request restarted and passed by a policy.
fn passed() -> ResponseRecord {
    let tcp = steered().tcp.map(|tcp| TcpState { congestion_control_start: Some("bbr".to_owned()), ..tcp });
    ResponseRecord {
        cache: CacheResult::Pass,
        detail: Some("hit-for-miss".into()),
        backend: Some("east".to_owned()),
        xid: Some(7),
        restarts: 1,
        tcp,
        ..sample()
    }
}

/// Returns a record of a connection affected by a bundle.
fn held_out() -> ResponseRecord {
    let steered = Steered {
        bundle: 42,
        rule: Some("203.0.113.0/24".to_owned()),
        is_holdout: true,
        experiment: Some("live-bbr".to_owned()),
        arm: Some("as-is".to_owned()),
        refused: Some("bbr3 is not there".to_owned()),
        draw_period: None,
    };
    ResponseRecord { steered: Some(steered), ..sample() }
}

/// Returns a record with the report of a player whose buffer ran empty.
fn starved() -> ResponseRecord {
    let cmcd = Cmcd {
        sid: Some("6e2fb550-c457".to_owned()),
        st: Some(StreamType::Live),
        br_kbps: Some(3200),
        bl_ms: Some(0),
        mtp_kbps: Some(1400),
        bs: true,
    };
    ResponseRecord { tcp: None, cmcd: Some(cmcd), ..sample() }
}

/// Returns a record without any optional field.
fn bare() -> ResponseRecord {
    ResponseRecord {
        client: "[2001:db8::1]:443".parse().unwrap(),
        method: Cow::Borrowed("HEAD"),
        host: String::new(),
        path: "/live/a\u{1b}[31m\"\u{7f}".to_owned(),
        status: 504,
        bytes: 0,
        ttfb_us: None,
        written_us: 0,
        cache: CacheResult::Error,
        protocol: Protocol::Http10,
        cut: Some(Cut::ClientClosed),
        tcp: None,
        delivery: None,
        ..sample()
    }
}

#[test]
fn records_are_formatted_as_json_lines() {
    let check = |record: ResponseRecord, expected: Expect| expected.assert_eq(&record.to_json());
    check(
        sample(),
        expect![[
            r#"{"v":2,"time":"2026-11-20T23:00:00.123Z","client":"127.0.0.1:50000","method":"GET","host":"127.0.0.1:8080","path":"/vod/sample/v0/1.m4s?a=%20","status":200,"bytes":1258291,"ttfb_us":850,"written_us":1900,"goodput_bytes_per_s":62930000,"cache":"hit","protocol":"HTTP/1.1","complete":true,"tcp":{"congestion_control":"bbr","congestion_control_start":"cubic","decider":"default","rtt_us":120,"min_rtt_us":80,"snd_cwnd":10,"delivery_rate_bytes_per_s":12345678,"retransmits":2,"lost":1,"pacing_rate_bytes_per_s":99000000},"delivery":{"acked_bytes":1258600,"acked_us":20850,"busy_us":20000,"testable_bytes_per_s":120000000,"reached_hd":true,"rwnd_limited_us":4000}}"#
        ]],
    );
    check(
        steered(),
        expect![[
            r#"{"v":2,"time":"2026-11-20T23:00:00.123Z","client":"127.0.0.1:50000","method":"GET","host":"127.0.0.1:8080","path":"/vod/sample/v0/1.m4s?a=%20","status":200,"bytes":1258291,"ttfb_us":850,"written_us":1900,"goodput_bytes_per_s":62930000,"cache":"hit","protocol":"HTTP/1.1","complete":true,"tcp":{"congestion_control":"bbr","congestion_control_start":"cubic","decider":"policy","rtt_us":120,"min_rtt_us":80,"snd_cwnd":10,"delivery_rate_bytes_per_s":12345678,"retransmits":2,"lost":1,"pacing_rate_bytes_per_s":99000000},"lines":[{"tag":"VCL_Log","text":"tcpi: snd_mss=1448 rcv_mss=536 lost=0 retrans=0"},{"tag":"VCL_Error","text":"a\u001b[31m\nb"}],"delivery":{"acked_bytes":1258600,"acked_us":20850,"busy_us":20000,"testable_bytes_per_s":120000000,"reached_hd":true,"rwnd_limited_us":4000}}"#
        ]],
    );
    check(
        held_out(),
        expect![[
            r#"{"v":2,"time":"2026-11-20T23:00:00.123Z","client":"127.0.0.1:50000","method":"GET","host":"127.0.0.1:8080","path":"/vod/sample/v0/1.m4s?a=%20","status":200,"bytes":1258291,"ttfb_us":850,"written_us":1900,"goodput_bytes_per_s":62930000,"cache":"hit","protocol":"HTTP/1.1","complete":true,"tcp":{"congestion_control":"bbr","congestion_control_start":"cubic","decider":"default","rtt_us":120,"min_rtt_us":80,"snd_cwnd":10,"delivery_rate_bytes_per_s":12345678,"retransmits":2,"lost":1,"pacing_rate_bytes_per_s":99000000},"steered":{"bundle":42,"rule":"203.0.113.0/24","holdout":true,"experiment":"live-bbr","arm":"as-is","refused":"bbr3 is not there"},"delivery":{"acked_bytes":1258600,"acked_us":20850,"busy_us":20000,"testable_bytes_per_s":120000000,"reached_hd":true,"rwnd_limited_us":4000}}"#
        ]],
    );
    check(
        starved(),
        expect![[
            r#"{"v":2,"time":"2026-11-20T23:00:00.123Z","client":"127.0.0.1:50000","method":"GET","host":"127.0.0.1:8080","path":"/vod/sample/v0/1.m4s?a=%20","status":200,"bytes":1258291,"ttfb_us":850,"written_us":1900,"goodput_bytes_per_s":62930000,"cache":"hit","protocol":"HTTP/1.1","complete":true,"cmcd":{"sid":"6e2fb550-c457","st":"l","br_kbps":3200,"bl_ms":0,"mtp_kbps":1400,"bs":true},"delivery":{"acked_bytes":1258600,"acked_us":20850,"busy_us":20000,"testable_bytes_per_s":120000000,"reached_hd":true,"rwnd_limited_us":4000}}"#
        ]],
    );
    check(
        passed(),
        expect![[
            r#"{"v":2,"time":"2026-11-20T23:00:00.123Z","client":"127.0.0.1:50000","method":"GET","host":"127.0.0.1:8080","path":"/vod/sample/v0/1.m4s?a=%20","status":200,"bytes":1258291,"ttfb_us":850,"written_us":1900,"goodput_bytes_per_s":62930000,"cache":"pass","detail":"hit-for-miss","backend":"east","protocol":"HTTP/1.1","complete":true,"tcp":{"congestion_control":"bbr","congestion_control_start":"bbr","decider":"policy","rtt_us":120,"min_rtt_us":80,"snd_cwnd":10,"delivery_rate_bytes_per_s":12345678,"retransmits":2,"lost":1,"pacing_rate_bytes_per_s":99000000},"xid":7,"restarts":1,"delivery":{"acked_bytes":1258600,"acked_us":20850,"busy_us":20000,"testable_bytes_per_s":120000000,"reached_hd":true,"rwnd_limited_us":4000}}"#
        ]],
    );
    check(
        bare(),
        expect![[
            r#"{"v":2,"time":"2026-11-20T23:00:00.123Z","client":"[2001:db8::1]:443","method":"HEAD","host":"","path":"/live/a\u001b[31m\"","status":504,"bytes":0,"written_us":0,"cache":"error","protocol":"HTTP/1.0","complete":false,"cut":"client_closed"}"#
        ]],
    );
}

#[test]
fn query_values_match_the_json_line() {
    for record in [sample(), steered(), passed(), held_out(), starved(), bare()] {
        let line: serde_json::Value = serde_json::from_str(&record.to_json()).unwrap();
        for field in query_fields() {
            let there = field.name.split('.').try_fold(&line, |value, name| value.get(name));
            let is_same = match (field.value(&record), there) {
                (Value::Null, there) => there.is_none() || field.name.starts_with("lines"),
                (Value::Bool(value), Some(there)) => there.is_object() || *there == value,
                (Value::Number(number), Some(there)) => *there == number,
                (Value::Text(text), Some(there)) => *there == *text,
                (Value::Time(unix_us), Some(there)) => *there == format!("{:.3}", time(unix_us)),
                _ => false,
            };
            assert!(is_same, "{}: {:?}, {there:?}", field.name, field.value(&record));
        }
    }
}

#[test]
fn json_line_ends_with_a_newline() {
    let mut out = b"before".to_vec();
    sample().append_json_line(&mut out);
    assert_eq!(out, format!("before{}\n", sample().to_json()).into_bytes());
}

#[test]
fn unknown_fields_are_ignored() {
    let line = bare().to_json().replacen('{', "{\"colour\":[1],", 1);
    let read = ResponseRecord::from_json(&line).unwrap();
    assert_eq!(read.to_json(), bare().to_json());
}

#[test]
fn invalid_lines_are_reported() {
    fn check(line: &str, expected: Expect) {
        let fault = ResponseRecord::from_json(line).unwrap_err();
        let cause = std::error::Error::source(&fault).map(ToString::to_string).unwrap_or_default();
        expected.assert_eq(&format!("{fault}: {cause}"));
    }
    let line = bare().to_json();
    check("", expect!["not a response record: EOF while parsing a value at line 1 column 0"]);
    check(r#"{"v":2,"when":0}"#, expect!["not a response record: missing field `time` at line 1 column 16"]);
    check(
        &line.replace("\"v\":2", "\"v\":1"),
        expect!["record has schema version 1, but this program reads version 2: "],
    );
    check(
        &line.replace("\"error\"", "\"warm\""),
        expect![[
            r#"not a response record: "warm" is not one of hit, join, miss, validated, stale, pass, purge, synth, pipe, error at line 1 column 178"#
        ]],
    );
    check(
        &line.replace("2026-", "1926-"),
        expect![[
            r#"not a response record: invalid time "1926-11-20T23:00:00.123Z": expected RFC 3339 from 1970 on, such as 2026-11-20T23:00:00Z at line 1 column 40"#
        ]],
    );
    check(
        &line.replace("2026-11-20T", "yesterday, "),
        expect![[
            r#"not a response record: invalid time "yesterday, 23:00:00.123Z": expected RFC 3339 from 1970 on, such as 2026-11-20T23:00:00Z at line 1 column 40"#
        ]],
    );
    check(
        &line.replace("\"complete\":false", "\"complete\":true"),
        expect!["not a response record: `complete` contradicts the other fields at line 1 column 240"],
    );
}

#[test]
fn records_are_formatted_as_human_readable_lines() {
    let slow = ResponseRecord {
        bytes: 123,
        written_us: 12_000_000,
        ttfb_us: Some(999_999),
        status: 404,
        cut: Some(Cut::BackendFailed),
        ..sample()
    };
    let lines = [
        human_header(),
        sample().human(Colour::Never),
        slow.human(Colour::Never),
        steered().human(Colour::Never),
        passed().human(Colour::Never),
        held_out().human(Colour::Never),
        bare().human(Colour::Never),
    ];
    expect![[r#"
        TIME (UTC)   ST  CACHE      CONTENT    TTFB WRITTEN     GOODPUT CC        RTT     MIN  CWND    DELIVERY  RETR LOST CLIENT                REQUEST
        23:00:00.123 200 hit        1.20MiB   850us  1.90ms   503Mbit/s bbr     120us    80us    10  98.8Mbit/s     2    1 127.0.0.1:50000       GET 127.0.0.1:8080/vod/sample/v0/1.m4s?a=%20
        23:00:00.123 404 hit           123B  1000ms   12.0s   503Mbit/s bbr     120us    80us    10  98.8Mbit/s     2    1 127.0.0.1:50000       GET 127.0.0.1:8080/vod/sample/v0/1.m4s?a=%20 [cut: backend failed]
        23:00:00.123 200 hit        1.20MiB   850us  1.90ms   503Mbit/s bbr     120us    80us    10  98.8Mbit/s     2    1 127.0.0.1:50000       GET 127.0.0.1:8080/vod/sample/v0/1.m4s?a=%20 [cubic to bbr by policy]
            VCL_Log   tcpi: snd_mss=1448 rcv_mss=536 lost=0 retrans=0
            VCL_Error a\u{1b}[31m\nb
        23:00:00.123 200 pass       1.20MiB   850us  1.90ms   503Mbit/s bbr     120us    80us    10  98.8Mbit/s     2    1 127.0.0.1:50000       GET 127.0.0.1:8080/vod/sample/v0/1.m4s?a=%20 [hit-for-miss, backend east, xid 7, restarts 1] [bbr by policy]
        23:00:00.123 200 hit        1.20MiB   850us  1.90ms   503Mbit/s bbr     120us    80us    10  98.8Mbit/s     2    1 127.0.0.1:50000       GET 127.0.0.1:8080/vod/sample/v0/1.m4s?a=%20 [bundle 42: held out from 203.0.113.0/24, live-bbr/as-is, refused: bbr3 is not there]
        23:00:00.123 504 error           0B       -     0us           - -           -       -     -           -     -    - [2001:db8::1]:443     HEAD /live/a\u{1b}[31m"\u{7f} [cut: client closed]
    "#]].assert_eq(&(lines.join("\n") + "\n"));
    expect![[r#""23:00:00.123 \u{1b}[31m504\u{1b}[0m \u{1b}[31merror    \u{1b}[0m       0B       -     0us           - -           -       -     -           -     -    - [2001:db8::1]:443     HEAD /live/a\\u{1b}[31m\"\\u{7f} \u{1b}[31m[cut: client closed]\u{1b}[0m""#]].assert_eq(&format!("{:?}", bare().human(Colour::Always)));
}

#[test]
fn record_without_steering_fields_is_read() {
    let line = r#"{"v":2,"time":"2026-11-20T23:00:00.123Z","client":"127.0.0.1:50000","method":"GET","host":"a","path":"/b","status":200,"bytes":1000,"written_us":1900,"cache":"hit","protocol":"HTTP/1.1","complete":true,"tcp":{"congestion_control":"bbr","rtt_us":120,"snd_cwnd":10,"retransmits":2,"lost":1}}"#;
    let record = ResponseRecord::from_json(line).unwrap();
    let tcp = record.tcp.unwrap();
    assert_eq!((tcp.congestion_control_start, tcp.decider), (None, None));
    assert_eq!(record.lines, Lines::default());
}

#[test]
fn logged_lines_are_bounded() {
    let mut lines = Lines::default();
    lines.push(LineTag::Log, "é".repeat(LINE_BYTES_MAX));
    assert_eq!(lines.iter().next().unwrap().text.len(), LINE_BYTES_MAX);
    for _ in 0..LINES_MAX + 3 {
        lines.push(LineTag::Log, "x".repeat(100));
    }
    assert_eq!((lines.iter().count(), lines.lost()), (LINES_MAX, 4));
    let mut long = Lines::default();
    for _ in 0..10 {
        long.push(LineTag::Log, "x".repeat(LINE_BYTES_MAX));
    }
    assert_eq!(long.iter().map(|line| line.text.len()).sum::<usize>(), LINES_BYTES_MAX);
    assert!(long.lost() > 0);
}

#[test]
fn goodput_is_acknowledged_bytes_per_second_of_busy_time() {
    let goodput = |delivery| ResponseRecord { delivery, ..sample() }.goodput_bytes_per_s();
    let delivery = sample().delivery.unwrap();
    assert_eq!(goodput(Some(delivery.clone())), Some(62_930_000));
    assert_eq!(goodput(None), None);
    assert_eq!(goodput(Some(Delivery { busy_us: None, ..delivery.clone() })), None);
    assert_eq!(goodput(Some(Delivery { busy_us: Some(0), ..delivery.clone() })), None);
    let most =
        Delivery { acked_bytes: u64::MAX, busy_us: Some(1), rwnd_limited_us: None, ..delivery.clone() };
    assert_eq!(goodput(Some(most)), Some(u64::MAX));
    // The kernel counts busy time in ticks of milliseconds.
    let live = |busy_us| Delivery { is_source_limited: true, busy_us: Some(busy_us), ..delivery.clone() };
    assert_eq!(goodput(Some(live(39_999))), None);
    assert_eq!(goodput(Some(live(40_000))), Some(31_465_000));
    // Time limited by the receive window must be a small part, because content arrives then, too.
    let paused = |busy_us, limited_us| Delivery {
        busy_us: Some(busy_us),
        rwnd_limited_us: Some(limited_us),
        ..delivery.clone()
    };
    assert_eq!(goodput(Some(paused(20_000, 5_001))), None);
    assert_eq!(goodput(Some(paused(20_000, 5_000))), Some(62_930_000));
    assert_eq!(goodput(Some(paused(40_000, 2_000_000))), None);
    let with_limit =
        |busy_us, limited_us| paused(busy_us, limited_us).goodput_with_window_limit_bytes_per_s();
    assert_eq!(with_limit(20_000, 20_000), Some(31_465_000));
    assert_eq!(with_limit(0, 0), None);
}

#[test]
fn time_beyond_rfc_3339_is_capped() {
    let late = ResponseRecord { time_unix_us: u64::MAX, ..sample() };
    assert!(late.to_json().contains("\"9999-12-30T22:00:00.999Z\""));
}

/// A generated field value.
#[derive(Debug, Clone)]
enum Any {
    Datum(Datum<'static>),
    Part(Vec<Any>),
    List(Vec<Vec<Any>>),
}

/// Generates any message of this type.
fn any_message<T: Build + 'static>() -> impl Strategy<Value = T> {
    any_values(T::DECLARED).prop_filter_map("zero in a nonzero field", |values| {
        let mut message = T::blank();
        fill(&mut message, values).then_some(message)
    })
}

/// Sets the fields of a blank message. Returns false if a value is invalid for its field.
fn fill(message: &mut dyn Message, values: Vec<Any>) -> bool {
    values.into_iter().enumerate().all(|(at, value)| {
        let Some(slot) = message.slot(at) else { return true };
        match value {
            Any::Datum(datum) => slot.set(datum),
            Any::Part(values) => fill(slot.part().unwrap(), values),
            Any::List(list) => list.into_iter().all(|values| fill(slot.part().unwrap(), values)),
        }
    })
}

fn any_values(declared: &'static Declared) -> BoxedStrategy<Vec<Any>> {
    declared.fields().iter().map(any_value).collect::<Vec<_>>().boxed()
}

fn any_value(field: &'static Field) -> BoxedStrategy<Any> {
    let some = match field.kind {
        Kind::Bool => any::<bool>().prop_map(Datum::Bool).boxed(),
        Kind::Number(bits) => any::<u64>().prop_map(move |n| Datum::Number(n >> (64 - bits))).boxed(),
        Kind::Text => any::<String>().prop_map(|text| Datum::Text(text.into())).boxed(),
        Kind::Word(words) => select(words.all).prop_map(|word| Datum::Text(word.into())).boxed(),
        // JSON lines state times to the millisecond, up to the latest representable time.
        Kind::Time => (0..=253_402_207_200_999u64).prop_map(|ms| Datum::Number(ms * 1000)).boxed(),
        // The IPv6 flow label and scope ID have no meaning on other machines, so they are not
        // encoded.
        Kind::Address => any::<(IpAddr, u16)>().prop_map(|address| Datum::Address(address.into())).boxed(),
        Kind::Part(part) => return optional(field, any_values(part).prop_map(Any::Part).boxed()),
        Kind::List(part) => return vec(any_values(part), 0..4).prop_map(Any::List).boxed(),
    };
    optional(field, some.prop_map(Any::Datum).boxed())
}

fn optional(field: &Field, some: BoxedStrategy<Any>) -> BoxedStrategy<Any> {
    if field.is_optional { prop_oneof![Just(Any::Datum(Datum::Null)), some].boxed() } else { some }
}

proptest! {
    #[test]
    fn json_round_trip(record in any_message::<ResponseRecord>()) {
        prop_assert_eq!(ResponseRecord::from_json(&record.to_json()).unwrap(), record);
    }

    #[test]
    fn json_line_is_a_single_line(record in any_message::<ResponseRecord>()) {
        prop_assert!(!record.to_json().contains('\n'));
        let human = record.human(Colour::Never);
        prop_assert_eq!(human.lines().count(), 1 + record.lines.iter().count() + usize::from(record.lines.lost() > 0));
        prop_assert!(!human.contains(|c: char| c.is_control() && c != '\n'));
    }

    #[test]
    fn reading_never_panics(line in ".*") {
        let _ = ResponseRecord::from_json(&line);
    }
}
