//! Tests of capture decoding, with a golden capture and with truncated, extended and older
//! messages.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;

use expect_test::{expect, expect_file};
use thalweg_tcp::diag::message::MESSAGE_BYTES;
use thalweg_tcp::diag::{
    Body, Frames, Malformed, Socket, State, append_to_capture, decode_capture, end_capture,
};

/// Capture saved by `thalweg sockets state all --save` in a network namespace with sockets in many
/// states.
const LINUX_6_18: &[u8] = include_bytes!("captures/linux-6.18.bin");

/// Lengths of `tcp_info` by kernel, oldest first; the last is for a hypothetical future kernel.
const INFO_BYTES: [usize; 14] = [104, 120, 136, 144, 160, 168, 192, 200, 224, 232, 240, 248, 280, 320];

const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_BBRINFO: u16 = 16;

/// Formats the values reported for a socket, without `tcp_info` numbers that are zero.
fn text(socket: &Socket) -> String {
    let mut text = format!("{} {} {} cookie {}", socket.state, socket.local, socket.remote, socket.cookie);
    let Socket { rqueue, wqueue, timer, uid, inode, .. } = *socket;
    write!(text, "\n  queues {rqueue} {wqueue} uid {uid} inode {inode} {timer:?}").unwrap();
    let (shutdown, cgroup) = (socket.shutdown, socket.cgroup_id);
    write!(text, "\n  shutdown {shutdown:?} cgroup {cgroup:?} v6 only {:?}", socket.is_v6_only).unwrap();
    write!(text, " mark {:?} class {:?} tos {:?}", socket.mark, socket.class_id, socket.tos).unwrap();
    if let Some(name) = socket.congestion_control {
        write!(text, "\n  {name}").unwrap();
    }
    if let Some(info) = &socket.tcp_info {
        write!(text, "\n  app limited {}", info.delivery_rate_app_limited).unwrap();
        info.for_each_number(|name, value| {
            if value != 0 {
                write!(text, " {name}={value}").unwrap();
            }
        });
    }
    if let Some(bbr) = socket.bbr {
        write!(text, "\n  {bbr:?}").unwrap();
    }
    if let Some(memory) = socket.memory {
        write!(text, "\n  {memory:?}").unwrap();
    }
    text + "\n"
}

#[test]
fn linux_6_18() {
    let mut all = String::new();
    decode_capture(LINUX_6_18, |socket| all.push_str(&text(socket))).unwrap();
    expect_file!["captures/linux-6.18.txt"].assert_eq(&all);
}

#[test]
fn capture_cut_at_any_byte_yields_its_complete_messages() {
    let mut whole = Vec::new();
    decode_capture(LINUX_6_18, |socket| whole.push(*socket)).unwrap();
    let mut starts = vec![0];
    for frame in Frames::new(LINUX_6_18) {
        starts.push(starts.last().unwrap() + frame.unwrap().bytes.len().next_multiple_of(4));
    }
    for end in 0..LINUX_6_18.len() {
        let mut reported = Vec::new();
        let decoded = decode_capture(&LINUX_6_18[..end], |socket| reported.push(*socket));
        let frames = starts.iter().filter(|start| **start <= end).count() - 1;
        assert_eq!(reported, whole[..frames.min(whole.len())], "at {end}");
        match decoded {
            Ok(()) => assert!(starts.contains(&end), "at {end}"),
            Err(bad) => assert_eq!(bad.offset_bytes, starts[frames], "at {end}: {:?}", bad.cause),
        }
    }
}

/// Returns the message of the first established connection with a BBR model, without its netlink
/// header.
fn message() -> Vec<u8> {
    let payloads = Frames::new(LINUX_6_18).filter_map(|frame| match frame.unwrap().body {
        Body::Message { payload, .. } => Some(payload.to_vec()),
        _ => None,
    });
    let is_wanted = |payload: &Vec<u8>| {
        Socket::decode(payload).is_ok_and(|socket| socket.state == State::Established && socket.bbr.is_some())
    };
    payloads.into_iter().find(is_wanted).unwrap()
}

/// Resizes the value of the attribute `wanted` to `bytes`, padding with all-ones bytes.
fn resized(message: &[u8], wanted: u16, bytes: usize) -> Vec<u8> {
    let mut output = message[..MESSAGE_BYTES].to_vec();
    let mut rest = &message[MESSAGE_BYTES..];
    while !rest.is_empty() {
        let length = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
        let kind = u16::from_ne_bytes([rest[2], rest[3]]);
        let mut value = rest[4..length].to_vec();
        if kind == wanted {
            value.resize(bytes, 0xff);
        }
        let header = [u16::try_from(4 + value.len()).unwrap().to_ne_bytes(), kind.to_ne_bytes()].concat();
        output.extend([header, value].concat());
        output.resize(output.len().next_multiple_of(4), 0);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    output
}

#[test]
fn message_cut_at_any_byte_is_an_error_or_lacks_trailing_attributes() {
    let message = message();
    let whole = Socket::decode(&message).unwrap();
    let mut errors = 0;
    for end in 0..message.len() {
        match Socket::decode(&message[..end]) {
            Ok(socket) => assert_eq!(Socket { tcp_info: None, ..fixed(socket) }, fixed(whole), "at {end}"),
            Err(_) => errors += 1,
        }
    }
    // Only cuts between two attributes are undetectable.
    assert!(errors > message.len() - 20, "{errors} of {}", message.len());
}

/// Returns the socket with all attribute fields cleared.
fn fixed(socket: Socket) -> Socket {
    Socket {
        mark: None,
        cgroup_id: None,
        class_id: None,
        tos: None,
        tclass: None,
        is_v6_only: None,
        shutdown: None,
        congestion_control: None,
        tcp_info: None,
        bbr: None,
        memory: None,
        ..socket
    }
}

#[test]
fn tcp_info_of_every_kernel_is_decoded_to_its_length() {
    let message = message();
    let whole = Socket::decode(&message).unwrap().tcp_info.unwrap();
    let mut lines = String::new();
    for bytes in INFO_BYTES {
        let info = Socket::decode(&resized(&message, INET_DIAG_INFO, bytes)).unwrap().tcp_info.unwrap();
        let (mut last, mut count) = ("", 0);
        info.for_each_number(|name, _| (last, count) = (name, count + 1));
        assert_eq!((info.rtt_us, info.snd_cwnd), (whole.rtt_us, whole.snd_cwnd));
        writeln!(lines, "{bytes} bytes: {count} numbers, the last is {last}").unwrap();
    }
    expect![[r#"
        104 bytes: 24 numbers, the last is total_retrans
        120 bytes: 25 numbers, the last is pacing_rate_bytes_per_s
        136 bytes: 27 numbers, the last is bytes_received
        144 bytes: 29 numbers, the last is segs_in
        160 bytes: 33 numbers, the last is data_segs_out
        168 bytes: 34 numbers, the last is delivery_rate_bytes_per_s
        192 bytes: 37 numbers, the last is sndbuf_limited_us
        200 bytes: 39 numbers, the last is delivered_ce
        224 bytes: 43 numbers, the last is reord_seen
        232 bytes: 45 numbers, the last is snd_wnd_bytes
        240 bytes: 47 numbers, the last is rehash
        248 bytes: 50 numbers, the last is total_rto_time_ms
        280 bytes: 57 numbers, the last is received_ce_bytes
        320 bytes: 57 numbers, the last is received_ce_bytes
    "#]]
    .assert_eq(&lines);
    for bytes in 0..104 {
        let short = Malformed::ValueShort { kind: INET_DIAG_INFO, bytes, bytes_min: 104 };
        assert_eq!(Socket::decode(&resized(&message, INET_DIAG_INFO, bytes)), Err(short));
    }
}

#[test]
fn longer_bbr_model_is_decoded_and_shorter_one_is_an_error() {
    let message = message();
    let whole = Socket::decode(&message).unwrap();
    assert_eq!(Socket::decode(&resized(&message, INET_DIAG_BBRINFO, 52)).unwrap(), whole);
    let short = Malformed::ValueShort { kind: INET_DIAG_BBRINFO, bytes: 19, bytes_min: 20 };
    assert_eq!(Socket::decode(&resized(&message, INET_DIAG_BBRINFO, 19)), Err(short));
}

#[test]
fn unknown_attributes_are_skipped_and_unknown_values_are_errors() {
    let message = message();
    let whole = Socket::decode(&message).unwrap();
    let unknown = [&message[..], &6u16.to_ne_bytes(), &99u16.to_ne_bytes(), &[1, 2, 0, 0]].concat();
    assert_eq!(Socket::decode(&unknown).unwrap(), whole);
    let with = |at: usize, byte: u8| {
        let mut message = message.clone();
        message[at] = byte;
        Socket::decode(&message)
    };
    assert_eq!(with(0, 1), Err(Malformed::Family(1)));
    assert_eq!(with(1, 0), Err(Malformed::State(0)));
    assert_eq!(with(1, 14), Err(Malformed::State(14)));
    let left_bytes = message.len() - MESSAGE_BYTES;
    assert_eq!(with(MESSAGE_BYTES, 3), Err(Malformed::AttributeLength { length_bytes: 3, left_bytes }));
}

#[test]
fn ended_capture_ends_like_a_kernel_dump() {
    let first = Frames::new(LINUX_6_18).next().unwrap().unwrap();
    let mut capture = Vec::new();
    append_to_capture(first.bytes, &mut capture);
    end_capture(&mut capture);
    let bodies: Vec<_> = Frames::new(&capture).map(|frame| frame.unwrap().body).collect();
    assert_eq!(bodies, [first.body, Body::Done]);
}
