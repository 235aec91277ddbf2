//! Tests that generate files from the field declarations: `proto/telemetry.proto` and the console's
//! types. `UPDATE_EXPECT=1` rewrites the files.

use expect_test::expect_file;

use super::*;
use crate::batch::Spooled;
use crate::rows::Table;

const PROTO_HEAD: &str = r#"// Telemetry records in the agent's spool and in Kafka message values.
//
// Generated from the declarations in crates/record by its test `generated`, which fails if this
// file is stale.
//
// Times are in microseconds since the Unix epoch; other units are part of the field names. A
// version changes if a field is removed or changes its meaning, or if a closed set gains a word. A
// new field does not change it, because readers ignore unknown fields. A reader refuses versions
// newer than its own. Addresses have 4 or 16 bytes, most significant first, and are never
// IPv4-mapped.
syntax = "proto3";

package thalweg;
"#;

const TYPES_HEAD: &str = "// Records as in JSON lines, and table rows as stored by the agent.
//
// Generated from the declarations in crates/record by its test `generated`, which fails if this
// file is stale.
";

#[test]
fn telemetry_proto_is_current() {
    let messages = [
        Batch::DECLARED,
        Spooled::DECLARED,
        EdgePosition::DECLARED,
        Entry::DECLARED,
        LossRecord::DECLARED,
        SocketRecord::DECLARED,
        Gauges::DECLARED,
        Counters::DECLARED,
        Bbr::DECLARED,
        SocketMemory::DECLARED,
        ResponseRecord::DECLARED,
        TcpState::DECLARED,
        Delivery::DECLARED,
        Steered::DECLARED,
        Cmcd::DECLARED,
        Line::DECLARED,
    ];
    let mut text = PROTO_HEAD.to_owned();
    for message in messages.chunk_by(|one, other| one.proto == other.proto) {
        text += "\n";
        text += &comment("//", message[0].doc);
        text += &format!("message {} {{\n", message[0].proto);
        if let Some(version) = message[0].version {
            text += &format!("  // {version}\n  uint32 version = 1;\n");
        }
        for field in message.iter().flat_map(|part| part.fields()) {
            let Some(tag) = field.tag else { continue };
            text += &comment("  //", field.doc);
            let name = field.name;
            let kind = match field.kind {
                Kind::Bool => "bool",
                Kind::Number(64) | Kind::Time => "uint64",
                Kind::Number(_) => "uint32",
                Kind::Text => "string",
                Kind::Word(words) => {
                    text += &format!("  // {}.\n", words.all.join(", "));
                    "string"
                }
                Kind::Address => {
                    text += &format!("  bytes {name}_ip = {tag};\n  uint32 {name}_port = {};\n", tag + 1);
                    continue;
                }
                Kind::Part(part) | Kind::List(part) => part.proto,
            };
            let label = match field.kind {
                Kind::List(_) => "repeated ",
                _ if field.is_optional => "optional ",
                _ => "",
            };
            text += &format!("  {label}{kind} {name} = {tag};\n");
        }
        text += "}\n";
    }
    expect_file!["../../proto/telemetry.proto"].assert_eq(&text);
}

#[test]
fn console_types_are_current() {
    let parts = [Line::DECLARED, TcpState::DECLARED, Delivery::DECLARED, Steered::DECLARED, Cmcd::DECLARED];
    let mut text = TYPES_HEAD.to_owned();
    let fields = || [ResponseRecord::DECLARED].into_iter().chain(parts).flat_map(Declared::fields);
    for field in fields() {
        if let Kind::Word(Words { name, doc, all }) = field.kind {
            text += &format!("\n{}export type {name} = \"{}\";\n", ts_doc("", doc), all.join("\" | \""));
        }
    }
    for message in [ResponseRecord::DECLARED].into_iter().chain(parts) {
        text += &format!("\n{}export interface {} {{\n", ts_doc("", message.doc), message.name);
        if message.version.is_some() {
            text += "  v: number;\n";
        }
        for field in message.fields() {
            let kind = match field.kind {
                Kind::Bool => "boolean".to_owned(),
                Kind::Number(_) => "number".to_owned(),
                Kind::Text | Kind::Time | Kind::Address => "string".to_owned(),
                Kind::Word(words) => words.name.to_owned(),
                Kind::Part(part) => part.name.to_owned(),
                Kind::List(part) => format!("{}[]", part.name),
            };
            let mark = if field.is_optional || field.is_sparse { "?" } else { "" };
            text += &format!("{}  {}{mark}: {kind};\n", ts_doc("  ", field.doc), field.json);
        }
        text += "}\n";
    }
    for (table, name) in [(Table::Sockets, "SocketRow"), (Table::Responses, "ResponseRow")] {
        text += &format!("\n/** A row of the table {}. */\nexport interface {name} {{\n", table.name());
        for column in table.columns() {
            let kind = match column.kind {
                rows::Kind::Bool => "boolean",
                rows::Kind::Name | rows::Kind::Text | rows::Kind::Ip => "string",
                _ => "number",
            };
            let null = if column.is_nullable { " | null" } else { "" };
            text += &format!("{}  {}: {kind}{null};\n", ts_doc("  ", column.doc), column.name);
        }
        text += "}\n";
    }
    expect_file!["../../../../console/src/record.ts"].assert_eq(&text);
}

/// Compares the rows of the log reference with the fields of the JSON line.
#[test]
fn log_reference_has_one_row_per_field() {
    let page = include_str!("../../../../docs/reference/records.md");
    let rows = page.lines().skip_while(|line| *line != "|---|---|").skip(1);
    let named = rows.take_while(|line| line.starts_with('|')).flat_map(|row| {
        let names = row.split('|').nth(1).expect("a row has two cells");
        names.split('`').skip(1).step_by(2)
    });
    let mut named: Vec<_> = named.collect();
    let mut declared: Vec<_> = query_fields().iter().map(|field| field.name).chain([json::VERSION]).collect();
    named.sort_unstable();
    declared.sort_unstable();
    assert_eq!(named, declared, "docs/reference/records.md");
}

fn comment(mark: &str, doc: &[&str]) -> String {
    doc.iter().map(|line| format!("{mark}{line}\n")).collect()
}

fn ts_doc(indent: &str, doc: &[&str]) -> String {
    match doc {
        [] => String::new(),
        [line] => format!("{indent}/**{line} */\n"),
        lines => {
            let lines: String = lines.iter().map(|line| format!("{indent} *{line}\n")).collect();
            format!("{indent}/**\n{lines}{indent} */\n")
        }
    }
}
