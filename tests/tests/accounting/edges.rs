//! Edges that are killed under load, some while the agent is away, and a whole program that is: what they had begun is kept or
//! counted, to the last response.

use std::sync::atomic::AtomicBool;

use serde_json::Value;
use thalweg_cache::counters::{FILE_BYTES, sum_of};

use super::*;

/// What is asked for in quiet, before and after.
pub(super) const REQUESTS_IN_QUIET: u64 = 200;
/// And, at most, between two things that happen under load.
const REQUESTS_BETWEEN: u64 = 1_500;
/// Of what the backend has: more than a socket takes at once, so that a kill comes in the middle.
const CONTENT_BYTES: usize = 1 << 20;
/// How often a whole program is killed.
const UP_KILLS: u64 = 3;

/// What the agent does in a life of the edge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AgentDoes {
    Follow,
    DieAndComeBack,
    Die,
    BeAway,
    ComeBack,
}

/// How an edge ends under load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Killed,
    Told,
}

const EDGE_LIVES: [(AgentDoes, Ends); 8] = [
    (AgentDoes::Follow, Ends::Killed),
    (AgentDoes::DieAndComeBack, Ends::Killed),
    (AgentDoes::Follow, Ends::Told),
    (AgentDoes::Die, Ends::Killed),
    (AgentDoes::BeAway, Ends::Killed),
    (AgentDoes::BeAway, Ends::Told),
    (AgentDoes::ComeBack, Ends::Killed),
    (AgentDoes::Follow, Ends::Killed),
];

/// What clients have seen of their requests. One that was cut off may have been taken or not.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) complete: AtomicU64,
    pub(super) cut: AtomicU64,
}

impl Seen {
    /// Asks on some connections until they are cut, meanwhile does something.
    pub(super) fn while_asking(&self, edge: SocketAddr, life: u64, does: impl FnOnce()) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let is_over = &is_over;
                scope.spawn(move || {
                    for connection in 0.. {
                        let path = format!("{life}/{client}/{connection}");
                        if is_over.load(SeqCst) || self.ask(edge, client, &path).is_err() {
                            return;
                        }
                    }
                });
            }
            does();
            is_over.store(true, SeqCst);
        });
    }

    /// One connection: kept for whole answers of the edge or of its backend, or closed after each.
    fn ask(&self, edge: SocketAddr, client: u64, path: &str) -> io::Result<()> {
        let (method, is_kept) = [("OPTIONS", true), ("GET", true), ("OPTIONS", false)][client as usize % 3];
        let mut stream = BufReader::new(site::connect(edge, network_of(client))?);
        for at in 0.. {
            let close = if is_kept { "" } else { "Connection: close\r\n" };
            let request = format!("{method} /{path}/{at} HTTP/1.1\r\nHost: a\r\n{close}\r\n");
            let read =
                stream.get_mut().write_all(request.as_bytes()).and_then(|()| read_response(&mut stream));
            match read {
                Ok(_) => self.complete.fetch_add(1, SeqCst),
                Err(error) => {
                    self.cut.fetch_add(1, SeqCst);
                    return Err(error);
                }
            };
            if !is_kept {
                break;
            }
        }
        Ok(())
    }

    /// As [`ask`], without a cut.
    pub(super) fn ask_in_quiet(&self, edge: SocketAddr) {
        ask(edge, REQUESTS_IN_QUIET, 0, &self.complete);
    }

    /// Waits until some more are complete.
    pub(super) fn until_more(&self, random: &mut Random) {
        let complete = self.complete.load(SeqCst) + 1 + random.next() % REQUESTS_BETWEEN;
        until("more is asked for", || self.complete.load(SeqCst) >= complete);
    }
}

/// A server whose content any cache may keep, as long as this process.
pub(super) fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(stream: TcpStream) -> io::Result<()> {
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {CONTENT_BYTES}\r\nCache-Control: max-age=60\r\n\r\n");
    let response = [head.as_bytes(), &vec![b'c'; CONTENT_BYTES]].concat();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line)? > 0 {
        if line == "\r\n" {
            stream.get_mut().write_all(&response)?;
        }
        line.clear();
    }
    Ok(())
}

/// What all starts of an edge have begun.
pub(super) fn begun(state: &Path) -> u64 {
    let files = std::fs::read_dir(state).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    let files = files.map(|content| <[u8; FILE_BYTES]>::try_from(content).unwrap());
    files.map(|content| sum_of(&content)).sum()
}

/// Each response is there once; gives how many are kept, and how many were lost at a stage.
fn check(records: &[Value]) -> (u64, impl Fn(&str) -> u64) {
    let mut numbers: Vec<u64> = records.iter().map(|record| number(record, "number")).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..records.len() as u64), "each number is there once");
    let paths: Vec<_> = records.iter().filter_map(|record| record["path"].as_str()).collect();
    assert_eq!(paths.iter().collect::<HashSet<_>>().len(), paths.len(), "no response is there twice");
    let lost = |stage: &str| {
        let at_stage = records.iter().filter(|record| record["stage"] == stage);
        at_stage.map(|loss| number(loss, "records")).sum()
    };
    assert_eq!(
        records.iter().filter(|record| record["stage"].is_string()).count() + paths.len(),
        records.len()
    );
    (paths.len() as u64, lost)
}

#[test]
fn what_a_killed_edge_had_begun_is_kept_or_counted() {
    let directory = Directory::new();
    let (database, state) = (directory.0.join("telemetry.sqlite"), directory.0.join("edge"));
    let (admin, backend, seen, mut random) =
        (free(), format!("http://{}", backend()), Seen::default(), Random(SEED));
    let start = || keeping_agent(admin, &directory.0, &database);
    let has_all = || until("all is told", || count(&database, TOLD) == begun(&state));
    let (mut running, mut address) = edge_before(&backend, admin, &directory.0);
    let mut following = Some(start().0);
    following.as_ref().unwrap().said(FOLLOWING);
    // An edge is followed from the first response that is in the spool.
    seen.ask_in_quiet(address);
    has_all();

    let mut complete_unheard = 0;
    for (life, (agent_does, ends)) in EDGE_LIVES.into_iter().enumerate() {
        let complete = seen.complete.load(SeqCst);
        seen.while_asking(address, life as u64, || {
            seen.until_more(&mut random);
            if matches!(agent_does, AgentDoes::DieAndComeBack | AgentDoes::Die) {
                following.take().unwrap().kill();
                seen.until_more(&mut random);
            }
            if matches!(agent_does, AgentDoes::DieAndComeBack | AgentDoes::ComeBack) {
                following = Some(start().0);
                seen.until_more(&mut random);
            }
            match ends {
                Ends::Killed => running.kill(),
                Ends::Told => running.interrupt(),
            }
        });
        if ends == Ends::Told {
            assert_eq!(running.ended(), Some(0));
        }
        if agent_does == AgentDoes::BeAway {
            complete_unheard += seen.complete.load(SeqCst) - complete;
        }
        (running, address) = edge_before(&backend, admin, &directory.0);
    }
    has_all();
    seen.ask_in_quiet(address);
    has_all();
    running.end();
    following.unwrap().end();
    drain(&directory.0.join("spool"), &[("--json", &directory.0.join("files"))]);

    let records = records(&directory.0.join("files"));
    let (kept, lost_at) = check(&records);
    let lost = lost_at("edge") + lost_at("follow");
    assert_eq!(kept + lost, begun(&state), "begun = kept + counted losses");
    let (complete, cut) = (seen.complete.load(SeqCst), seen.cut.load(SeqCst));
    assert!((complete..=complete + cut).contains(&(kept + lost)), "{complete} {cut} {kept} {lost}");
    assert!(lost_at("edge") >= complete_unheard && kept >= 2 * REQUESTS_IN_QUIET);
}

#[test]
fn what_a_killed_program_had_begun_is_kept_or_counted() {
    let directory = Directory::new();
    let (seen, mut random, backend) = (Seen::default(), Random(SEED), backend());
    let [state, spool, files] = ["edge", "spool", "files"].map(|name| directory.0.join(name));
    let config = format!(
        "[edge]\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nmemory = '16MiB'\nbackends = ['http://{backend}']\n\
         state = 'edge'\n\
         [agent]\nperiod = '1h'\nsockets = 'sport 1'\nspool = 'spool=64MiB'\njson = 'files'\nlisten = '127.0.0.1:0'\n",
    );
    let config = directory.file("thalweg.toml", &config);
    let start = || {
        let running = Process::start(thalweg().args(["up", "--config", &config]));
        let address = running.said("edge listening").parse().unwrap();
        let metrics = running.said("agent listening").parse().unwrap();
        (running, address, metrics)
    };
    let (mut running, mut address, metrics) = start();
    seen.ask_in_quiet(address);
    until("all is heard", || figures(metrics)["thalweg_agent_spool_records_total"] as u64 == begun(&state));
    for life in 0..UP_KILLS {
        seen.while_asking(address, life, || {
            seen.until_more(&mut random);
            running.kill();
        });
        (running, address, _) = start();
    }
    seen.ask_in_quiet(address);
    running.end();
    drain(&spool, &[("--json", &files)]);

    let records = records(&files);
    let (kept, lost_at) = check(&records);
    let lost = lost_at("edge") + lost_at("follow");
    assert_eq!(kept + lost, begun(&state), "begun = kept + counted losses");
    let (complete, cut) = (seen.complete.load(SeqCst), seen.cut.load(SeqCst));
    assert!((complete..=complete + cut).contains(&(kept + lost)), "{complete} {cut} {kept} {lost}");
    assert!(kept >= 2 * REQUESTS_IN_QUIET);
}
