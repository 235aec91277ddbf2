//! A row as a line: a JSON object with the table's name, then the columns that have a value, by their names. Times are RFC 3339
//! in UTC. Pure.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use thalweg_record::rows::{self, Table, Value};
use thalweg_record::{Entry, Source};

/// The last time that RFC 3339 can write: the end of the year 9999, microseconds since the Unix epoch.
const TIME_US_MAX: u64 = 253_402_300_799_999_999;

/// Appends the line of an entry.
pub(super) fn put(source: &Source, entry: &Entry, out: &mut Vec<u8>) {
    let table = Table::of(&entry.record);
    let mut columns = table.columns().iter();
    write(out, format_args!("{{\"table\":\"{}\"", table.name()));
    rows::row(source, entry, &mut |value| {
        let column = columns.next().expect("a row has a value for each column");
        if value != Value::Null {
            write(out, format_args!(",\"{}\":", column.name));
            put_value(&value, out);
        }
    });
    out.extend_from_slice(b"}\n");
}

fn put_value(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Bool(value) => write(out, format_args!("{value}")),
        Value::Number(number) => write(out, format_args!("{number}")),
        Value::Text(text) => serde_json::to_writer(out, text).expect("a Vec takes every write"),
        Value::Time(unix_us) => {
            let time = UNIX_EPOCH + Duration::from_micros((*unix_us).min(TIME_US_MAX));
            write(out, format_args!("\"{}\"", humantime::format_rfc3339_micros(time)));
        }
        Value::Ip(ip) => write(out, format_args!("\"{ip}\"")),
    }
}

fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a Vec takes every write");
}
