//! Faults of the whole loop under load: an agent that is killed, and a controller that has lost its file or finds another release's.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::Value;

use super::program::site::{Clients, ask, backend, told};
use super::program::{self, Directory, Port, records, until};
use super::{HOST, agent, controller, edge};

/// Times that the agent is killed.
const KILLS: usize = 3;

/// The newest window that was decided, of those with records of connections.
fn newest_window(control: SocketAddr) -> u64 {
    let rounds = told(control, "/rounds?pop=here");
    let rounds = rounds["rounds"].as_array().into_iter().flatten();
    let has_some = |round: &&Value| round["goodput"]["all"].is_object();
    rounds.filter(has_some).filter_map(|round| round["window"].as_u64()).max().unwrap_or(0)
}

/// Records that the controller has taken, of all sources.
fn taken(control: SocketAddr) -> u64 {
    let (_, _, text) = ask(control, "/metrics", "");
    let line = text.lines().find_map(|line| line.strip_prefix("thalweg_controller_records_total "));
    line.unwrap().parse().unwrap()
}

#[test]
fn an_agent_that_is_killed_tells_nothing_twice_and_windows_go_on() {
    let directory = Directory::new();
    let ports = [Port::new(), Port::new(), Port::new()];
    let [control, listen, admin] = ports.each_ref().map(Port::address);
    let backend = backend();
    let _deciding = controller(&directory, control);
    let _serving =
        edge(&directory, listen, admin, backend, &format!("http://{control}/bundle?pop=here&edge={HOST}"));
    let clients = Clients::of(listen, &["media.example"]);
    for _ in 0..KILLS {
        let mut agent = agent(&directory, control, listen, admin);
        let before = newest_window(control);
        until("windows go on", || newest_window(control) > before + 1);
        agent.kill();
    }
    let agent = agent(&directory, control, listen, admin);
    let before = newest_window(control);
    until("windows go on", || newest_window(control) > before + 1);
    drop(clients);
    agent.end();
    let files = directory.0.join("files");
    let controller = format!("http://{control}");
    program::drain(&directory.0.join("spool"), &[("--json", &files), ("--controller", controller.as_ref())]);

    let records = records(&files);
    let numbers: BTreeSet<u64> = records.iter().map(|record| program::number(record, "number")).collect();
    assert_eq!(numbers.len(), records.len(), "each is kept once");
    assert_eq!(taken(control), records.len() as u64, "each is taken once");
}

#[test]
fn a_controller_that_has_lost_its_file_gives_no_number_again() {
    let directory = Directory::new();
    let ports = [Port::new(), Port::new(), Port::new()];
    let [control, listen, admin] = ports.each_ref().map(Port::address);
    let mut deciding = controller(&directory, control);
    let bundle = format!("http://{control}/bundle?pop=here&edge={HOST}");
    let _serving = edge(&directory, listen, admin, backend(), &bundle);
    let _agent = agent(&directory, control, listen, admin);
    let _clients = Clients::of(listen, &["media.example"]);
    let number = || told(admin, "/stats")["bundle"]["number"].as_u64().unwrap_or(0);
    until("there were some bundles", || number() >= 3);
    deciding.kill();
    let before = number();
    for name in ["control.sqlite", "control.sqlite-wal", "control.sqlite-shm"] {
        let _ = std::fs::remove_file(directory.0.join(name));
    }
    let _deciding = controller(&directory, control);
    until("the edge has a higher number", || {
        let now = number();
        assert!(now >= before, "{now} after {before}");
        now > before
    });
}

/// A release whose bundles have another format, which reads what this one has kept.
#[test]
fn a_controller_begins_with_bundles_of_another_format() {
    let directory = Directory::new();
    let ports = [Port::new(), Port::new(), Port::new()];
    let [control, listen, admin] = ports.each_ref().map(Port::address);
    let mut deciding = controller(&directory, control);
    let bundle = format!("http://{control}/bundle?pop=here&edge={HOST}");
    let _serving = edge(&directory, listen, admin, backend(), &bundle);
    let _agent = agent(&directory, control, listen, admin);
    let _clients = Clients::of(listen, &["media.example"]);
    let number = || told(admin, "/stats")["bundle"]["number"].as_u64().unwrap_or(0);
    until("there were some bundles", || number() >= 3);
    deciding.kill();
    let before = number();
    let database = rusqlite::Connection::open(directory.0.join("control.sqlite")).unwrap();
    let (own, other) = (format!(r#"\"format\":{}"#, thalweg_bundle::FORMAT), r#"\"format\":1"#);
    let changed = database.execute(
        "UPDATE pops SET rollout = CAST(replace(CAST(rollout AS TEXT), ?1, ?2) AS BLOB) \
         WHERE instr(rollout, CAST(?1 AS BLOB)) > 0",
        (&own, other),
    );
    assert_eq!(changed.unwrap(), 1);
    drop(database);
    let deciding = controller(&directory, control);
    until("the edge has a higher number", || number() > before);
    drop(deciding);
}
