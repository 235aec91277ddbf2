//! Faults in the complete control loop under load: its parts are killed at random times (`SEED=n`
//! selects others), or a controller has lost its state file or finds one from another release.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg_bundle::Bundle;

use super::program::site::{CONTENT_BYTES, Clients, NETWORKS, backend, get_json, http_get};
use super::program::{self, Directory, Port, Process, records, until};
use super::{HOST, agent, agent_command, controller, edge};

const DEFAULT_SEED: u64 = 20_261_122;
/// Number of times each part is killed.
const KILLS: usize = 4;
/// Maximum time that a part runs before it is killed, and maximum time that it then stays down. A
/// window lasts two seconds and accepts records for one more second.
const UP_MS_MAX: u64 = 5000;
const DOWN_MS_MAX: u64 = 1500;
/// Polling interval.
const POLL_TIME: Duration = Duration::from_millis(20);

/// A random number generator (xorshift64).
struct Random(u64);

impl Random {
    /// Creates a generator seeded with `SEED`, and prints the seed.
    fn of_seed() -> Self {
        let seed = std::env::var("SEED").map_or(DEFAULT_SEED, |seed| seed.parse().unwrap());
        println!("SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Returns the newest decided window that has connection records.
fn newest_window(control: SocketAddr) -> u64 {
    let rounds = get_json(control, "/rounds?pop=here");
    let rounds = rounds["rounds"].as_array().into_iter().flatten();
    let has_some = |round: &&Value| round["goodput"]["all"].is_object();
    rounds.filter(has_some).filter_map(|round| round["window"].as_u64()).max().unwrap_or(0)
}

/// Returns the number of records accepted by the controller, from all sources.
fn accepted_records(control: SocketAddr) -> u64 {
    let (_, _, text) = http_get(control, "/metrics", "");
    let line = text.lines().find_map(|line| line.strip_prefix("thalweg_controller_records_total "));
    line.unwrap().parse().unwrap()
}

#[test]
fn killed_agent_repeats_no_records_and_windows_continue() {
    let mut random = Random::of_seed();
    let directory = Directory::new();
    let ports = [Port::new(), Port::new(), Port::new()];
    let [control, listen, admin] = ports.each_ref().map(Port::address);
    let backend = backend();
    let _deciding = controller(&directory, control);
    let _serving =
        edge(&directory, listen, admin, backend, &format!("http://{control}/bundle?pop=here&edge={HOST}"));
    let clients = Clients::of(listen, &["media.example"]);
    for _ in 0..KILLS {
        let mut agent = Process::start(&mut agent_command(&directory, control, listen, admin));
        thread::sleep(Duration::from_millis(random.below(UP_MS_MAX)));
        agent.kill();
    }
    let agent = agent(&directory, control, listen, admin);
    let before = newest_window(control);
    until("windows continue", || newest_window(control) > before + 1);
    drop(clients);
    agent.stop();
    let files = directory.0.join("files");
    let controller = format!("http://{control}");
    program::drain(&directory.0.join("spool"), &[("--json", &files), ("--controller", controller.as_ref())]);

    let records = records(&files);
    let numbers: BTreeSet<u64> = records.iter().map(|record| program::number(record, "number")).collect();
    assert_eq!(numbers.len(), records.len(), "each record must be stored once");
    assert_eq!(accepted_records(control), records.len() as u64, "each record must be accepted once");
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Agent,
    Controller,
    Edge,
}

/// Returns the times at which parts are killed and restarted. Each part has its own random times,
/// so any combination of parts may be down.
fn turns(random: &mut Random) -> Vec<(Duration, Part)> {
    let mut turns = Vec::new();
    for part in [Part::Agent, Part::Controller, Part::Edge] {
        let mut at_ms = 0;
        for _ in 0..KILLS {
            for ms_max in [UP_MS_MAX, DOWN_MS_MAX] {
                at_ms += random.below(ms_max);
                turns.push((Duration::from_millis(at_ms), part));
            }
        }
    }
    turns.sort_by_key(|(at, _)| *at);
    turns
}

/// The complete loop under load, once its edge has received some bundles.
struct Loop {
    directory: Directory,
    _ports: [Port; 3],
    control: SocketAddr,
    listen: SocketAddr,
    admin: SocketAddr,
    backend: SocketAddr,
    running: BTreeMap<Part, Process>,
    _clients: Clients,
}

impl Loop {
    fn start() -> Self {
        let directory = Directory::new();
        let ports = [Port::new(), Port::new(), Port::new()];
        let [control, listen, admin] = ports.each_ref().map(Port::address);
        let (backend, clients) = (backend(), Clients::of(listen, &["media.example"]));
        let running = BTreeMap::new();
        let mut all =
            Self { directory, _ports: ports, control, listen, admin, backend, running, _clients: clients };
        for part in [Part::Controller, Part::Edge, Part::Agent] {
            all.start_part(part);
        }
        until("the edge has received some bundles", || all.number() >= 3);
        all
    }

    fn start_part(&mut self, part: Part) {
        let Self { directory, control, listen, admin, backend, .. } = self;
        let process = match part {
            // Do not wait for the agent: the edge that it follows may be down.
            Part::Agent => Process::start(&mut agent_command(directory, *control, *listen, *admin)),
            Part::Controller => controller(directory, *control),
            Part::Edge => {
                let bundle = format!("http://{control}/bundle?pop=here&edge={HOST}");
                edge(directory, *listen, *admin, *backend, &bundle)
            }
        };
        self.running.insert(part, process);
    }

    fn kill(&mut self, part: Part) {
        self.running.remove(&part).unwrap().kill();
    }

    fn is_running(&self, part: Part) -> bool {
        self.running.contains_key(&part)
    }

    /// Returns the edge's active bundle number.
    fn number(&self) -> u64 {
        get_json(self.admin, "/stats")["bundle"]["number"].as_u64().unwrap_or(0)
    }

    /// Returns the number of the stored bundle, which the edge loads at its next start.
    fn kept_number(&self) -> u64 {
        let document = std::fs::read(self.directory.0.join("edge/bundle.json")).unwrap();
        Bundle::decode(&document).unwrap().content().number
    }

    /// Kills the controller, lets `after` modify its stored state, and restarts it. The edge's
    /// bundle number must then increase.
    fn restart_controller(&mut self, after: impl FnOnce(&Directory)) {
        self.kill(Part::Controller);
        let before = self.number();
        after(&self.directory);
        self.start_part(Part::Controller);
        until("the edge has a higher bundle number", || {
            let now = self.number();
            assert!(now >= before, "{now} after {before}");
            now > before
        });
    }
}

/// Observations that later observations must not contradict.
#[derive(Debug, Default)]
struct Seen {
    /// The edge's bundle number.
    number: u64,
    /// The bundle number that the edge acknowledged to the controller.
    acknowledged: u64,
    rounds: Vec<Value>,
    /// Number of responses sent by the edge while no controller was running.
    served_alone: usize,
}

impl Seen {
    /// Checks the current state against earlier observations.
    fn observe(&mut self, all: &Loop) {
        if all.is_running(Part::Edge) {
            let (status, _, content) = http_get(all.listen, "/content", "");
            assert_eq!((status, content.len()), (200, CONTENT_BYTES));
            self.served_alone += usize::from(!all.is_running(Part::Controller));
            let number = all.number();
            assert!(number >= self.number, "the edge has bundle {number} after {}", self.number);
            self.number = number;
        }
        if all.is_running(Part::Controller) {
            let rounds = get_json(all.control, "/rounds?pop=here")["rounds"].take();
            let rounds: Vec<Value> = rounds.as_array().cloned().unwrap_or_default();
            let known = rounds.get(..self.rounds.len());
            assert!(known == Some(&self.rounds), "{rounds:#?} after {:#?}", self.rounds);
            let windows: Vec<_> = rounds.iter().map(|round| program::number(round, "window")).collect();
            assert!(windows.is_sorted_by(|one, next| one < next), "{windows:?}");
            self.rounds = rounds;
            let edges = get_json(all.control, "/edges?pop=here");
            self.acknowledged = edges["edges"][0]["bundle"].as_u64().unwrap_or(0).max(self.acknowledged);
        }
    }

    /// Updates the observations after the edge was killed: a bundle is active before it is stored,
    /// and stored before it is acknowledged to the controller.
    fn edge_is_killed(&mut self, all: &Loop) {
        let kept = all.kept_number();
        assert!(
            kept >= self.acknowledged,
            "the edge stored bundle {kept} but acknowledged {}",
            self.acknowledged
        );
        self.number = self.number.min(kept);
    }
}

#[test]
fn random_kills_of_all_parts_revoke_nothing() {
    let mut random = Random::of_seed();
    let (mut all, mut seen) = (Loop::start(), Seen::default());
    // Keep adding networks, so that the controller always has something new to decide.
    let mut networks = NETWORKS + 1..;
    let mut newcomers = move |listen| {
        let network = networks.next().unwrap();
        Clients::of_networks(listen, network..=network, &["media.example"])
    };
    let mut others = newcomers(all.listen);
    let begun = Instant::now();
    for (at, part) in turns(&mut random) {
        while begun.elapsed() < at {
            seen.observe(&all);
            thread::sleep(POLL_TIME); // kills do not depend on the state of other parts
        }
        let is_running = all.is_running(part);
        println!("{:?}: {part:?} {}", begun.elapsed(), if is_running { "is killed" } else { "begins" });
        match (part, is_running) {
            (Part::Edge, true) => {
                all.kill(part);
                seen.edge_is_killed(&all);
            }
            (_, true) => all.kill(part),
            (Part::Controller, false) => {
                all.start_part(part);
                drop(others);
                others = newcomers(all.listen);
            }
            (_, false) => all.start_part(part),
        }
        seen.observe(&all);
    }
    assert!(seen.served_alone > 0, "the edge must have responded while no controller was running");

    let (window, number) = (newest_window(all.control), seen.number);
    drop(others);
    let _others = newcomers(all.listen);
    until("windows and bundle numbers continue", || {
        seen.observe(&all);
        newest_window(all.control) > window + 1 && seen.number > number
    });
    println!("{:?}: number {} after {number}, {} rounds", begun.elapsed(), seen.number, seen.rounds.len());
}

#[test]
fn controller_without_its_file_reuses_no_bundle_number() {
    Loop::start().restart_controller(|directory| {
        for name in ["control.sqlite", "control.sqlite-wal", "control.sqlite-shm"] {
            let _ = std::fs::remove_file(directory.0.join(name));
        }
    });
}

/// A controller must start even if the stored bundles have another format, as after an upgrade.
#[test]
fn controller_starts_with_bundles_of_another_format() {
    Loop::start().restart_controller(|directory| {
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
