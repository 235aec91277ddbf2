//! Queries on ClickHouse tables, polled until records are delivered.

use std::thread;
use std::time::{Duration, Instant};

use thalweg_telemetry::clickhouse::Server;

/// Time limit for delivering all records on a busy machine.
pub const DELIVERY_MAX: Duration = Duration::from_secs(120);

/// Returns the result of a query for a single number.
pub fn number(server: &Server, query: &str) -> u64 {
    let answer =
        server.query(query, "TabSeparated").unwrap_or_else(|error| panic!("{query}: {}", error.cause));
    std::str::from_utf8(&answer).unwrap().trim().parse().unwrap()
}

/// Waits until a condition on delivered records holds.
pub fn until_delivered(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < DELIVERY_MAX, "{what}");
        thread::sleep(Duration::from_millis(100)); // no event to wait for: poll
    }
}
