//! `thalweg backends`: lists the backends of a running edge or sets their health, over the admin
//! interface.

use std::net::SocketAddr;

use clap::ValueEnum;
use http::Request;
use serde_json::{Value, json};
use thalweg_units::table::Table;

use crate::admin_args::EdgeAdmin;
use crate::{admin, print_stdout};

/// Examples and notes printed after the help.
pub const HELP: &str = "\
Examples:
  thalweg backends                   name, address, health, recent good probes, setting
  thalweg backends origin-2 sick     stop sending requests to origin-2
  thalweg backends origin-2 auto     let its probe decide again; healthy without a probe

NAME is a backend's name in the policy; backends from the settings are named by their URL.";

/// `thalweg backends`.
#[derive(Debug, clap::Args)]
pub struct BackendsArgs {
    /// Backend to set; if omitted, all backends are listed
    #[arg(requires = "health")]
    name: Option<String>,
    /// Health to set
    health: Option<Health>,
    #[command(flatten)]
    edge: EdgeAdmin,
}

/// Health set by an operator.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Health {
    /// The backend receives no requests.
    Sick,
    /// The backend receives requests, regardless of its probe.
    Healthy,
    /// The probe determines the health.
    Auto,
}

/// Lists the backends, or sets the health of the named backend.
///
/// # Errors
///
/// Returns an error if no edge responds, or the edge has no such backend.
pub fn run(args: &BackendsArgs) -> anyhow::Result<()> {
    match (&args.name, args.health) {
        (Some(name), Some(health)) => set(args.edge.admin, name, health),
        _ => list(args.edge.admin),
    }
}

fn list(addr: SocketAddr) -> anyhow::Result<()> {
    let answer = admin::request_edge(addr, Request::get("/backends"), String::new())?;
    let backends = answer["backends"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut table = Table::of_texts(["NAME", "ADDRESS", "HEALTH", "PROBE", "SET", "SINCE"]);
    backends.iter().for_each(|backend| table.push(row(backend, admin::now_ms())));
    print_stdout(&table.to_string());
    Ok(())
}

fn set(addr: SocketAddr, name: &str, health: Health) -> anyhow::Result<()> {
    let health = health.to_possible_value().expect("clap skips no variant of `Health`");
    let health = health.get_name();
    let order = json!({"name": name, "health": health});
    admin::request_edge(addr, Request::post("/backends"), order.to_string())?;
    print_stdout(&format!("{name}: {health}\n"));
    Ok(())
}

fn row(backend: &Value, now_ms: u64) -> [String; 6] {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let health = if backend["is_healthy"] == true { "healthy" } else { "sick" };
    let probe = &backend["probe"];
    let probe = if probe.is_null() { "-".into() } else { format!("{}/{}", probe["good"], probe["window"]) };
    let since_s = now_ms.saturating_sub(backend["changed_unix_ms"].as_u64().unwrap_or_default()) / 1000;
    [
        text(&backend["name"]),
        text(&backend["address"]),
        health.into(),
        probe,
        text(&backend["set_health"]),
        format!("{since_s}s ago"),
    ]
}
