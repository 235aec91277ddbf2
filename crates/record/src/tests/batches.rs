//! Protobuf batch tests: round trips, the encoding of version 1, unknown fields, and agreement with
//! the schema as decoded by `protoc`. Also tests the table rows of every kind of record.

use std::io::Write;
use std::num::NonZeroU32;
use std::process::{Command, Stdio};
use std::sync::Arc;

use super::*;
use crate::rows::{Kind, Table};

/// The batch of [`golden`] as written by the first release, which must always remain readable.
const GOLDEN: &[u8] = include_bytes!("../../tests/batch-1.bin");

/// Returns a batch with every field of version 1.
fn golden() -> Batch {
    let network = Network { asn: Some(64_500), region: Some("US-CA".into()) };
    let source = Source { host: "edge-1".to_owned(), pop: "fra".to_owned(), epoch: 1_795_215_000_000_000 };
    let lines = steered().lines;
    let response = ResponseRecord {
        cut: Some(Cut::Shutdown),
        steered: held_out().steered,
        cmcd: starved().cmcd,
        lines,
        delivery: None,
        ..passed()
    };
    let loss = LossRecord { time_unix_us: 1_795_215_600_000_000, stage: Stage::Events, records: 17 };
    let records = [
        (network.clone(), Record::Socket(Box::new(socket()))),
        (
            Network::default(),
            Record::Socket(Box::new(SocketRecord { gauges: None, counters: None, bbr: None, ..socket() })),
        ),
        (network, Record::Response(Arc::new(response))),
        (Network::default(), Record::Response(Arc::new(bare()))),
        (Network::default(), Record::Loss(loss)),
    ];
    let entries = records.into_iter().zip(300..);
    let entries = entries.map(|((network, record), number)| Entry { number, network, record }).collect();
    Batch { source, entries }
}

/// Returns the batch of [`golden`] with every field added after version 1.
fn complete() -> Batch {
    let mut batch = golden();
    let Record::Socket(socket) = &mut batch.entries[0].record else {
        unreachable!("the first entry is a socket")
    };
    socket.sample_one_in = NonZeroU32::new(10);
    socket.acked_goodput_bytes_per_s = Some(1_234_567);
    later_fields(socket);
    let Record::Response(response) = &mut batch.entries[2].record else {
        unreachable!("the third entry is a response")
    };
    let response = Arc::make_mut(response);
    response.delivery = sample().delivery;
    response.sample_one_in = NonZeroU32::new(100);
    response.tcp.as_mut().expect("the response has TCP state").delivery_rate_app_limited = Some(true);
    batch
}

/// Sets the fields that were added together with the socket's attributes.
fn later_fields(socket: &mut SocketRecord) {
    let gauges = socket.gauges.as_mut().expect("the socket has gauges");
    (gauges.tcp_state, gauges.timeouts_in_a_row) = (1, 2);
    let numbers = [
        &mut gauges.rcv_mss_bytes,
        &mut gauges.sacked,
        &mut gauges.retrans,
        &mut gauges.last_data_sent_ms,
        &mut gauges.last_data_recv_ms,
        &mut gauges.last_ack_recv_ms,
        &mut gauges.rcv_ssthresh_bytes,
        &mut gauges.advmss_bytes,
        &mut gauges.rcv_rtt_us,
        &mut gauges.rcv_space_bytes,
    ];
    numbers.into_iter().zip(50..).for_each(|(field, number)| *field = number);
    (gauges.max_pacing_rate_bytes_per_s, gauges.rcv_wnd_bytes) = (Some(60), Some(61));
    let counters = socket.counters.as_mut().expect("the socket has counters");
    let numbers = [
        &mut counters.data_segs_in,
        &mut counters.rcv_ooopack,
        &mut counters.rehash,
        &mut counters.timeout_recoveries,
        &mut counters.timeout_recovery_ms,
        &mut counters.received_ce,
        &mut counters.delivered_e1_bytes,
        &mut counters.delivered_e0_bytes,
        &mut counters.delivered_ce_bytes,
        &mut counters.received_e1_bytes,
        &mut counters.received_e0_bytes,
        &mut counters.received_ce_bytes,
    ];
    numbers.into_iter().zip(70..).for_each(|(field, number)| *field = number);
    socket.attributes = SocketAttributes {
        family: Some(SocketFamily::Ipv6),
        rqueue_bytes: Some(90),
        wqueue_bytes: Some(91),
        accept_queue: Some(92),
        accept_queue_max: Some(93),
        timer: Some(SocketTimer::Probe),
        timer_expires_ms: Some(94),
        timer_retransmits: Some(95),
        uid: Some(96),
        inode: Some(97),
        interface: Some(98),
        mark: Some(99),
        cgroup_id: Some(100),
        class_id: Some(101),
        tos: Some(102),
        tclass: Some(103),
        shutdown: Some(3),
    };
    socket.memory = Some(SocketMemory {
        rmem_alloc_bytes: 110,
        rcvbuf_bytes: 111,
        wmem_alloc_bytes: 112,
        sndbuf_bytes: 113,
        fwd_alloc_bytes: 114,
        wmem_queued_bytes: 115,
        optmem_bytes: 116,
        backlog_bytes: 117,
        drops: Some(118),
    });
}

#[allow(clippy::needless_update, reason = "fields added after version 1 must stay unset")]
fn socket() -> SocketRecord {
    let (client, local) = ("203.0.113.9:50000".parse().unwrap(), "[2001:db8::1]:443".parse().unwrap());
    SocketRecord {
        cookie: 0x1234_5678_9abc,
        namespace: Some("blue".to_owned()),
        cause: Cause::Destroy,
        interval_us: Some(10_000_000),
        congestion_control: Some("bbr".to_owned()),
        gauges: Some(Gauges {
            rtt_us: 1,
            rttvar_us: 2,
            min_rtt_us: Some(3),
            rto_us: 4,
            snd_cwnd: 5,
            snd_ssthresh: Some(6),
            snd_mss_bytes: 7,
            pmtu_bytes: 8,
            unacked: 9,
            lost: 10,
            reordering: 11,
            ca_state: 4,
            delivery_rate_bytes_per_s: Some(13),
            delivery_rate_app_limited: true,
            pacing_rate_bytes_per_s: Some(15),
            notsent_bytes: Some(16),
            snd_wnd_bytes: Some(17),
            ..Gauges::default()
        }),
        counters: Some(Counters {
            bytes_acked: 21,
            bytes_received: 22,
            bytes_sent: 23,
            bytes_retrans: 24,
            segs_out: 25,
            segs_in: 26,
            data_segs_out: 27,
            retransmits: 28,
            delivered: 29,
            delivered_ce: 30,
            dsack_dups: 31,
            reord_seen: 32,
            timeouts: 33,
            busy_us: 34,
            rwnd_limited_us: 35,
            sndbuf_limited_us: 36,
            ..Counters::default()
        }),
        bbr: Some(Bbr {
            bw_bytes_per_s: 41,
            min_rtt_us: 42,
            pacing_gain_256th: 43,
            cwnd_gain_256th: 44,
            ..Bbr::default()
        }),
        ..SocketRecord::new(1_795_215_600_123_456, client, local)
    }
}

fn encoded(batch: &Batch) -> Vec<u8> {
    let mut out = Vec::new();
    batch.encode(&mut out);
    out
}

#[test]
fn version_1_is_read_and_its_fields_are_written() {
    assert_eq!(Batch::decode(GOLDEN).unwrap(), golden());
    let written = encoded(&golden());
    assert_eq!(written.len(), GOLDEN.len());
    let changed = written.iter().zip(GOLDEN).filter(|(now, before)| now != before);
    assert!(
        changed.eq([(&2, &1); 2].iter().map(|(now, before)| (*now, *before))),
        "only the version numbers of the two responses may differ"
    );
}

#[test]
fn protoc_decodes_batches_by_the_schema() {
    let mut protoc = Command::new("protoc")
        .args(["--decode=thalweg.Batch", "telemetry.proto"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/proto"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("protoc is installed by tools/setup test");
    protoc.stdin.take().unwrap().write_all(&encoded(&complete())).unwrap();
    let out = protoc.wait_with_output().unwrap();
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).unwrap();
    // protoc prints unknown fields by number.
    let unnamed = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
    assert_eq!(text.lines().find(unnamed), None);
    // The batch of `complete` as printed by `protoc`.
    expect_test::expect_file!["../../tests/batch.txt"].assert_eq(&text);
}

#[test]
fn edge_positions_follow_a_batch_in_the_spool() {
    let heard = |edge: &str, next| EdgePosition { edge: edge.into(), epoch: 5, next };
    let all = [heard("127.0.0.1:8082", 7), heard("own", u64::MAX)];
    let mut bytes = encoded(&golden());
    assert_eq!(EdgePosition::decode(&bytes).unwrap(), []);
    EdgePosition::encode(all.iter(), &mut bytes);
    assert_eq!(Batch::decode(&bytes).unwrap(), golden(), "batch readers skip edge positions");
    assert_eq!(EdgePosition::decode(&bytes).unwrap(), all);
}

/// Encodes a numeric field.
fn number(field: u32, value: u64) -> Vec<u8> {
    [varint(u64::from(field) << 3), varint(value)].concat()
}

/// Encodes a length-delimited field: bytes, a string or a message.
fn part(field: u32, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [&varint(u64::from(field) << 3 | 2)[..], &varint(content.len() as u64), content].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// Encodes a batch with a single entry that has a single field.
fn batch_of(field: u32, message: &[u8]) -> Vec<u8> {
    part(4, part(field, message))
}

#[test]
fn fields_of_a_later_release_are_ignored() {
    let unknown = [number(99, 7), part(100, "new")].concat();
    let loss = [number(1, 1), number(2, 5), part(3, "edge"), number(4, 3), unknown.clone()].concat();
    let entry = [number(1, 8), part(6, loss), unknown.clone()].concat();
    let batch = Batch::decode(&[part(1, "h"), part(4, entry), unknown].concat()).unwrap();
    let record = Record::Loss(LossRecord { time_unix_us: 5, stage: Stage::Edge, records: 3 });
    assert_eq!(batch.entries, [Entry { number: 8, network: Network::default(), record }]);
}

#[test]
fn undecodable_field_is_named() {
    fn check(bytes: &[u8], expected: Expect) {
        expected.assert_eq(&Batch::decode(bytes).unwrap_err().to_string());
    }
    let loss = |version, stage: &str| [number(1, version), part(3, stage)].concat();
    let socket = |client: &[u8], port, cause: &str| {
        let local = [part(5, [127, 0, 0, 1]), number(6, 443)].concat();
        [number(1, 1), part(3, client), number(4, port), local, part(10, cause)].concat()
    };
    let response = |version, status, cache: &str, protocol: &str| {
        let client = [part(3, [127, 0, 0, 1]), number(4, 5)].concat();
        [number(1, version), client, number(8, status), part(12, cache), part(15, protocol)].concat()
    };
    check(b"\xff", expect!["not a telemetry batch"]);
    check(&part(4, number(1, 3)), expect!["invalid value for Entry"]);
    let both = [part(5, response(1, 200, "hit", "HTTP/1.1")), part(6, loss(1, "edge"))].concat();
    check(&part(4, both), expect!["invalid value for Entry"]);
    check(&batch_of(6, &loss(0, "edge")), expect!["invalid value for Loss"]);
    check(
        &batch_of(6, &loss(2, "edge")),
        expect!["Loss has version 2, but this program reads up to version 1"],
    );
    check(&batch_of(6, &loss(1, "moon")), expect!["invalid value for Loss.stage"]);
    // A newer version may have new words and wider numbers. It must be recognised wherever the
    // version field is.
    for newer in [loss(2, "moon"), [part(3, "moon"), number(1, 2)].concat()] {
        check(&batch_of(6, &newer), expect!["Loss has version 2, but this program reads up to version 1"]);
    }
    check(
        &batch_of(4, &number(1, 2)),
        expect!["Socket has version 2, but this program reads up to version 1"],
    );
    check(&batch_of(4, &socket(&[1; 5], 5, "dump")), expect!["invalid value for Socket.client_ip"]);
    check(&batch_of(4, &socket(&[1; 4], 65_536, "dump")), expect!["invalid value for Socket.client_ip"]);
    check(&batch_of(4, &socket(&[1; 4], 5, "boredom")), expect!["invalid value for Socket.cause"]);
    let gauges = [socket(&[1; 4], 5, "dump"), part(13, number(12, 256))].concat();
    check(&batch_of(4, &gauges), expect!["invalid value for Gauges.ca_state"]);
    let never = [socket(&[1; 4], 5, "dump"), number(16, 0)].concat();
    check(&batch_of(4, &never), expect!["invalid value for Socket.sample_one_in"]);
    check(
        &batch_of(5, &response(3, 200, "hit", "HTTP/1.1")),
        expect!["Response has version 3, but this program reads up to version 2"],
    );
    check(
        &batch_of(5, &response(1, 65_536, "hit", "HTTP/1.1")),
        expect!["invalid value for Response.status"],
    );
    check(&batch_of(5, &response(1, 200, "warm", "HTTP/1.1")), expect!["invalid value for Response.cache"]);
    check(&batch_of(5, &response(1, 200, "hit", "HTTP/9")), expect!["invalid value for Response.protocol"]);
    assert!(Batch::decode(&batch_of(5, &response(1, 200, "hit", "HTTP/1.1"))).is_ok());
    assert!(Batch::decode(&batch_of(4, &socket(&[1; 16], 5, "dump"))).is_ok());
}

fn any_record() -> impl Strategy<Value = Record> {
    prop_oneof![
        any_message::<SocketRecord>().prop_map(|record| Record::Socket(Box::new(record))),
        any_message::<ResponseRecord>().prop_map(|record| Record::Response(Arc::new(record))),
        any_message::<LossRecord>().prop_map(Record::Loss),
    ]
}

prop_compose! {
    fn batches()(
        source in any_message::<Source>(),
        entries in vec((any::<u64>(), any_message::<Network>(), any_record()), 0..5),
    ) -> Batch {
        let entries = entries.into_iter().map(|(number, network, record)| Entry { number, network, record });
        Batch { source, entries: entries.collect() }
    }
}

/// Returns whether a column of this kind may contain this value.
fn agrees(kind: Kind, value: &Value<'_>) -> bool {
    match (kind, value) {
        (Kind::Bool, Value::Bool(_)) | (Kind::Name | Kind::Text, Value::Text(_)) => true,
        (Kind::Time, Value::Time(_)) | (Kind::U64, Value::Number(_)) => true,
        (Kind::U8, Value::Number(number)) => u8::try_from(*number).is_ok(),
        (Kind::U16, Value::Number(number)) => u16::try_from(*number).is_ok(),
        (Kind::U32, Value::Number(number)) => u32::try_from(*number).is_ok(),
        (Kind::Ip, Value::Ip(_)) => true,
        _ => false,
    }
}

proptest! {
    #[test]
    fn batch_round_trip(batch in batches()) {
        prop_assert_eq!(Batch::decode(&encoded(&batch)).unwrap(), batch);
    }

    #[test]
    fn rows_match_their_columns(batch in batches()) {
        for entry in &batch.entries {
            let columns = Table::of(&entry.record).columns();
            let mut values = Vec::new();
            crate::rows::row(&batch.source, entry, &mut |value| values.push(value));
            prop_assert_eq!(values.len(), columns.len());
            for (column, value) in columns.iter().zip(&values) {
                let is_right = if *value == Value::Null { column.is_nullable } else { agrees(column.kind, value) };
                prop_assert!(is_right, "{}: {value:?}", column.name);
            }
            prop_assert_eq!(entry.client().map(Prefix::of_client), entry.prefix());
        }
    }
}

#[test]
fn absent_fields_are_null_in_rows() {
    let nulls = |record: Record| {
        let entry = Entry { number: 0, network: Network::default(), record };
        let (source, mut nulls) = (golden().source, 0);
        crate::rows::row(&source, &entry, &mut |value| nulls += u32::from(value == Value::Null));
        nulls
    };
    let nullable = |table: Table| table.columns().iter().filter(|column| column.is_nullable).count() as u32;
    let empty = SocketRecord::new(0, socket().client, socket().local);
    assert_eq!(nulls(Record::Socket(Box::new(empty))), nullable(Table::Sockets));
    let cut = 1;
    assert_eq!(nulls(Record::Response(Arc::new(bare()))), nullable(Table::Responses) - cut);
}
