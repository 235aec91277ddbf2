//! `thalweg policy`: the policies of a running edge, over its admin interface.

use std::fmt::Write as _;

use anyhow::Context;
use http::Request;
use serde_json::{Value, json};
use thalweg_edge::{LoadError, Policies};
use thalweg_units::table::{Column, Table};

use crate::admin::request_edge;
use crate::admin_args::EdgeAdmin;
use crate::print_stdout;

/// Examples and notes printed after the help.
pub const HELP: &str = "\
A request and its fetch keep the policy that was active when the request arrived.

Examples:
  thalweg policy load evening live.vcl
  thalweg policy use evening
  thalweg policy discard boot
  thalweg policy load --use night vod.vcl    load and use in one step
  thalweg policy show evening                print its files as loaded";

/// Validates a policy name.
fn policy_name(text: &str) -> Result<String, LoadError> {
    Policies::check_name(text).map(|()| text.to_owned())
}

/// Subcommands of `thalweg policy`.
#[derive(Debug, clap::Subcommand)]
pub enum PolicyCommand {
    /// List the policies: name, state, requests still using it, file
    List(EdgeAdmin),
    /// Print a policy as it was loaded: each file under its name, include statements unchanged
    Show {
        /// Name of the policy
        #[arg(value_parser = policy_name)]
        name: String,
        /// Edge to query.
        #[command(flatten)]
        edge: EdgeAdmin,
    },
    /// Compile a file and store it under a name; requests do not use it yet
    Load {
        /// Use the policy for new requests at once
        #[arg(long = "use")]
        use_it: bool,
        /// Name under which to store the policy: a letter, then letters, digits, _ and -
        #[arg(value_parser = policy_name)]
        name: String,
        /// File to load, at a path that the edge can read
        #[arg(value_name = "FILE.vcl")]
        file: std::path::PathBuf,
        /// Edge to query.
        #[command(flatten)]
        edge: EdgeAdmin,
    },
    /// Use a policy for new requests
    Use {
        /// Name of the policy, or none to run without a policy
        name: String,
        /// Edge to query.
        #[command(flatten)]
        edge: EdgeAdmin,
    },
    /// Remove a policy
    Discard {
        /// Name of the policy
        name: String,
        /// Edge to query.
        #[command(flatten)]
        edge: EdgeAdmin,
    },
}

/// Runs the subcommand.
///
/// # Errors
///
/// Returns an error if no edge responds, or the edge refuses the request.
pub fn run(command: PolicyCommand) -> anyhow::Result<()> {
    match command {
        PolicyCommand::List(edge) => {
            let answer = request_edge(edge.admin, Request::get("/policies"), String::new())?;
            print_stdout(&table(&answer).to_string());
        }
        PolicyCommand::Show { name, edge } => {
            let answer = request_edge(edge.admin, Request::get(format!("/policies/{name}")), String::new())?;
            print_stdout(&sources(&answer));
        }
        PolicyCommand::Load { use_it, name, file, edge } => {
            // Send an absolute path, because the edge's working directory may differ.
            let file =
                std::path::absolute(&file).with_context(|| format!("cannot resolve {}", file.display()))?;
            let order = json!({"load": name, "path": file, "use": use_it});
            let answer = request_edge(edge.admin, Request::post("/policies"), order.to_string())?;
            print_stdout(answer["warnings"].as_str().unwrap_or_default());
            print_stdout(&format!("{name} loaded\n"));
            if use_it {
                print_stdout(&used(&name));
            }
        }
        PolicyCommand::Use { name, edge } => {
            request_edge(edge.admin, Request::post("/policies"), json!({ "use": name }).to_string())?;
            print_stdout(&used(&name));
        }
        PolicyCommand::Discard { name, edge } => {
            request_edge(edge.admin, Request::post("/policies"), json!({ "discard": name }).to_string())?;
            print_stdout(&format!("{name} discarded\n"));
        }
    }
    Ok(())
}

fn used(name: &str) -> String {
    if name == "none" {
        return "new requests run without a policy\n".to_owned();
    }
    format!("new requests run through {name}\n")
}

/// Formats each file under a comment with its name. Include statements are kept, and the included
/// files follow.
fn sources(answer: &Value) -> String {
    let mut output = String::new();
    for file in answer["files"].as_array().into_iter().flatten() {
        let name = file["name"].as_str().unwrap_or_default();
        match (file["text"].as_str(), &file["bytes"]) {
            (Some(text), _) => writeln!(output, "// {name}\n{}", text.trim_end()),
            (None, bytes) => {
                writeln!(output, "// {name}\n// not shown: {bytes} bytes, beyond the display limit")
            }
        }
        .expect("writing to a String cannot fail");
    }
    output
}

fn table(answer: &Value) -> Table<'static> {
    let columns =
        [Column::text("NAME"), Column::text("STATE"), Column::number("IN USE"), Column::text("FILE")];
    let mut table = Table::new(columns);
    for policy in answer["policies"].as_array().into_iter().flatten() {
        let word = |name: &str| policy[name].as_str().unwrap_or_default().to_owned();
        let state = if policy["active"] == true { "active" } else { "loaded" };
        let in_use = policy["in_use"].as_u64().unwrap_or_default().to_string();
        table.push([word("name"), state.to_owned(), in_use, word("path")]);
    }
    table
}
