//! Encoder of records as rows in ClickHouse's `RowBinary` format: values in sequence,
//! little-endian, without column names
//! (<https://clickhouse.com/docs/interfaces/formats/RowBinary>). Does no I/O.
//!
//! **Invariant:** columns follow the order of `record::rows`; every INSERT must list them in that
//! order.

use std::net::IpAddr;

use thalweg_record::rows::{self, Column, Kind, Table, Value};
use thalweg_record::{Entry, Source};

/// Returns the ClickHouse type of a column.
pub fn type_of(column: &Column) -> String {
    let (plain, is_name) = match column.kind {
        Kind::Bool => ("Bool", false),
        Kind::U8 => ("UInt8", false),
        Kind::U16 => ("UInt16", false),
        Kind::U32 => ("UInt32", false),
        Kind::U64 => ("UInt64", false),
        Kind::Name => ("String", true),
        Kind::Text => ("String", false),
        Kind::Time => ("DateTime64(6, 'UTC')", false),
        Kind::Ip => ("IPv6", false),
    };
    let whole = if column.is_nullable { format!("Nullable({plain})") } else { plain.to_owned() };
    if is_name { format!("LowCardinality({whole})") } else { whole }
}

/// Appends an entry's row to `out`.
pub fn append_row(source: &Source, entry: &Entry, out: &mut Vec<u8>) {
    let mut columns = Table::of(&entry.record).columns().iter();
    rows::row(source, entry, &mut |value| {
        let column = columns.next().expect("a row has one value per column");
        append_value(column, &value, out);
    });
}

fn append_value(column: &Column, value: &Value<'_>, out: &mut Vec<u8>) {
    if column.is_nullable {
        out.push(u8::from(*value == Value::Null));
    }
    match value {
        Value::Null => assert!(column.is_nullable, "{} must not be null", column.name),
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::Number(number) => out.extend_from_slice(&number.to_le_bytes()[..number_bytes(column.kind)]),
        Value::Text(text) => append_text(text.as_bytes(), out),
        Value::Time(unix_us) => out.extend_from_slice(&unix_us.to_le_bytes()),
        Value::Ip(IpAddr::V4(ip)) => out.extend_from_slice(&ip.to_ipv6_mapped().octets()),
        Value::Ip(IpAddr::V6(ip)) => out.extend_from_slice(&ip.octets()),
    }
}

fn number_bytes(kind: Kind) -> usize {
    match kind {
        Kind::U8 => 1,
        Kind::U16 => 2,
        Kind::U32 => 4,
        _ => 8,
    }
}

/// Appends a ClickHouse String: its length as LEB128, then its bytes.
pub(crate) fn append_text(text: &[u8], out: &mut Vec<u8>) {
    let mut left = text.len();
    while left >= 0x80 {
        out.push(u8::try_from(left & 0x7f).expect("seven bits") | 0x80);
        left >>= 7;
    }
    out.push(u8::try_from(left).expect("seven bits"));
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use thalweg_record::{LossRecord, Network, Record, Stage};

    use super::*;

    #[test]
    fn row_is_encoded_as_its_values_in_sequence() {
        let source = Source { host: "h".into(), pop: "x".repeat(200), epoch: 258 };
        let record = Record::Loss(LossRecord { time_unix_us: 1, stage: Stage::Edge, records: 3 });
        let mut out = Vec::new();
        append_row(&source, &Entry { number: 2, network: Network::default(), record }, &mut out);
        let mut expected = vec![1, 0, 0, 0, 0, 0, 0, 0, 200, 1];
        expected.extend_from_slice("x".repeat(200).as_bytes());
        expected.extend_from_slice(b"\x01h\x02\x01\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x04edge\x03\0\0\0\0\0\0\0");
        assert_eq!(out, expected);
    }
}
