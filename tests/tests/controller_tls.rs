//! Controller over mutual TLS, with real parts: an edge and an agent connect with their
//! certificates and, if they cannot, report the reason.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[path = "../../crates/surface/tests/tls/authority.rs"]
mod authority;
mod program;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use authority::Authority;
use program::site::{Clients, backend};
use program::{Directory, Port, Process, edge, site, thalweg, until};
use serde_json::Value;

const EDGE: &str =
    "[[identity]]\nrole = 'edge'\npop = 'here'\nname = 'edge-1'\ncertificate_name = 'edge-1.example'\n";
const OTHERS: &str = "[[identity]]\nrole = 'agent'\npop = 'here'\nname = 'edge-1'\ncertificate_name = 'edge-1.example'\n\
                      [[identity]]\nrole = 'operator'\nname = 'anna'\ncertificate_name = 'anna.example'\n";

/// Returns the flags of a client of the controller.
fn flags(ca: &Authority, pair: Option<&(PathBuf, PathBuf)>) -> Vec<String> {
    let mut flags = vec!["--controller-ca".to_owned(), ca.certificate().display().to_string()];
    if let Some((certificate, key)) = pair {
        flags.extend(["--controller-certificate".to_owned(), certificate.display().to_string()]);
        flags.extend(["--controller-key".to_owned(), key.display().to_string()]);
    }
    flags
}

/// Returns the command for an edge that polls the controller at this name.
fn polling_edge(backend: SocketAddr, control: &str, state: &Directory, flags: &[String]) -> Command {
    let mut command = edge(backend);
    command.args(["--bundle", &format!("https://{control}/bundle?pop=here&edge=edge-1")]);
    command.arg("--state").arg(state.0.join("edge")).args(flags);
    command
}

#[test]
fn edge_and_agent_use_the_controller_over_mutual_tls() {
    let directory = Directory::new();
    let [ca, other] = ["ca", "other"].map(|name| Authority::new(&directory.0, name));
    let own = ca.issue("controller", "DNS:localhost");
    let [machine, anna] = ["edge-1", "anna"].map(|name| ca.issue(name, &format!("DNS:{name}.example")));
    let identities = directory.file("identities.toml", &format!("{EDGE}{OTHERS}"));
    let port = Port::new();
    let control = format!("localhost:{}", port.address().port());
    let mut command = site::controller(&directory, port.address());
    command.args(["--identities", &identities]).arg("--tls-client-ca").arg(ca.certificate());
    command.arg("--tls-certificate").arg(&own.0).arg("--tls-key").arg(&own.1);
    let controller = Process::start(&mut command);
    controller.wait_for_log("controller listening");

    let backend = backend();
    let serving =
        Process::start(&mut polling_edge(backend, &control, &directory, &flags(&ca, Some(&machine))));
    let listen: SocketAddr = serving.wait_for_log("edge listening").parse().unwrap();
    let admin = serving.wait_for_log("admin listening");
    let mut command = thalweg();
    command.args(["agent", "--period", "200ms", "--pop", "here", "--host", "edge-1", "--edge", &admin]);
    command.args(["--controller", &format!("https://{control}")]).args(flags(&ca, Some(&machine)));
    command.args(["--spool", &format!("{}=64MiB", directory.0.join("spool").display())]);
    command.args(["--sockets", &format!("sport {}", listen.port())]);
    let agent = Process::start(&mut command);
    agent.wait_for_log("following edge records");
    let clients = Clients::of(listen, &["media.example"]);

    let status = |flags: &[String]| {
        let mut command = thalweg();
        command.args(["controller", "status", "--json", "--controller", &format!("https://{control}")]);
        command.args(flags).output().unwrap()
    };
    let as_anna = flags(&ca, Some(&anna));
    until("the edge has a bundle made of the agent's records", || {
        let answer: Value = serde_json::from_slice(&status(&as_anna).stdout).unwrap();
        answer["pops"]["here"]["edges"][0]["bundle"].is_u64()
    });
    drop(clients);

    let error = |flags: &[String]| String::from_utf8(status(flags).stderr).unwrap();
    assert!(error(&flags(&ca, None)).contains("the server requires a client certificate"));
    assert!(error(&flags(&ca, Some(&machine))).contains("is not for an operator"));
    assert!(error(&flags(&other, Some(&anna))).contains("certificate signed by an unknown authority"));

    // Without its identity, the edge gets no bundle, and reports the reason.
    directory.file("identities.toml", OTHERS);
    serving.wait_for_log("bundle server does not respond");
    serving.stop();
    agent.stop();

    let state = Directory::new();
    let by_address = format!("127.0.0.1:{}", port.address().port());
    for (control, flags, why) in [
        (&control, flags(&other, Some(&machine)), "certificate signed by an unknown authority"),
        (&control, flags(&ca, None), "the server requires a client certificate"),
        (&by_address, flags(&ca, Some(&machine)), "certificate not valid for name"),
    ] {
        let edge = Process::start(&mut polling_edge(backend, control, &state, &flags));
        edge.wait_for_log(why);
        edge.stop();
    }
    controller.stop();
}
