//! The collector beside a server that knows nothing of it: real sockets on loopback, dumped and destroyed.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thalweg_record::{Cause, Network, Record, SocketRecord, Stage};
use thalweg_tcp::diag::Filter;
use thalweg_telemetry::collect::{Collector, Intake, SocketsConfig, Stop, intake};
use thalweg_telemetry::enrich::Networks;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A collector of the sockets of one server, and what it hands on.
struct Collecting {
    stop: Stop,
    intake: Intake,
    records: Receiver<(Network, Record)>,
    threads: [JoinHandle<()>; 2],
}

fn collecting(server: SocketAddr, period: Duration) -> Collecting {
    let (intake, batcher) = intake(Networks::open(&[], None).unwrap());
    let config = SocketsConfig {
        host: "test".to_owned(),
        period,
        filter: Filter::parse(&format!("sport = {}", server.port())).unwrap(),
        one_in: NonZeroU32::MIN,
        places: Vec::new(),
    };
    let (collector, stop) = Collector::open(config, intake.clone()).unwrap();
    let (sender, records) = channel();
    let batching = thread::spawn(move || {
        batcher.run(|batch| batch.into_iter().for_each(|record| sender.send(record).unwrap()));
    });
    let threads = [thread::spawn(move || collector.run()), batching];
    Collecting { stop, intake, records, threads }
}

impl Collecting {
    /// Socket records until `is_enough` holds for one of them, which is among them.
    fn until(&self, mut is_enough: impl FnMut(&SocketRecord) -> bool) -> Vec<SocketRecord> {
        let mut found = Vec::new();
        loop {
            let Record::Socket(record) = self.records.recv_timeout(PATIENCE).unwrap().1 else { continue };
            let is_last = is_enough(&record);
            found.push(*record);
            if is_last {
                return found;
            }
        }
    }

    /// Ends it, and gives what came last.
    fn end(self) -> Vec<Record> {
        self.stop.stop();
        let [collector, batcher] = self.threads;
        collector.join().unwrap();
        self.intake.end();
        batcher.join().unwrap();
        self.records.iter().map(|(_, record)| record).collect()
    }
}

/// A connection to the server, and the server's end.
fn connect(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn deliver(client: &mut TcpStream, server: &mut TcpStream, bytes: usize) {
    server.write_all(&vec![7; bytes]).unwrap();
    client.read_exact(&mut vec![0; bytes]).unwrap();
}

fn sent(record: &SocketRecord) -> u64 {
    record.counters.as_ref().map_or(0, |counters| counters.bytes_sent)
}

#[test]
fn connections_of_any_length_are_told_once_and_whole() {
    const LONG: usize = 5;
    const SHORT: usize = 100;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let collecting = collecting(listener.local_addr().unwrap(), Duration::from_millis(50));
    // What it tells of anything comes after its first dump: all others are new to it.
    let first = connect(&listener);
    collecting.until(|record| record.client == first.0.local_addr().unwrap());

    let mut long: Vec<_> = (0..LONG).map(|_| connect(&listener)).collect();
    let (mut delivered, mut told) = (HashMap::<_, u64>::new(), HashMap::<_, u64>::new());
    let mut ended = 0;
    let mut tell = |record: &SocketRecord| {
        *told.entry(record.client).or_default() += sent(record);
        ended += usize::from(record.cause == Cause::Destroy);
        (told[&record.client], ended)
    };
    for round in 1..=4 {
        for index in 1..=SHORT {
            let (mut client, mut server) = connect(&listener);
            deliver(&mut client, &mut server, round * 1000 + index);
            delivered.insert(client.local_addr().unwrap(), (round * 1000 + index) as u64);
        }
        for (index, (client, server)) in long.iter_mut().enumerate() {
            deliver(client, server, 1000 + index);
            *delivered.entry(client.local_addr().unwrap()).or_default() += 1000 + index as u64;
        }
        // A dump lies between two rounds: each long connection is told in parts.
        let last = long[LONG - 1].0.local_addr().unwrap();
        collecting.until(|record| tell(record).0 == delivered[&last] && record.client == last);
    }
    drop(long);
    collecting.until(|record| tell(record).1 == delivered.len());
    for record in collecting.end() {
        match record {
            Record::Socket(record) => drop(tell(&record)),
            other => panic!("{other:?}"),
        }
    }
    told.retain(|client, _| delivered.contains_key(client));
    assert_eq!(told, delivered);
}

#[test]
fn what_finds_no_room_is_counted_and_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let collecting = collecting(listener.local_addr().unwrap(), Duration::from_secs(3600));
    collecting.intake.lost(Stage::Edge, 3);
    collecting.intake.lost(Stage::Edge, 4);
    let losses: Vec<_> = collecting
        .end()
        .into_iter()
        .filter_map(|record| match record {
            Record::Loss(loss) => Some((loss.stage, loss.records)),
            _ => None,
        })
        .collect();
    assert_eq!(losses.iter().map(|(_, records)| records).sum::<u64>(), 7);
    assert!(losses.iter().all(|(stage, _)| *stage == Stage::Edge));
}
