//! `thalweg schema`: creates, compares or prints the ClickHouse tables.

use std::fmt::Write as _;

use clap::Subcommand;
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::schema::{self, FILES};

use crate::print_or_gone;
use crate::secret::{ClickHouseUrl, clickhouse_url};

/// Examples and notes printed after the help.
pub const HELP: &str = "\
Examples:
  thalweg schema apply --clickhouse http://user:password@db.example:8123/telemetry
  thalweg schema diff --clickhouse http://db.example:8123/telemetry    exit status 1 if different";

/// Subcommands of `thalweg schema`.
#[derive(Debug, Subcommand)]
pub enum SchemaCommand {
    /// Create the tables, views and columns that a server lacks; nothing is dropped or changed
    Apply(Where),
    /// Print differences: what a server lacks, has in another form, or has in addition
    Diff(Where),
    /// Print the statements
    Print,
}

/// Server with the tables.
#[derive(Debug, clap::Args)]
pub struct Where {
    /// Server and database, http://USER:PASSWORD@HOST:PORT/DATABASE, or @FILE with this URL in it
    #[arg(long, value_name = "URL|@FILE", value_parser = clickhouse_url)]
    clickhouse: ClickHouseUrl,
}

/// Error if the server differs from the schema; the differences are already printed.
#[derive(Debug)]
pub struct Differs;

impl std::fmt::Display for Differs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the server differs from the schema")
    }
}

impl std::error::Error for Differs {}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the server cannot be reached, refuses a statement, or differs from the schema.
pub fn run(command: SchemaCommand) -> anyhow::Result<()> {
    match command {
        SchemaCommand::Print => {
            let mut text = String::new();
            for (name, file) in FILES {
                writeln!(text, "-- {name}\n{file}").expect("writing to a String cannot fail");
            }
            print_or_gone(&text);
        }
        SchemaCommand::Apply(Where { clickhouse }) => {
            let server = Server::at(&clickhouse.0)?;
            let mut done = schema::apply(&server)?;
            let left = schema::diff(&server)?;
            if done.is_empty() {
                done.push("nothing was missing".to_owned());
            }
            done.extend(left.into_iter().map(|difference| format!("not changed: {difference}")));
            print_or_gone(&lines(&done));
        }
        SchemaCommand::Diff(Where { clickhouse }) => {
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
