//! Edges are killed under load, some while no agent is running, and so is a program with all roles.
//! Every response that they have started, up to the last one, must be stored or counted as lost.

use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::*;

/// Number of requests sent without load, before and after the kills.
pub(super) const REQUESTS_IN_QUIET: u64 = 200;
/// Maximum number of requests between two events under load.
const REQUESTS_BETWEEN: u64 = 1_500;
/// Content length of a response: more than the socket buffers hold, so that a kill interrupts the
/// response.
const CONTENT_BYTES: usize = 1 << 20;
/// Number of kills of a program with all roles.
const UP_KILLS: u64 = 3;

/// What happens to the agent during the life of an edge process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AgentAction {
    Follow,
    DieAndComeBack,
    Die,
    BeAway,
    ComeBack,
}

/// How an edge under load is stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Killed,
    Interrupted,
}

const EDGE_LIVES: [(AgentAction, Ends); 8] = [
    (AgentAction::Follow, Ends::Killed),
    (AgentAction::DieAndComeBack, Ends::Killed),
    (AgentAction::Follow, Ends::Interrupted),
    (AgentAction::Die, Ends::Killed),
    (AgentAction::BeAway, Ends::Killed),
    (AgentAction::BeAway, Ends::Interrupted),
    (AgentAction::ComeBack, Ends::Killed),
    (AgentAction::Follow, Ends::Killed),
];

/// Client-side counts of responses. A response that was cut off may or may not have been recorded.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) complete: AtomicU64,
    pub(super) cut: AtomicU64,
}

impl Seen {
    /// Sends requests on several connections until the edge cuts them. Runs `does` in the meantime.
    pub(super) fn under_load(&self, edge: SocketAddr, life: u64, does: impl FnOnce()) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let is_over = &is_over;
                scope.spawn(move || {
                    for connection in 0.. {
                        let path = format!("{life}/{client}/{connection}");
                        if is_over.load(SeqCst) || self.use_connection(edge, client, &path).is_err() {
                            return;
                        }
                    }
                });
            }
            does();
            is_over.store(true, SeqCst);
        });
    }

    /// Sends requests on one connection. Depending on the client, the edge responds itself, its
    /// backend responds, or the edge responds once and closes the connection.
    fn use_connection(&self, edge: SocketAddr, client: u64, path: &str) -> io::Result<()> {
        let (method, is_kept) = [("TRACE", true), ("GET", true), ("TRACE", false)][client as usize % 3];
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

    /// Sends [`REQUESTS_IN_QUIET`] requests. No process may be killed in the meantime.
    pub(super) fn send_quiet_requests(&self, edge: SocketAddr) {
        send_requests(edge, REQUESTS_IN_QUIET, 0, &self.complete);
    }

    /// Waits until a random number of further responses is complete.
    pub(super) fn until_more(&self, random: &mut Random) {
        let complete = self.complete.load(SeqCst) + 1 + random.next() % REQUESTS_BETWEEN;
        until("more responses are complete", || self.complete.load(SeqCst) >= complete);
    }
}

/// Starts a server of cacheable content, which runs until this process exits.
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

/// Returns the number of responses started by all processes of an edge: each file has a header of
/// 64 bytes, then a counter every 64 bytes.
pub(super) fn started_responses(state: &Path) -> u64 {
    let sum_of = |content: Vec<u8>| -> u64 {
        assert_eq!(content.len(), 4096);
        content.chunks(64).skip(1).map(|line| u64::from_ne_bytes(*line.first_chunk().unwrap())).sum()
    };
    let files = std::fs::read_dir(state).unwrap();
    files.map(|entry| sum_of(std::fs::read(entry.unwrap().path()).unwrap())).sum()
}

/// Checks that each response appears once. Returns the number of stored responses, and a function
/// that returns the number lost at a stage.
fn check(records: &[Value]) -> (u64, impl Fn(&str) -> u64) {
    let mut numbers: Vec<u64> = records.iter().map(|record| number(record, "number")).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..records.len() as u64), "each number must appear once");
    let paths: Vec<_> = records.iter().filter_map(|record| record["path"].as_str()).collect();
    assert_eq!(paths.iter().collect::<HashSet<_>>().len(), paths.len(), "no response may appear twice");
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
fn responses_started_by_a_killed_edge_are_stored_or_counted() {
    let directory = Directory::new();
    let (database, state) = (directory.0.join("telemetry.sqlite"), directory.0.join("edge"));
    let (admin, backend, seen, mut random) =
        (free_address(), format!("http://{}", backend()), Seen::default(), Random(SEED));
    let start = || sqlite_agent(admin, &directory.0, &database);
    let wait_for_all = || {
        until("all responses are accounted for", || {
            count(&database, STORED_OR_LOST) == started_responses(&state)
        });
    };
    let (mut running, mut address) = edge_before(&backend, admin, &directory.0);
    let mut following = Some(start().0);
    following.as_ref().unwrap().wait_for_log(FOLLOWING);
    // Responses before the first one in the agent's spool are not accounted for, so wait until the
    // spool contains a response.
    seen.send_quiet_requests(address);
    wait_for_all();

    let mut complete_unheard = 0;
    for (life, (agent_action, ends)) in EDGE_LIVES.into_iter().enumerate() {
        let complete = seen.complete.load(SeqCst);
        seen.under_load(address, life as u64, || {
            seen.until_more(&mut random);
            if matches!(agent_action, AgentAction::DieAndComeBack | AgentAction::Die) {
                following.take().unwrap().kill();
                seen.until_more(&mut random);
            }
            if matches!(agent_action, AgentAction::DieAndComeBack | AgentAction::ComeBack) {
                following = Some(start().0);
                seen.until_more(&mut random);
            }
            match ends {
                Ends::Killed => running.kill(),
                Ends::Interrupted => running.interrupt(),
            }
        });
        if ends == Ends::Interrupted {
            assert_eq!(running.exit_code(), Some(0));
        }
        if agent_action == AgentAction::BeAway {
            complete_unheard += seen.complete.load(SeqCst) - complete;
        }
        (running, address) = edge_before(&backend, admin, &directory.0);
    }
    wait_for_all();
    seen.send_quiet_requests(address);
    wait_for_all();
    running.stop();
    following.unwrap().stop();
    drain(&directory.0.join("spool"), &[("--json", &directory.0.join("files"))]);

    let records = records(&directory.0.join("files"));
    let (kept, lost_at) = check(&records);
    let lost = lost_at("edge") + lost_at("follow");
    assert_eq!(kept + lost, started_responses(&state), "started = stored + counted losses");
    let (complete, cut) = (seen.complete.load(SeqCst), seen.cut.load(SeqCst));
    assert!((complete..=complete + cut).contains(&(kept + lost)), "{complete} {cut} {kept} {lost}");
    assert!(lost_at("edge") >= complete_unheard && kept >= 2 * REQUESTS_IN_QUIET);
}

#[test]
fn responses_started_by_a_killed_program_are_stored_or_counted() {
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
        let address = running.wait_for_log("edge listening").parse().unwrap();
        let metrics = running.wait_for_log("agent listening").parse().unwrap();
        (running, address, metrics)
    };
    let (mut running, mut address, metrics) = start();
    seen.send_quiet_requests(address);
    until("all responses are followed", || {
        metric_values(metrics)["thalweg_agent_spool_records_total"] as u64 == started_responses(&state)
    });
    for life in 0..UP_KILLS {
        seen.under_load(address, life, || {
            seen.until_more(&mut random);
            running.kill();
        });
        (running, address, _) = start();
    }
    seen.send_quiet_requests(address);
    running.stop();
    drain(&spool, &[("--json", &files)]);

    let records = records(&files);
    let (kept, lost_at) = check(&records);
    let lost = lost_at("edge") + lost_at("follow");
    assert_eq!(kept + lost, started_responses(&state), "started = stored + counted losses");
    let (complete, cut) = (seen.complete.load(SeqCst), seen.cut.load(SeqCst));
    assert!((complete..=complete + cut).contains(&(kept + lost)), "{complete} {cut} {kept} {lost}");
    assert!(kept >= 2 * REQUESTS_IN_QUIET);
}
