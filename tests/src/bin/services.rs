//! Runs Kafka and ClickHouse's engine on their usual ports on loopback until Ctrl-C, to try out the
//! telemetry pipeline, and prints the commands from the guide. The data is deleted at the end.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result};
use thalweg_tests::services::{ClickHouse, Kafka};
use tokio::signal::unix::{SignalKind, signal};

/// Ports in the guide's commands.
const KAFKA_PORT: u16 = 9092;
const CLICKHOUSE_PORT: u16 = 8123;
/// Guide whose commands are printed.
const GUIDE: &str = include_str!("../../../docs/guides/scale-telemetry.md");
/// Heading of the section with the commands.
const SECTION: &str = "\n## Try it on one machine\n";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let (mut interrupted, mut terminated) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    for port in [KAFKA_PORT, CLICKHOUSE_PORT] {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        free.with_context(|| format!("cannot listen on 127.0.0.1:{port}: stop the service that uses it"))?;
    }
    let kafka = Kafka::start_at(KAFKA_PORT);
    let clickhouse = ClickHouse::start_at(CLICKHOUSE_PORT);
    println!("Kafka       {}", kafka.brokers());
    println!("ClickHouse  {}", clickhouse.url());
    println!("\nTry, in another terminal (docs/guides/scale-telemetry.md explains the commands):\n");
    for command in commands().context("the guide must have the section with the commands")? {
        println!("    {command}");
    }
    println!("\nCtrl-C stops both and deletes their data.");
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    Ok(())
}

/// Returns the commands that the guide runs while the services run: the lines of the section's `sh`
/// blocks.
fn commands() -> Option<Vec<&'static str>> {
    let (_, section) = GUIDE.split_once(SECTION)?;
    let section = section.split("\n## ").next()?;
    let blocks = section.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    Some(blocks.flat_map(str::lines).collect())
}
