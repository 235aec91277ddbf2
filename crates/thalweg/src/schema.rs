//! `thalweg schema`: the tables of ClickHouse, printed, brought to a server, and compared with what a server has.

use std::fmt::Write as _;

use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::schema::{self, FILES};

use crate::cli::SchemaCommand;
use crate::print_or_gone;

/// The server has something otherwise than the schema, which is printed already.
#[derive(Debug)]
pub(crate) struct Differs;

impl std::fmt::Display for Differs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the server differs from the schema")
    }
}

impl std::error::Error for Differs {}

/// Does what is asked for.
///
/// # Errors
/// When the server cannot be reached or refuses, or differs.
pub(crate) fn run(command: SchemaCommand) -> anyhow::Result<()> {
    match command {
        SchemaCommand::Print => {
            let mut text = String::new();
            for (name, file) in FILES {
                writeln!(text, "-- {name}\n{file}").expect("a String takes every write");
            }
            print_or_gone(&text);
        }
        SchemaCommand::Apply { clickhouse } => {
            let server = Server::at(&clickhouse.0)?;
            let mut done = schema::apply(&server)?;
            let left = schema::diff(&server)?;
            if done.is_empty() {
                done.push("nothing was missing".to_owned());
            }
            done.extend(left.into_iter().map(|difference| format!("not changed: {difference}")));
            print_or_gone(&lines(&done));
        }
        SchemaCommand::Diff { clickhouse } => {
            let differences = schema::diff(&Server::at(&clickhouse.0)?)?;
            if differences.is_empty() {
                print_or_gone("no difference\n");
            } else {
                print_or_gone(&lines(&differences));
                return Err(Differs.into());
            }
        }
    }
    Ok(())
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}
