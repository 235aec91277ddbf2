//! JSON encoding of a row: an object with the table name, followed by each column that has a value.
//! Times are in RFC 3339 format, in UTC. Does no I/O.

use std::io::Write;

use thalweg_record::rows::{self, Table, Value};
use thalweg_record::{Entry, Source, time};

/// Appends an entry's line.
pub(super) fn append(source: &Source, entry: &Entry, out: &mut Vec<u8>) {
    let table = Table::of(&entry.record);
    let mut columns = table.columns().iter();
    write(out, format_args!("{{\"table\":\"{}\"", table.name()));
    rows::row(source, entry, &mut |value| {
        let column = columns.next().expect("a row has a value for each column");
        if value != Value::Null {
            write(out, format_args!(",\"{}\":", column.name));
            append_value(&value, out);
        }
    });
    out.extend_from_slice(b"}\n");
}

fn append_value(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Bool(value) => write(out, format_args!("{value}")),
        Value::Number(number) => write(out, format_args!("{number}")),
        Value::Text(text) => serde_json::to_writer(out, text).expect("writing to a Vec cannot fail"),
        Value::Time(unix_us) => write(out, format_args!("\"{:.6}\"", time(*unix_us))),
        Value::Ip(ip) => write(out, format_args!("\"{ip}\"")),
    }
}

fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a Vec cannot fail");
}
