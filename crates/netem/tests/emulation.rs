//! Tests of emulations in real network namespaces. They need root. Each test creates and removes
//! its own namespaces. Tests run one at a time, so that they do not slow each other down.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod left;

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use left::left;
use thalweg_netem::emulation::{Emulation, PathDirection, Side};
use thalweg_netem::scenario::{self, Alteration, Loss};

const PATIENCE: Duration = Duration::from_secs(20);

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn exclusive() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the scenario described by `text`.
fn emulation(text: &str) -> Emulation {
    let scenario = scenario::read(text, &|_| unreachable!("the scenario includes no file")).unwrap();
    Emulation::start(&scenario).unwrap_or_else(|lacking| panic!("{lacking}"))
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "timed out waiting until {what}");
        thread::yield_now();
    }
}

#[test]
fn every_address_of_a_prefix_uses_its_path() {
    let _exclusive = exclusive();
    let text = "[[path]]\nname = 'a'\ndown.delay = '10ms'\n[[path]]\nname = 'b'\nup.delay = '30ms'\n";
    let emulation = emulation(text);
    let scenario = emulation.scenario().clone();
    let server = emulation.on(Side::Server, || UdpSocket::bind("[::]:7")).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        scope.spawn(move || echo(&server, is_over));
        for (from, least_ms) in [
            ("198.18.1.1", 10),
            ("198.18.1.200", 10),
            ("2001:db8:0:1ab::9", 10),
            ("198.18.2.3", 30),
            ("2001:db8:0:200::1", 30),
        ] {
            let from: IpAddr = from.parse().unwrap();
            let to: IpAddr = if from.is_ipv4() { scenario.server4.into() } else { scenario.server6.into() };
            let client = emulation.on(Side::Clients, || UdpSocket::bind((from, 0))).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let started = Instant::now();
            client.send_to(b"x", (to, 7)).unwrap();
            let reply = client.recv_from(&mut [0; 8]).unwrap();
            assert_eq!(reply.1.ip(), to);
            // Time alone does not prove which path was used: the other path or a busy machine adds
            // delay too. The packet counts below prove it.
            let took_ms = started.elapsed().as_millis();
            assert!(took_ms >= least_ms, "{from}: {took_ms} ms");
        }
        let packets = |path: usize| emulation.directions(path).each_ref().map(PathDirection::packets);
        assert_eq!((packets(0), packets(1)), ([3, 3], [2, 2]), "each packet uses its own path");
        let [_, up] = emulation.directions(1);
        up.alter(&Alteration { loss: Some(Loss::random(1.0)), ..Alteration::default() }).unwrap();
        let client = emulation.on(Side::Clients, || UdpSocket::bind("198.18.2.3:0")).unwrap();
        client.send_to(b"x", (scenario.server4, 7)).unwrap();
        wait("the packet is lost", || up.line.counts().lost == 1);
        is_over.store(true, Relaxed);
    });
    drop(emulation);
    assert_eq!(left(), [""; 0]);
}

fn echo(server: &UdpSocket, is_over: &AtomicBool) {
    server.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut content = [0; 8];
    while !is_over.load(Relaxed) {
        if let Ok((length, from)) = server.recv_from(&mut content) {
            server.send_to(&content[..length], from).unwrap();
        }
    }
}

#[test]
fn waiting_packets_are_not_counted_as_dropped() {
    let _exclusive = exclusive();
    let text = "[[path]]\nname = 'deep'\nup = { rate = '8kbit/s', queue = '1MB' }\n\
                [[path]]\nname = 'shallow'\nup = { rate = '8kbit/s', queue = '3kB' }\n";
    let emulation = emulation(text);
    let scenario = emulation.scenario();
    for path in &scenario.paths {
        let from = (path.client4(), 0);
        let client = emulation.on(Side::Clients, || UdpSocket::bind(from)).unwrap();
        for _ in 0..50 {
            client.send_to(&[0; 1000], (scenario.server4, 7)).unwrap();
        }
    }
    let [deep, shallow] = [0, 1].map(|path| &emulation.directions(path)[1]);
    wait("all packets have arrived", || deep.packets() == 50 && shallow.packets() == 50);
    // Each packet takes a second to send. Packets that do not fit in the queue are dropped when the
    // next one is sent.
    wait("excess packets are dropped", || shallow.dropped() >= 40);
    assert!(shallow.in_flight() <= 10);
    assert_eq!(deep.dropped(), 0);
    assert!((20..=50).contains(&deep.in_flight()), "{}", deep.in_flight());
}

#[test]
fn each_packet_is_counted_as_passed_or_missed() {
    const PACKETS: u64 = 50_000;
    let _exclusive = exclusive();
    let emulation = emulation("[[path]]\n");
    let server = emulation.scenario().server4;
    let client = emulation.on(Side::Clients, || UdpSocket::bind("198.18.1.1:0")).unwrap();
    for _ in 0..PACKETS {
        client.send_to(&[0; 1400], (server, 7)).unwrap();
    }
    let up = &emulation.directions(0)[1];
    wait("all packets are counted", || {
        emulation.count_missed();
        up.packets() + up.missed() >= PACKETS
    });
    // The kernel itself sends a few packets.
    assert!(up.packets() + up.missed() < PACKETS + 100, "{} and {}", up.packets(), up.missed());
}
