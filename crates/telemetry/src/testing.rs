//! Test helpers: temporary directories, and varied, realistic records of every kind.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_record::{
    Batch, CacheResult, Cause, Counters, Cut, Delivery, Entry, Gauges, LossRecord, Network, Record,
    ResponseRecord, SocketRecord, Source, Stage, TcpState,
};

use crate::spool::{Limits, Spool};

/// Time of the earliest record in microseconds since the Unix epoch: the start of a window.
pub(crate) const TIME_US: u64 = 1_800_000_000_000_000;

/// A test's temporary directory, removed on drop.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    /// Returns a directory that does not exist yet.
    pub(crate) fn absent(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("thalweg-telemetry-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        Self(dir)
    }

    /// Creates an empty directory.
    pub(crate) fn new(name: &str) -> Self {
        let dir = Self::absent(name);
        fs::create_dir_all(&dir.0).unwrap();
        dir
    }

    /// Returns the path of a file in the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl AsRef<Path> for Dir {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Opens a spool, retrying while it is locked. A child process being spawned by another test
/// inherits the lock of a closed spool until it executes its program.
pub(crate) fn open_spool(dir: &Path, total_bytes: u64) -> Arc<Spool> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match Spool::open(dir, Limits { total_bytes }, "edge-1", "fra") {
            Err(error) if error.to_string().contains("another process") && Instant::now() < end => {
                std::thread::yield_now();
            }
            opened => return opened.unwrap(),
        }
    }
}

/// Reproducible pseudo-random number generator (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

impl Random {
    /// Returns a number below 2^`bits`, with a uniformly distributed order of magnitude.
    fn magnitude(&mut self, bits: u64) -> u64 {
        let bits = self.below(bits);
        self.below(1 << bits)
    }
}

pub(crate) fn source() -> Source {
    Source { host: "edge-1".to_owned(), pop: "fra".to_owned(), epoch: 1_795_000_000_000_000 }
}

/// Creates a batch whose first record number is `first`.
pub(crate) fn batch(first: u64, records: Vec<(Network, Record)>) -> Batch {
    let entries = records.into_iter().zip(first..);
    let entries = entries.map(|((network, record), number)| Entry { number, network, record }).collect();
    Batch { source: source(), entries }
}

/// Creates the record with this number. The same number always gives the same record.
pub(crate) fn record(number: u64) -> (Network, Record) {
    let random = &mut Random(number);
    let time_unix_us = TIME_US + random.below(900_000_000);
    let client = client(random);
    let asn = random.below(3) as u32;
    let region = [None, Some("DE"), Some("US-CA")][asn as usize].map(Arc::from);
    let network = Network { asn: (asn > 0).then_some(asn + 64_500), region };
    let record = match random.below(20) {
        0 => {
            let records = 1 + random.below(9);
            Record::Loss(LossRecord { time_unix_us, stage: Stage::Edge, records })
        }
        1..10 => Record::Response(Arc::new(response(random, time_unix_us, client))),
        _ => Record::Socket(Box::new(socket(random, time_unix_us, client))),
    };
    (network, record)
}

fn client(random: &mut Random) -> SocketAddr {
    let (net, host) = (random.below(4) as u8, random.below(250) as u8);
    let ip = if random.below(4) == 0 {
        IpAddr::from([0x2001, 0xdb8, net.into(), 0, 0, 0, 0, host.into()])
    } else {
        IpAddr::from([203, 0, net, host])
    };
    SocketAddr::new(ip, 1024 + random.below(60_000) as u16)
}

fn socket(random: &mut Random, time_unix_us: u64, client: SocketAddr) -> SocketRecord {
    let has_tcp_info = random.below(10) > 0;
    SocketRecord {
        cookie: random.below(1 << 40),
        state: "ESTAB".to_owned(),
        cause: [Cause::Dump, Cause::Destroy][random.below(2) as usize],
        sample_one_in: NonZeroU32::new(u32::from(client.port()) % 3),
        interval_us: (random.below(2) == 0).then_some(10_000_000),
        congestion_control: [None, Some("bbr"), Some("cubic")][random.below(3) as usize].map(str::to_owned),
        gauges: has_tcp_info.then(|| Gauges {
            rtt_us: random.below(200_000) as u32,
            min_rtt_us: (random.below(2) == 0).then(|| random.below(100_000) as u32),
            delivery_rate_bytes_per_s: (random.below(5) > 0).then(|| random.magnitude(34)),
            delivery_rate_app_limited: random.below(3) == 0,
            ..Gauges::default()
        }),
        counters: has_tcp_info.then(|| Counters {
            bytes_acked: random.below(1 << 30),
            bytes_retrans: random.below(1 << 20),
            segs_out: random.below(1 << 20) as u32,
            retransmits: random.below(1 << 10) as u32,
            busy_us: random.below(10_000_000),
            rwnd_limited_us: random.below(1000),
            sndbuf_limited_us: random.below(1000),
            ..Counters::default()
        }),
        ..SocketRecord::new(time_unix_us, client, "192.0.2.1:443".parse().unwrap())
    }
}

fn response(random: &mut Random, time_unix_us: u64, client: SocketAddr) -> ResponseRecord {
    ResponseRecord {
        host: ["media.example", "a.example"][random.below(2) as usize].to_owned(),
        path: format!("/live/{}.m4s", random.below(1000)),
        status: [200, 206, 404, 503][random.below(4) as usize],
        bytes: random.below(4_000_000),
        ttfb_us: (random.below(10) > 0).then(|| random.magnitude(22)),
        written_us: random.below(3_000_000),
        delivery: (random.below(4) > 0)
            .then(|| Delivery::complete(random.below(4_000_000), 1 + random.below(3_000_000))),
        cache: CacheResult::ALL[random.below(4) as usize],
        cut: (random.below(8) == 0).then_some(Cut::ClientClosed),
        tcp: (random.below(8) > 0).then(|| TcpState {
            congestion_control: ["bbr", "cubic"][random.below(2) as usize].to_owned(),
            rtt_us: random.below(200_000) as u32,
            snd_cwnd: 10,
            ..TcpState::default()
        }),
        ..ResponseRecord::new(time_unix_us, client)
    }
}
