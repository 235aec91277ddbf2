//! Tests of the completion of destroyed sockets' records: what is added, order, and limits.

use std::net::SocketAddr;

use thalweg_record::{Gauges, TcpState};

use super::*;

fn client(port: u16) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 7], port))
}

fn ended(port: u16, rate_bytes_per_s: Option<u64>, has_latest_rate: bool) -> SocketItem {
    let mut record = SocketRecord::new(1, client(port), client(80));
    let delivery_rate_bytes_per_s = rate_bytes_per_s;
    record.gauges = Some(Gauges { delivery_rate_bytes_per_s, ..Gauges::default() });
    SocketItem::Ended(Ended { record: Box::new(record), has_latest_rate })
}

fn response(port: u16, rate_bytes_per_s: u64, is_app_limited: Option<bool>) -> ResponseRecord {
    let tcp = TcpState {
        congestion_control: "bbr".to_owned(),
        delivery_rate_bytes_per_s: Some(rate_bytes_per_s),
        delivery_rate_app_limited: is_app_limited,
        ..TcpState::default()
    };
    ResponseRecord { tcp: Some(tcp), ..ResponseRecord::new(1, client(port)) }
}

/// Returns the congestion control, the rate and its flag of a destroyed socket.
fn shown(item: Option<SocketItem>) -> (Option<String>, Option<u64>, bool) {
    let Some(SocketItem::Ended(Ended { record, .. })) = item else { panic!("{item:?}") };
    let gauges = record.gauges.unwrap();
    (record.congestion_control, gauges.delivery_rate_bytes_per_s, gauges.delivery_rate_app_limited)
}

#[test]
fn record_waits_for_the_response_and_takes_what_it_lacks() {
    let (mut join, now) = (Join::default(), Instant::now());
    join.push(ended(1, None, false), now);
    assert_eq!(shown(join.pop(now, false)), (None, None, false), "no edge is followed, so nothing waits");

    join.note(&response(9, 1, None));
    join.push(ended(1, Some(7), false), now);
    join.push(ended(2, Some(7), true), now);
    join.push(ended(3, None, false), now);
    join.push(ended(4, None, false), now);
    assert!(join.pop(now, false).is_none());
    for port in 1..=3 {
        join.note(&response(port, 500, (port != 3).then_some(false)));
    }
    assert!(join.pop(now + WAIT_MAX / 2, false).is_none());
    let after = now + WAIT_MAX;
    let bbr = || Some("bbr".to_owned());
    assert_eq!(shown(join.pop(after, false)), (bbr(), Some(500), false));
    assert_eq!(shown(join.pop(after, false)), (bbr(), Some(7), false), "the kernel's own sample is newer");
    assert_eq!(shown(join.pop(after, false)), (bbr(), Some(500), true), "an older edge gives no flag");
    assert_eq!(shown(join.pop(after, false)), (None, None, false), "no response is known");
    assert!(join.pop(after, false).is_none());

    // A later connection from the same port must not get the data of an earlier connection.
    join.push(ended(1, None, false), now);
    assert_eq!(shown(join.pop(after, false)), (None, None, false));
}

#[test]
fn items_keep_their_order_and_none_waits_at_the_end() {
    let (mut join, now) = (Join::default(), Instant::now());
    join.note(&response(9, 1, None));
    join.push(ended(1, None, false), now);
    join.push(SocketItem::State(vec![1]), now);
    join.push(SocketItem::Chunk(Vec::new()), now);
    assert!(join.pop(now, false).is_none(), "later items wait too");
    assert!(matches!(join.pop(now, true), Some(SocketItem::Ended(_))));
    assert!(matches!(join.pop(now, true), Some(SocketItem::State(_))));
    assert!(matches!(join.pop(now, true), Some(SocketItem::Chunk(_))));
    assert!(join.pop(now, true).is_none());
}

#[test]
fn waiting_records_and_known_clients_are_limited() {
    let (mut join, now) = (Join::default(), Instant::now());
    for port in 0..=u16::MAX {
        join.note(&response(port, 1, None));
    }
    join.note(&ResponseRecord { client: "[2001:db8::7]:1".parse().unwrap(), ..response(1, 1, None) });
    assert!(join.newer.len() + join.older.len() <= CLIENTS_MAX);
    for _ in 0..WAITING_RECORDS_MAX {
        join.push(ended(1, None, false), now);
    }
    assert!(join.pop(now, false).is_none());
    join.push(ended(2, None, false), now);
    assert!(join.pop(now, false).is_some());
    assert!(join.pop(now, false).is_none());
}
