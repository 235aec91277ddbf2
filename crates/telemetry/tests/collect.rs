//! Collector tests with real loopback sockets. The observed server takes no part in the collection.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thalweg_record::{Cause, Record, SocketRecord, Stage};
use thalweg_tcp::diag::Filter;
use thalweg_telemetry::collect::{Collector, Intake, Namespace, Saved, SocketsConfig, Stop, intake};
use thalweg_telemetry::enrich::Networks;

use namespace::Namespace as TestNamespace;

#[path = "../../tcp/tests/sockets/namespace.rs"]
mod namespace;

/// Maximum duration of any step, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running collector of a server's sockets, with its output.
struct Collecting {
    stop: Stop,
    intake: Intake,
    records: Receiver<Record>,
    threads: [JoinHandle<()>; 2],
    saved: Receiver<Vec<u8>>,
}

fn collecting(server: SocketAddr, period: Duration) -> Collecting {
    resumed(server, period, None)
}

/// Starts a collector that continues from another collector's saved state.
fn resumed(server: SocketAddr, period: Duration, from: Option<Saved>) -> Collecting {
    collecting_in(Vec::new(), &[server], period, from)
}

/// Starts a collector of several namespaces.
fn collecting_in(
    places: Vec<Namespace>,
    servers: &[SocketAddr],
    period: Duration,
    from: Option<Saved>,
) -> Collecting {
    let ports: Vec<_> = servers.iter().map(|server| server.port().to_string()).collect();
    let (intake, batcher) = intake(Networks::open(&[], None).unwrap());
    let config = SocketsConfig {
        host: "test".to_owned(),
        period,
        filter: Filter::parse(&format!("sport = {}", ports.join(","))).unwrap(),
        one_in: NonZeroU32::MIN,
        places,
    };
    let (collector, stop) = Collector::open(config, intake.clone(), from).unwrap();
    let (sender, records) = channel();
    let (saver, saved) = channel();
    let batching = thread::spawn(move || {
        batcher.run(|batch, saved| {
            batch.into_iter().for_each(|arrival| sender.send(arrival.record).unwrap());
            saved.into_iter().for_each(|saved| saver.send(saved).unwrap());
        });
    });
    let threads = [thread::spawn(move || collector.run()), batching];
    Collecting { stop, intake, records, threads, saved }
}

impl Collecting {
    /// Receives socket records until one satisfies `is_enough`, and returns them all.
    fn until(&self, mut is_enough: impl FnMut(&SocketRecord) -> bool) -> Vec<SocketRecord> {
        let mut found = Vec::new();
        loop {
            let Record::Socket(record) = self.records.recv_timeout(PATIENCE).unwrap() else { continue };
            let is_last = is_enough(&record);
            found.push(*record);
            if is_last {
                return found;
            }
        }
    }

    /// Stops the collector and returns its remaining records.
    fn end(self) -> Vec<Record> {
        self.end_and_save().0
    }

    /// Stops the collector and returns its remaining records and its last saved state.
    fn end_and_save(self) -> (Vec<Record>, Saved) {
        self.stop.stop();
        let [collector, batcher] = self.threads;
        collector.join().unwrap();
        self.intake.end();
        batcher.join().unwrap();
        let saved = self.saved.iter().last().unwrap();
        (self.records.iter().collect(), Saved::decode(&saved).unwrap())
    }
}

/// Opens a connection. Returns the client's side and the server's side.
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
fn connections_of_any_length_are_counted_exactly_once() {
    const LONG: usize = 5;
    const SHORT: usize = 100;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let collecting = collecting(listener.local_addr().unwrap(), Duration::from_millis(50));
    // Once the first record has arrived, the first dump is over, so later connections count as new.
    let first = connect(&listener);
    collecting.until(|record| record.client == first.0.local_addr().unwrap());

    let mut long: Vec<_> = (0..LONG).map(|_| connect(&listener)).collect();
    let (mut delivered, mut counted) = (HashMap::<_, u64>::new(), HashMap::<_, u64>::new());
    let mut ended = 0;
    let mut count = |record: &SocketRecord| {
        *counted.entry(record.client).or_default() += sent(record);
        ended += usize::from(record.cause == Cause::Destroy);
        (counted[&record.client], ended)
    };
    for round in 1..=4 {
        for index in 1..=SHORT {
            let (mut client, mut server) = connect(&listener);
            deliver(&mut client, &mut server, round * 1000 + index);
            // Connections may use the same port one after the other.
            *delivered.entry(client.local_addr().unwrap()).or_default() += (round * 1000 + index) as u64;
        }
        for (index, (client, server)) in long.iter_mut().enumerate() {
            deliver(client, server, 1000 + index);
            *delivered.entry(client.local_addr().unwrap()).or_default() += 1000 + index as u64;
        }
        // A dump takes place between two rounds, so each long connection is recorded in several
        // parts.
        let last = long[LONG - 1].0.local_addr().unwrap();
        collecting.until(|record| count(record).0 == delivered[&last] && record.client == last);
    }
    drop(long);
    collecting.until(|record| count(record).1 >= delivered.len());
    for record in collecting.end() {
        match record {
            Record::Socket(record) => drop(count(&record)),
            other => panic!("{other:?}"),
        }
    }
    counted.retain(|client, _| delivered.contains_key(client));
    assert_eq!(counted, delivered);
}

#[test]
fn connection_that_outlives_its_collector_is_counted_exactly_once() {
    let hour = Duration::from_secs(3600);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut counted = HashMap::<SocketAddr, u64>::new();
    let mut count = |records: Vec<Record>| {
        for record in records {
            match record {
                Record::Socket(record) => *counted.entry(record.client).or_default() += sent(&record),
                other => panic!("{other:?}"),
            }
        }
        counted.clone()
    };
    let (mut lives, mut ends) = (connect(&listener), connect(&listener));
    let client = lives.0.local_addr().unwrap();
    deliver(&mut lives.0, &mut lives.1, 1000);

    let first = collecting(address, hour);
    first.until(|record| record.client == client); // tracked from here on
    deliver(&mut lives.0, &mut lives.1, 200);
    let (records, saved) = first.end_and_save();
    assert_eq!(count(records)[&client], 200);

    // Send data while no collector is running.
    deliver(&mut lives.0, &mut lives.1, 30);
    deliver(&mut ends.0, &mut ends.1, 5000);
    drop(ends);
    let mut comes = connect(&listener);
    let new = comes.0.local_addr().unwrap();
    deliver(&mut comes.0, &mut comes.1, 77);

    let second = resumed(address, hour, Some(saved));
    let mut begun = Vec::new();
    begun.extend(second.until(|record| record.client == client || record.client == new));
    begun.extend(second.until(|record| record.client == client || record.client == new));
    count(begun.into_iter().map(|record| Record::Socket(Box::new(record))).collect());
    deliver(&mut lives.0, &mut lives.1, 4);
    let (records, saved) = second.end_and_save();
    let all = count(records);
    assert_eq!(
        (all[&client], all[&new]),
        (234, 77),
        "bytes sent meanwhile and the new connection must be counted"
    );

    // A collector with a different filter must not use the saved state.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let third = resumed(other.local_addr().unwrap(), hour, Some(saved));
    let (_client, _server) = connect(&other);
    let records = third.end();
    assert!(records.iter().all(|record| matches!(record, Record::Socket(_))), "{records:?}");
}

#[test]
fn records_name_their_namespace() {
    let hour = Duration::from_secs(3600);
    let other = TestNamespace::with_loopback();
    // A connection's local address identifies its namespace.
    let here = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = other.on_thread(|| TcpListener::bind("127.0.0.2:0").unwrap());
    let servers = [here.local_addr().unwrap(), there.local_addr().unwrap()];
    let place = |name: &str, path: &Path| Namespace { name: name.to_owned(), path: path.to_owned() };
    let places = || vec![place("here", Path::new("/proc/self/ns/net")), place("there", &other.path())];
    let connect_both = || [connect(&here), other.on_thread(|| connect(&there))];
    // Receives records until each namespace has had one with this cause.
    let counted = |collecting: &Collecting, cause: Cause| {
        let mut names = BTreeSet::new();
        let records = collecting.until(|record| {
            let expected = if record.local.ip() == servers[0].ip() { "here" } else { "there" };
            assert_eq!(record.namespace.as_deref(), Some(expected), "{record:?}");
            names.extend((record.cause == cause).then_some(expected));
            names.len() == 2
        });
        records.iter().filter(|record| record.cause == cause).map(sent).collect::<Vec<_>>()
    };

    let mut live = connect_both();
    let first = collecting_in(places(), &servers, hour, None);
    assert_eq!(counted(&first, Cause::Dump), [0, 0]);
    for (mut client, mut server) in connect_both() {
        deliver(&mut client, &mut server, 500);
    }
    assert_eq!(counted(&first, Cause::Destroy), [500, 500]);
    let saved = first.end_and_save().1;

    // Each namespace must have its own saved state.
    live.iter_mut().zip([30, 7]).for_each(|((client, server), bytes)| deliver(client, server, bytes));
    let second = collecting_in(places(), &servers, hour, Some(saved));
    assert_eq!(counted(&second, Cause::Dump), [30, 7]);
    second.end();
}

#[test]
fn losses_are_counted_and_recorded() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let collecting = collecting(listener.local_addr().unwrap(), Duration::from_secs(3600));
    collecting.intake.count_lost(Stage::Edge, 3);
    collecting.intake.count_lost(Stage::Edge, 4);
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
