//! `thalweg schema`: creates, compares or prints the ClickHouse tables.

use std::fmt::Write as _;

use clap::Subcommand;
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::schema::{Cluster, FILES, Options};

use crate::print_stdout;
use crate::secret::{ClickHouseUrl, clickhouse_url};

/// Maximum retention, in days: ten years.
const DAYS_MAX: i64 = 3_650;

/// Examples and notes printed after the help.
pub const HELP: &str = "\
Examples:
  thalweg schema apply --clickhouse http://user:password@db.example:8123/telemetry
  thalweg schema diff --clickhouse http://db.example:8123/telemetry    exit status 1 if different
  thalweg schema apply --clickhouse @url-file --cluster main           replicated, on all servers";

/// Subcommands of `thalweg schema`.
#[derive(Debug, Subcommand)]
pub enum SchemaCommand {
    /// Create missing tables, views and columns; existing ones are neither changed nor dropped
    Apply(Target),
    /// Print what is missing, different or additional on the server
    Diff(Target),
    /// Print the SQL statements
    Print(Shape),
}

/// Server that has the tables, and their options.
#[derive(Debug, clap::Args)]
pub struct Target {
    #[command(flatten)]
    server: Where,
    #[command(flatten)]
    shape: Shape,
}

/// Options of the tables.
#[derive(Debug, clap::Args)]
pub struct Shape {
    /// Use replicated table engines; the server needs Keeper, and the macros in its default replica
    /// path
    #[arg(long)]
    replicated: bool,
    /// Run the statements on all servers of this cluster, with replicated tables
    #[arg(long, value_name = "NAME")]
    cluster: Option<Cluster>,
    /// Days for which new tables keep socket and response records [default: 7]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=DAYS_MAX))]
    keep_days: Option<u32>,
    /// Days for which new tables keep aggregates, losses, refused messages and positions
    /// [default: 35]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=DAYS_MAX))]
    keep_aggregates_days: Option<u32>,
}

impl Shape {
    fn options(self) -> Options {
        let Self { replicated, cluster, keep_days, keep_aggregates_days } = self;
        Options { is_replicated: replicated || cluster.is_some(), cluster, keep_days, keep_aggregates_days }
    }
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
        SchemaCommand::Print(shape) => {
            let (mut text, options) = (String::new(), shape.options());
            for (name, file) in FILES {
                writeln!(text, "-- {name}\n{}", options.adapt(file))
                    .expect("writing to a String cannot fail");
            }
            print_stdout(&text);
        }
        SchemaCommand::Apply(Target { server, shape }) => {
            let (server, options) = (Server::at(&server.clickhouse.0)?, shape.options());
            let mut done = options.apply(&server)?;
            let left = options.diff(&server)?;
            if done.is_empty() {
                done.push("nothing was missing".to_owned());
            }
            done.extend(left.into_iter().map(|difference| format!("not changed: {difference}")));
            print_stdout(&lines(&done));
        }
        SchemaCommand::Diff(Target { server, shape }) => {
            let differences = shape.options().diff(&Server::at(&server.clickhouse.0)?)?;
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
