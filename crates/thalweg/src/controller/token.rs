//! `thalweg controller token`: creates a token in a file, and prints the identity that owns it.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use thalweg_cli::print_stdout;
use thalweg_record::is_name;

/// Permissions of a token file: readable by its owner only.
const MODE: u32 = 0o600;

/// Examples printed after the help.
pub(super) const HELP: &str = "\
Examples:
  thalweg controller token edge --pop fra1 --name edge-1 --token-file edge.token
  thalweg controller token agent --pop fra1 --name edge-1 --token-file agent.token
  thalweg controller token operator --name anna --token-file anna.token >> identities.toml

Append the output to the identities file, which contains only the token's SHA-256 digest, and copy
each token file to its machine.
To replace a token, add a second identity with the same name, change the token file of the machine,
then remove the first identity.";

/// Role of a token's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    /// Polls for its bundle
    Edge,
    /// Sends the records of its edges
    Agent,
    /// Reads the controller's state and metrics
    Operator,
}

/// `thalweg controller token`.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Role of the token's owner
    #[arg(value_enum)]
    role: Role,
    /// Name of the owner; for an edge, the name with which it polls
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Site (PoP) of an edge or agent; if omitted, the unnamed site
    #[arg(long, value_name = "NAME")]
    pop: Option<String>,
    /// Host whose records an agent may send; by default, the agent's name. May be given several
    /// times
    #[arg(long = "edge", value_name = "NAME")]
    edges: Vec<String>,
    /// File to create for the token, readable by its owner only
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
}

/// Creates a token in a new file, and prints its identity.
///
/// # Errors
///
/// Returns an error if a name is invalid, or the file exists or cannot be written.
pub(crate) fn create(args: &TokenArgs) -> anyhow::Result<()> {
    let TokenArgs { role, name, pop, edges, token_file } = args;
    for name in [name].into_iter().chain(pop).chain(edges) {
        ensure!(is_name(name), "{name:?} is not a name of letters, digits, '-', '_' and '.', at most 253");
    }
    if *role == Role::Operator && pop.is_some() {
        bail!("--pop is for edges and agents only");
    }
    if *role != Role::Agent && !edges.is_empty() {
        bail!("--edge is for agents only");
    }
    let (token, digest) = thalweg_controller::create_token().context("cannot create a token")?;
    let path = token_file.display();
    let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(token_file);
    let written = file.and_then(|mut file| writeln!(file, "{token}"));
    written.with_context(|| format!("cannot create {path}"))?;
    print_stdout(&identity(*role, name, pop.as_deref(), edges, &digest));
    Ok(())
}

/// Formats an identity for the identities file. Names need no escaping.
fn identity(role: Role, name: &str, pop: Option<&str>, edges: &[String], digest: &str) -> String {
    let role = role.to_possible_value().map_or_else(String::new, |role| role.get_name().to_owned());
    let mut text = format!("[[identity]]\nrole = \"{role}\"\n");
    let mut line = |key: &str, value: &str| {
        writeln!(text, "{key} = {value}").expect("writing to a String cannot fail");
    };
    if let Some(pop) = pop {
        line("pop", &format!("{pop:?}"));
    }
    line("name", &format!("{name:?}"));
    if !edges.is_empty() {
        line("edges", &format!("{edges:?}"));
    }
    line("token_sha256", &format!("{digest:?}"));
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_a_table_with_its_own_keys() {
        let edges = ["edge-1".to_owned(), "edge-2".to_owned()];
        expect_test::expect![[r#"
            [[identity]]
            role = "agent"
            pop = "fra1"
            name = "a"
            edges = ["edge-1", "edge-2"]
            token_sha256 = "00ff"

        "#]]
        .assert_eq(&identity(Role::Agent, "a", Some("fra1"), &edges, "00ff"));
        assert_eq!(
            identity(Role::Operator, "anna", None, &[], "00ff"),
            "[[identity]]\nrole = \"operator\"\nname = \"anna\"\ntoken_sha256 = \"00ff\"\n\n"
        );
    }
}
