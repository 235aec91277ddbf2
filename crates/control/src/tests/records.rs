//! Test records.

use std::net::SocketAddr;

use thalweg_record::{Decider, Delivery, ResponseRecord, Steered, TcpState};

/// Builds the record of a complete cache hit of 1 MB in one second, with the given steering of its
/// connection.
pub(crate) fn response(time_unix_s: u64, client: SocketAddr, steered: Option<Steered>) -> ResponseRecord {
    let is_steered = steered.as_ref().is_some_and(|it| !it.is_holdout);
    ResponseRecord {
        host: "media.example:8080".into(),
        path: "/a.m4s".into(),
        bytes: 1_000_000,
        ttfb_us: Some(1_000),
        written_us: 1_000_000,
        tcp: Some(TcpState {
            congestion_control: "cubic".into(),
            decider: Some(if is_steered { Decider::Rule } else { Decider::Default }),
            rtt_us: 50_000,
            min_rtt_us: Some(40_000),
            snd_cwnd: 10,
            ..TcpState::default()
        }),
        steered,
        delivery: Some(Delivery::complete(1_000_000, 1_000_000)),
        ..ResponseRecord::new(time_unix_s * 1_000_000, client)
    }
}
