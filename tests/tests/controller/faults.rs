//! Faults of the whole loop under load: an agent that is killed, and a controller that has lost its file or finds another release's.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::Value;

use super::program::site::{Clients, ask, backend, told};
use super::program::{self, Directory, Port, Process, records, until};
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

/// The whole loop under load, once some bundles have come to its edge.
struct Loop {
    directory: Directory,
    _ports: [Port; 3],
    control: SocketAddr,
    admin: SocketAddr,
    deciding: Process,
    _others: (Process, Process, Clients),
}

impl Loop {
    fn start() -> Self {
        let directory = Directory::new();
        let ports = [Port::new(), Port::new(), Port::new()];
        let [control, listen, admin] = ports.each_ref().map(Port::address);
        let deciding = controller(&directory, control);
        let bundle = format!("http://{control}/bundle?pop=here&edge={HOST}");
        let serving = edge(&directory, listen, admin, backend(), &bundle);
        let agent = agent(&directory, control, listen, admin);
        let clients = Clients::of(listen, &["media.example"]);
        let all =
            Self { directory, _ports: ports, control, admin, deciding, _others: (serving, agent, clients) };
        until("there were some bundles", || all.number() >= 3);
        all
    }

    /// The number of the bundle that the edge goes by.
    fn number(&self) -> u64 {
        told(self.admin, "/stats")["bundle"]["number"].as_u64().unwrap_or(0)
    }

    /// The controller begins again, after something was done to what it has kept: the edge's number goes up.
    fn begin_again(&mut self, after: impl FnOnce(&Directory)) {
        self.deciding.kill();
        let before = self.number();
        after(&self.directory);
        self.deciding = controller(&self.directory, self.control);
        until("the edge has a higher number", || {
            let now = self.number();
            assert!(now >= before, "{now} after {before}");
            now > before
        });
    }
}

#[test]
fn a_controller_that_has_lost_its_file_gives_no_number_again() {
    Loop::start().begin_again(|directory| {
        for name in ["control.sqlite", "control.sqlite-wal", "control.sqlite-shm"] {
            let _ = std::fs::remove_file(directory.0.join(name));
        }
    });
}

/// A release whose bundles have another format, which reads what this one has kept.
#[test]
fn a_controller_begins_with_bundles_of_another_format() {
    Loop::start().begin_again(|directory| {
        let database = rusqlite::Connection::open(directory.0.join("control.sqlite")).unwrap();
        let (own, other) = (format!(r#"\"format\":{}"#, thalweg_bundle::FORMAT), r#"\"format\":1"#);
        let changed = database.execute(
            "UPDATE pops SET rollout = CAST(replace(CAST(rollout AS TEXT), ?1, ?2) AS BLOB) \
             WHERE instr(rollout, CAST(?1 AS BLOB)) > 0",
            (&own, other),
        );
        assert_eq!(changed.unwrap(), 1);
    });
}
