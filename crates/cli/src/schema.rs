//! `thalweg schema`: creates, compares or prints the ClickHouse tables.

use std::fmt::Write as _;

use clap::Subcommand;
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::schema::{self, FILES};

use crate::print_stdout;
use crate::secret::{ClickHouseUrl, clickhouse_url};

/// Examples and notes printed after the help.
pub const HELP: &str = "\
Examples:
  thalweg schema apply --clickhouse http://user:password@db.example:8123/telemetry
  thalweg schema diff --clickhouse http://db.example:8123/telemetry    exit status 1 if different";

/// Subcommands of `thalweg schema`.
#[derive(Debug, Subcommand)]
pub enum SchemaCommand {
    /// Create missing tables, views and columns; existing ones are neither changed nor dropped
    Apply(Where),
    /// Print what is missing, different or additional on the server
    Diff(Where),
    /// Print the SQL statements
    Print,
}

/// Server with the tables.
#[derive(Debug, clap::Args)]
pub struct Where {
    /// Server and database, http://USER:PASSWORD@HOST:PORT/DATABASE, or @FILE that contains it
    #[arg(long, value_name = "URL|@FILE", value_parser = clickhouse_url)]
    clickhouse: ClickHouseUrl,
}

/// Error for a server that differs from the schema; the differences are already printed.
#[derive(Debug)]
pub struct Differs;

impl std::fmt::Display for Differs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the tables on the server differ from the schema")
    }
}

impl std::error::Error for Differs {}

/// Runs the subcommand.
///
/// # Errors
///
/// Returns an error if the server cannot be reached or refuses a statement, or [`Differs`] if
/// `diff` finds differences.
pub fn run(command: SchemaCommand) -> anyhow::Result<()> {
    match command {
        SchemaCommand::Print => {
            let mut text = String::new();
            for (name, file) in FILES {
                writeln!(text, "-- {name}\n{file}").expect("writing to a String cannot fail");
            }
            print_stdout(&text);
        }
        SchemaCommand::Apply(Where { clickhouse }) => {
            let server = Server::at(&clickhouse.0)?;
            let mut done = schema::apply(&server)?;
            let left = schema::diff(&server)?;
            if done.is_empty() {
                done.push("nothing was missing".to_owned());
            }
            done.extend(left.into_iter().map(|difference| format!("not changed: {difference}")));
            print_stdout(&lines(&done));
        }
        SchemaCommand::Diff(Where { clickhouse }) => {
            let differences = schema::diff(&Server::at(&clickhouse.0)?)?;
            if differences.is_empty() {
                print_stdout("no difference\n");
            } else {
                print_stdout(&lines(&differences));
                return Err(Differs.into());
            }
        }
    }
    Ok(())
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}
