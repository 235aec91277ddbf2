//! Faults of the whole loop under load: its parts are killed at any moment, by a seed (`SEED=n` has another one), and a controller has
//! lost its file or finds another release's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg_bundle::Bundle;

use super::program::site::{CONTENT_BYTES, Clients, NETWORKS, ask, backend, told};
use super::program::{self, Directory, Port, Process, records, until};
use super::{HOST, agent, agent_command, controller, edge};

const DEFAULT_SEED: u64 = 20_261_122;
/// Times that each part is killed.
const KILLS: usize = 4;
/// How long a part is there before it is killed, and away then: a window has two seconds and takes records for one more.
const THERE_MS_MAX: u64 = 5000;
const AWAY_MS_MAX: u64 = 1500;
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// xorshift64.
struct Random(u64);

impl Random {
    /// One that goes by `SEED`, which is told.
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
        thread::sleep(Duration::from_millis(random.below(THERE_MS_MAX)));
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Agent,
    Controller,
    Edge,
}

/// The moments at which a part goes, or comes back; each by its own time, so that any of them are away together.
fn turns(random: &mut Random) -> Vec<(Duration, Part)> {
    let mut turns = Vec::new();
    for part in [Part::Agent, Part::Controller, Part::Edge] {
        let mut at_ms = 0;
        for _ in 0..KILLS {
            for ms_max in [THERE_MS_MAX, AWAY_MS_MAX] {
                at_ms += random.below(ms_max);
                turns.push((Duration::from_millis(at_ms), part));
            }
        }
    }
    turns.sort_by_key(|(at, _)| *at);
    turns
}

/// The whole loop under load, once some bundles have come to its edge.
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
            all.begin(part);
        }
        until("there were some bundles", || all.number() >= 3);
        all
    }

    fn begin(&mut self, part: Part) {
        let Self { directory, control, listen, admin, backend, .. } = self;
        let process = match part {
            // Not waited for: the edge that it follows may be away.
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

    fn is_there(&self, part: Part) -> bool {
        self.running.contains_key(&part)
    }

    /// The number of the bundle that the edge goes by.
    fn number(&self) -> u64 {
        told(self.admin, "/stats")["bundle"]["number"].as_u64().unwrap_or(0)
    }

    /// The number of the bundle that the edge begins with.
    fn kept_number(&self) -> u64 {
        let document = std::fs::read(self.directory.0.join("edge/bundle.json")).unwrap();
        Bundle::decode(&document).unwrap().content().number
    }

    /// The controller begins again, after something was done to what it has kept: the edge's number goes up.
    fn begin_again(&mut self, after: impl FnOnce(&Directory)) {
        self.kill(Part::Controller);
        let before = self.number();
        after(&self.directory);
        self.begin(Part::Controller);
        until("the edge has a higher number", || {
            let now = self.number();
            assert!(now >= before, "{now} after {before}");
            now > before
        });
    }
}

/// What was seen of a loop, which must not be taken back.
#[derive(Debug, Default)]
struct Seen {
    /// The number of the edge's bundle.
    number: u64,
    /// That which the controller has of the edge.
    acknowledged: u64,
    rounds: Vec<Value>,
    /// Answers of the edge while no controller was there.
    served_alone: usize,
}

impl Seen {
    /// Looks at what is there.
    fn look(&mut self, all: &Loop) {
        if all.is_there(Part::Edge) {
            let (status, _, content) = ask(all.listen, "/content", "");
            assert_eq!((status, content.len()), (200, CONTENT_BYTES));
            self.served_alone += usize::from(!all.is_there(Part::Controller));
            let number = all.number();
            assert!(number >= self.number, "the edge goes by {number} after {}", self.number);
            self.number = number;
        }
        if all.is_there(Part::Controller) {
            let rounds = told(all.control, "/rounds?pop=here")["rounds"].take();
            let rounds: Vec<Value> = rounds.as_array().cloned().unwrap_or_default();
            let known = rounds.get(..self.rounds.len());
            assert!(known == Some(&self.rounds), "{rounds:#?} after {:#?}", self.rounds);
            let windows: Vec<_> = rounds.iter().map(|round| program::number(round, "window")).collect();
            assert!(windows.is_sorted_by(|one, next| one < next), "{windows:?}");
            self.rounds = rounds;
            let edges = told(all.control, "/edges?pop=here");
            self.acknowledged = edges["edges"][0]["bundle"].as_u64().unwrap_or(0).max(self.acknowledged);
        }
    }

    /// Once the edge is killed: a bundle is in force before it is kept, and kept before the controller hears of it.
    fn edge_is_killed(&mut self, all: &Loop) {
        let kept = all.kept_number();
        assert!(kept >= self.acknowledged, "it begins with {kept}, and has told of {}", self.acknowledged);
        self.number = self.number.min(kept);
    }
}

#[test]
fn agent_controller_and_edge_are_killed_at_any_moment_and_nothing_is_taken_back() {
    let mut random = Random::of_seed();
    let (mut all, mut seen) = (Loop::start(), Seen::default());
    // Networks that come and go, so that there is always something new to be told.
    let mut networks = NETWORKS + 1..;
    let mut newcomers = move |listen| {
        let network = networks.next().unwrap();
        Clients::of_networks(listen, network..=network, &["media.example"])
    };
    let mut others = newcomers(all.listen);
    let begun = Instant::now();
    for (at, part) in turns(&mut random) {
        while begun.elapsed() < at {
            seen.look(&all);
            thread::sleep(LOOK_EVERY); // a part goes whatever the others are at
        }
        let is_there = all.is_there(part);
        println!("{:?}: {part:?} {}", begun.elapsed(), if is_there { "is killed" } else { "begins" });
        match (part, is_there) {
            (Part::Edge, true) => {
                all.kill(part);
                seen.edge_is_killed(&all);
            }
            (_, true) => all.kill(part),
            (Part::Controller, false) => {
                all.begin(part);
                drop(others);
                others = newcomers(all.listen);
            }
            (_, false) => all.begin(part),
        }
        seen.look(&all);
    }
    assert!(seen.served_alone > 0, "never asked without a controller");

    let (window, number) = (newest_window(all.control), seen.number);
    drop(others);
    let _others = newcomers(all.listen);
    until("windows and numbers go on", || {
        seen.look(&all);
        newest_window(all.control) > window + 1 && seen.number > number
    });
    println!("{:?}: number {} after {number}, {} rounds", begun.elapsed(), seen.number, seen.rounds.len());
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
