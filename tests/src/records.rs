//! Telemetry records of an edge under load. A record is determined by its number, with values that
//! are typical of a day of video.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use thalweg_record::{
    CacheResult, Counters, Delivery, Gauges, Network, Record, ResponseRecord, SocketRecord, TcpState,
};

/// One record in this many is a response; the others are socket samples.
pub const RESPONSE_EVERY: u64 = 5;

/// Creates record `number`, from one of `prefixes` client networks (at most 2^16).
pub fn record(number: u64, prefixes: u64, time_unix_us: u64) -> (Network, Record) {
    let random = &mut Random(number);
    let prefix = random.below(prefixes);
    let client = IpAddr::from([100, (prefix >> 8) as u8, prefix as u8, random.below(254) as u8]);
    let client = SocketAddr::new(client, 1024 + random.below(60_000) as u16);
    let network = Network {
        asn: Some(64_500 + (prefix % 50) as u32),
        region: Some(Arc::from(["DE", "FR", "US-CA"][prefix as usize % 3])),
    };
    let record = if number.is_multiple_of(RESPONSE_EVERY) {
        Record::Response(Arc::new(response(random, time_unix_us, client)))
    } else {
        Record::Socket(Box::new(socket(random, time_unix_us, client)))
    };
    (network, record)
}

fn socket(random: &mut Random, time_unix_us: u64, client: SocketAddr) -> SocketRecord {
    let rtt_us = 8_000 + random.below(60_000) as u32;
    let delivery_rate = 200_000 + random.below(8_000_000);
    let segs_out = 500 + random.below(4_000) as u32;
    SocketRecord {
        cookie: random.below(1 << 24),
        state: "ESTAB".to_owned(),
        interval_us: Some(10_000_000 + random.below(20_000)),
        congestion_control: Some(["bbr", "cubic"][random.below(2) as usize].to_owned()),
        gauges: Some(Gauges {
            rtt_us,
            rttvar_us: rtt_us / 4,
            min_rtt_us: Some(rtt_us - random.below(6_000) as u32),
            rto_us: 204_000 + rtt_us,
            snd_cwnd: 10 + random.below(300) as u32,
            snd_mss_bytes: 1_448,
            pmtu_bytes: 1_500,
            unacked: random.below(100) as u32,
            reordering: 3,
            delivery_rate_bytes_per_s: Some(delivery_rate),
            delivery_rate_app_limited: random.below(3) == 0,
            pacing_rate_bytes_per_s: Some(delivery_rate * 5 / 4),
            notsent_bytes: Some(0),
            snd_wnd_bytes: Some(1 << 20),
            ..Gauges::default()
        }),
        counters: Some(Counters {
            bytes_acked: u64::from(segs_out) * 1_448,
            bytes_received: random.below(5_000),
            bytes_sent: u64::from(segs_out) * 1_448,
            bytes_retrans: random.below(20) * 1_448,
            segs_out,
            segs_in: segs_out / 2,
            data_segs_out: segs_out,
            retransmits: random.below(20) as u32,
            delivered: segs_out,
            busy_us: random.below(10_000_000),
            ..Counters::default()
        }),
        ..SocketRecord::new(time_unix_us, client, SocketAddr::from(([192, 0, 2, 1], 443)))
    }
}

fn response(random: &mut Random, time_unix_us: u64, client: SocketAddr) -> ResponseRecord {
    let bytes = 100_000 + random.below(4_000_000);
    ResponseRecord {
        host: "media.example".to_owned(),
        path: format!("/live/channel-{}/v3/{}.m4s", random.below(20), random.below(100_000)),
        bytes,
        ttfb_us: Some(100 + random.below(30_000)),
        written_us: 20_000 + random.below(2_000_000),
        delivery: Some(Delivery::complete(bytes, 20_000 + random.below(2_000_000))),
        cache: [CacheResult::Hit, CacheResult::Join, CacheResult::Miss][random.below(3) as usize],
        tcp: Some(TcpState {
            congestion_control: "bbr".to_owned(),
            congestion_control_start: Some("cubic".to_owned()),
            rtt_us: 8_000 + random.below(60_000) as u32,
            min_rtt_us: Some(8_000),
            snd_cwnd: 10 + random.below(300) as u32,
            delivery_rate_bytes_per_s: Some(random.below(8_000_000)),
            retransmits: random.below(20) as u32,
            ..TcpState::default()
        }),
        ..ResponseRecord::new(time_unix_us, client)
    }
}

/// A random number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
