//! `thalweg backends`: how the backends of a running edge are, and which of them an operator takes out or in, over its
//! admin interface.

use std::fmt::Write as _;
use std::net::SocketAddr;

use hyper::Request;
use serde_json::{Value, json};

use crate::{admin, print_or_gone};

/// The columns of the list.
const COLUMNS: [&str; 6] = ["NAME", "ADDRESS", "HEALTH", "PROBE", "SET", "SINCE"];

/// Prints a line for each backend.
///
/// # Errors
/// When no edge answers.
pub(crate) fn list(addr: SocketAddr) -> anyhow::Result<()> {
    let answer = admin::ask(addr, Request::get("/backends"), String::new())?;
    let backends = answer["backends"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows = backends.iter().map(|backend| row(backend, admin::now_ms()));
    print_or_gone(&table(&[COLUMNS.map(String::from)].into_iter().chain(rows).collect::<Vec<_>>()));
    Ok(())
}

/// Sets the health of the backends of a name.
///
/// # Errors
/// When no edge answers, or it has no such backend.
pub(crate) fn set(addr: SocketAddr, name: &str, health: &str) -> anyhow::Result<()> {
    let order = json!({"name": name, "health": health});
    admin::ask(addr, Request::post("/backends"), order.to_string())?;
    print_or_gone(&format!("{name}: {health}\n"));
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

/// Columns as wide as they need to be.
fn table(rows: &[[String; 6]]) -> String {
    let widths: [usize; 6] =
        std::array::from_fn(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())
            .expect("a String takes every write");
    }
    text
}
