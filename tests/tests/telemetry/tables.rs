//! Checks of ClickHouse's content: each sent record appears once, and the rollups equal what their
//! views compute from the tables.

use thalweg_tests::records::RESPONSE_EVERY;

use super::*;
use crate::program::tables::number;

/// Returns the numbers of losses, responses and socket samples among `sent` records.
fn kinds(sent: u64) -> [(&'static str, u64); 3] {
    let losses = sent / LOSS_EVERY;
    let responses = sent / RESPONSE_EVERY - losses;
    [("losses", losses), ("responses", responses), ("sockets", sent - responses - losses)]
}

/// A rollup table, the DDL statement that also creates its view, and its key and value columns.
struct Rollup {
    table: &'static str,
    statement: &'static str,
    key: &'static str,
    sums: &'static str,
    percentiles_of: [&'static str; 2],
    /// Name of the column that counts records.
    count: &'static str,
}

const ROLLUPS: [(&str, Rollup); 2] = [
    (
        "sockets",
        Rollup {
            table: "sockets_5m",
            statement: include_str!("../../../schema/clickhouse/sockets_5m.sql"),
            key: "window, pop, prefix, asn, region, congestion_control",
            sums: "sum(samples), sum(bytes_acked)",
            percentiles_of: ["rtt", "delivery_rate"],
            count: "samples",
        },
    ),
    (
        "responses",
        Rollup {
            table: "responses_5m",
            statement: include_str!("../../../schema/clickhouse/responses_5m.sql"),
            key: "window, pop, prefix, asn, region, congestion_control, cache, request_host",
            sums: "sum(responses), sum(errors), sum(cut), sum(bytes)",
            percentiles_of: ["ttfb", "goodput"],
            count: "responses",
        },
    ),
];

impl Rollup {
    /// Returns the number of records that the rollup aggregates.
    fn records(&self, server: &Server) -> u64 {
        number(server, &format!("SELECT sum({}) FROM {}", self.count, self.table))
    }

    /// Returns the rollup's groups with their sums and percentiles, computed from a table or a
    /// subquery.
    fn groups(&self, server: &Server, from: &str) -> Vec<u8> {
        let Self { key, sums, percentiles_of, .. } = self;
        let percentiles = percentiles_of
            .map(|of| format!("quantilesDDMerge(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)({of})"))
            .join(", ");
        let query = format!("SELECT {key}, {sums}, {percentiles} FROM {from} GROUP BY {key} ORDER BY {key}");
        server.query(&query, "TabSeparated").unwrap().to_vec()
    }

    fn check(&self, server: &Server, records: u64) {
        assert_eq!(self.records(server), records, "{}", self.table);
        let (_, view) = self.statement.split_once(&format!("TO {} AS\n", self.table)).unwrap();
        let again = self.groups(server, &format!("({})", view.trim().trim_end_matches(';')));
        let is_same = self.groups(server, self.table) == again;
        assert!(is_same, "{} must equal its view over the whole table", self.table);
    }
}

fn rows(server: &Server) -> u64 {
    kinds(0).iter().map(|(table, _)| number(server, &format!("SELECT count() FROM {table}"))).sum()
}

/// Returns the first and the last missing record number, and the count of missing records.
fn missing(server: &Server, sent: u64) -> String {
    let numbers = kinds(0).map(|(table, _)| format!("SELECT number FROM {table}")).join(" UNION ALL ");
    let query = format!(
        "SELECT min(number), max(number), count() FROM numbers({sent}) WHERE number NOT IN ({numbers})"
    );
    String::from_utf8_lossy(&server.query(&query, "TabSeparated").unwrap()).into_owned()
}

/// Waits until all records have arrived, in the tables and in the rollups.
pub(super) fn delivered(server: &Server, sent: u64) {
    let rolled_up = sent - sent / LOSS_EVERY;
    let until = Instant::now() + DELIVERY_MAX;
    loop {
        let counted: u64 = ROLLUPS.iter().map(|(_, rollup)| rollup.records(server)).sum();
        let rows = rows(server);
        if rows >= sent && counted >= rolled_up {
            return;
        }
        let progress =
            || format!("{rows} of {sent} rows, {counted} in the rollups, without {}", missing(server, sent));
        assert!(Instant::now() < until, "{}", progress());
        thread::sleep(Duration::from_millis(100)); // no event to wait for: poll
    }
}

pub(super) fn check_once(server: &Server, sent: u64) {
    for (table, records) in kinds(sent) {
        assert_eq!(number(server, &format!("SELECT count() FROM {table}")), records, "{table}");
        let names = number(server, &format!("SELECT uniqExact(host, epoch, number) FROM {table}"));
        assert_eq!(names, records, "{table}");
        if let Some((_, rollup)) = ROLLUPS.iter().find(|(of, _)| *of == table) {
            rollup.check(server, records);
        }
    }
}
