//! ClickHouse's tables, asked until what others bring is there.

use std::thread;
use std::time::{Duration, Instant};

use thalweg_telemetry::clickhouse::Server;

/// What a machine busy with other things may take for all that is brought.
pub const DELIVERY_MAX: Duration = Duration::from_secs(120);

/// The only number that a query gives.
pub fn number(server: &Server, query: &str) -> u64 {
    let answer =
        server.query(query, "TabSeparated").unwrap_or_else(|error| panic!("{query}: {}", error.cause));
    std::str::from_utf8(&answer).unwrap().trim().parse().unwrap()
}

/// Waits until something holds that asks a service.
pub fn until_delivered(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < DELIVERY_MAX, "{what}");
        thread::sleep(Duration::from_millis(100)); // another process works: only asking tells
    }
}
