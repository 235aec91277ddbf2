//! `thalweg policy`: the policies of a running edge, over its admin interface.

use std::fmt::Write as _;

use anyhow::Context;
use hyper::Request;
use serde_json::{Value, json};

use crate::admin::ask;
use crate::cli::PolicyCommand;
use crate::print_or_gone;

/// Does what was asked for.
///
/// # Errors
/// When no edge answers, or it refuses.
pub(crate) fn run(command: PolicyCommand) -> anyhow::Result<()> {
    match command {
        PolicyCommand::List { admin } => {
            let answer = ask(admin, Request::get("/policies"), String::new())?;
            print_or_gone(&table(&answer));
        }
        PolicyCommand::Show { name, admin } => {
            let answer = ask(admin, Request::get(format!("/policies/{name}")), String::new())?;
            print_or_gone(&sources(&answer));
        }
        PolicyCommand::Load { use_it, name, file, admin } => {
            // The edge may have been started elsewhere.
            let file =
                std::path::absolute(&file).with_context(|| format!("{} is no path", file.display()))?;
            let order = json!({"load": name, "path": file, "use": use_it});
            let answer = ask(admin, Request::post("/policies"), order.to_string())?;
            print_or_gone(answer["warnings"].as_str().unwrap_or_default());
            print_or_gone(&format!("{name} loaded\n"));
            if use_it {
                print_or_gone(&used(&name));
            }
        }
        PolicyCommand::Use { name, admin } => {
            ask(admin, Request::post("/policies"), json!({ "use": name }).to_string())?;
            print_or_gone(&used(&name));
        }
        PolicyCommand::Discard { name, admin } => {
            ask(admin, Request::post("/policies"), json!({ "discard": name }).to_string())?;
            print_or_gone(&format!("{name} discarded\n"));
        }
    }
    Ok(())
}

fn used(name: &str) -> String {
    format!("new requests run through {name}\n")
}

/// Each file under a line of VCL's own comment that names it, to be read: what `include` names follows, and stands there too.
fn sources(answer: &Value) -> String {
    let mut said = String::new();
    for file in answer["files"].as_array().into_iter().flatten() {
        let name = file["name"].as_str().unwrap_or_default();
        match (file["text"].as_str(), &file["bytes"]) {
            (Some(text), _) => writeln!(said, "// {name}\n{}", text.trim_end()),
            (None, bytes) => {
                writeln!(said, "// {name}\n// not shown: {bytes} bytes, too much with those before")
            }
        }
        .expect("a String takes every write");
    }
    said
}

fn table(answer: &Value) -> String {
    let mut text = format!("{:<20} {:<6} {:>6}  FILE\n", "NAME", "STATE", "IN USE");
    for policy in answer["policies"].as_array().into_iter().flatten() {
        let word = |name: &str| policy[name].as_str().unwrap_or_default().to_owned();
        let state = if policy["active"] == true { "active" } else { "loaded" };
        let in_use = policy["in_use"].as_u64().unwrap_or_default();
        writeln!(text, "{:<20} {state:<6} {in_use:>6}  {}", word("name"), word("path"))
            .expect("a String takes every write");
    }
    text
}
