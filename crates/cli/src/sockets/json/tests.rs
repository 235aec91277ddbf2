//! Test that the agent's record of a socket has every value of `thalweg sockets --json`. No list of
//! fields is kept here: each bit of the kernel's message is changed in turn, and a change of the
//! JSON line must appear in the record's protobuf form.

use std::collections::HashSet;
use std::num::NonZeroU32;

use serde_json::Value;
use thalweg_record::rows::{self, row};
use thalweg_record::{Batch, Entry, Network, Record, Source};
use thalweg_tcp::diag::Socket;
use thalweg_telemetry::collect::{Moment, Tracker};

use super::append_line;

/// State numbers of the kernel.
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;

/// Appends an attribute of `inet_diag.h`.
fn push(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// Returns the kernel's message about an IPv6 socket with every attribute. No two bytes in a row
/// are equal, and no number is zero or all ones.
fn message(state: u8) -> Vec<u8> {
    let filled = |bytes: usize, first: usize| (0..bytes).map(move |at| (1 + (first + 7 * at) % 251) as u8);
    let mut message: Vec<u8> = filled(72, 3).collect();
    (message[0], message[1], message[2]) = (10, state, 1);
    for (kind, bytes) in [(2, 280), (5, 1), (6, 1), (7, 36), (8, 1), (15, 4), (16, 20), (17, 4), (21, 8)] {
        let value: Vec<u8> = filled(bytes, 13 * usize::from(kind)).collect();
        push(&mut message, kind, &value);
    }
    push(&mut message, 4, b"bbr\0");
    message
}

/// Returns the JSON line of a socket, and the protobuf form of its record.
fn forms(socket: &Socket) -> (String, Vec<u8>) {
    let mut line = Vec::new();
    append_line(socket, None, &mut line);
    let mut tracker = Tracker::new(None, NonZeroU32::MIN);
    tracker.end_dump();
    let mut record = tracker.dumped(socket, Moment::now()).unwrap();
    record.time_unix_us = 1;
    let source = Source { host: String::new(), pop: String::new(), epoch: 1 };
    let entry = Entry { number: 1, network: Network::default(), record: Record::Socket(Box::new(record)) };
    let mut protobuf = Vec::new();
    Batch { source, entries: vec![entry] }.encode(&mut protobuf);
    (String::from_utf8(line).unwrap(), protobuf)
}

/// Collects the numbers and flags of a JSON value, each with its path.
fn leaves(value: &Value, path: &str, into: &mut Vec<(String, u64)>) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| leaves(value, &format!("{path}.{key}"), into));
        }
        Value::Number(number) => into.push((path.to_owned(), number.as_u64().unwrap())),
        Value::Bool(flag) => into.push((path.to_owned(), (*flag).into())),
        _ => {}
    }
}

#[test]
fn every_value_is_in_the_record() {
    for state in [ESTABLISHED, LISTEN] {
        let whole = message(state);
        let (line, protobuf) = forms(&Socket::decode(&whole).unwrap());
        assert_eq!(line.contains("accept_queue_max"), state == LISTEN, "{line}");
        assert_eq!(line.contains("queue_bytes"), state == ESTABLISHED, "{line}");
        let batch = Batch::decode(&protobuf).unwrap();
        let mut numbers = HashSet::new();
        row(&batch.source, &batch.entries[0], &mut |value| {
            numbers.extend(match value {
                rows::Value::Number(number) => Some(number),
                rows::Value::Bool(flag) => Some(flag.into()),
                _ => None,
            });
        });
        let mut found = Vec::new();
        leaves(&serde_json::from_str(&line).unwrap(), "", &mut found);
        assert!(found.len() > 80, "the message sets too few fields: {found:?}");
        let missing: Vec<_> = found.iter().filter(|(_, number)| !numbers.contains(number)).collect();
        assert!(missing.is_empty(), "not in the record: {missing:?}");

        let mut changes = 0;
        for bit in 0..8 * whole.len() {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let Ok(socket) = Socket::decode(&changed) else { continue };
            if socket.tcp_info.is_none() {
                continue;
            }
            let (its_line, its_protobuf) = forms(&socket);
            if its_line != line {
                changes += 1;
                assert_ne!(its_protobuf, protobuf, "a change is lost:\n{line}{its_line}");
            }
        }
        assert!(changes > 8 * 280, "{changes}");
    }
}
