//! An edge that records one client in N: each of its responses must be stored, counted as lost, or
//! counted as sampled out, even if the agent and the edge are killed. A client is recorded
//! completely or not at all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use socket2::{Domain, Socket, Type};

use super::edges::started_responses;
use super::*;

const ONE_IN: u64 = 3;
const SAMPLED_CLIENTS: u32 = 240;
/// Clients that send requests at the same time.
const AT_ONCE: usize = 4;
const REQUESTS_PER_CLIENT: u64 = 20;

fn sampling_edge(admin: SocketAddr, directory: &Path) -> (Process, SocketAddr) {
    let mut command = thalweg();
    command.args([
        "edge",
        "--listen",
        "127.0.0.1:0",
        "--memory",
        "16MiB",
        "--backend",
        NO_BACKEND,
        "--state",
    ]);
    command.arg(directory.join("edge")).args(["--records-sample", &ONE_IN.to_string()]);
    command.args(["--records-sample-salt", "river", "--admin", &admin.to_string()]);
    let edge = Process::start(&mut command);
    let address = edge.wait_for_log("edge listening").parse().unwrap();
    (edge, address)
}

/// Sends requests from every client, each on its own connection.
fn send_from_all_clients(edge: SocketAddr, life: u64, answered: &AtomicU64) {
    let clients: Vec<_> = (1..=SAMPLED_CLIENTS).map(|at| Ipv4Addr::from_bits(0x7f09_0000 + at)).collect();
    thread::scope(|scope| {
        for part in clients.chunks(clients.len() / AT_ONCE) {
            scope.spawn(move || part.iter().for_each(|client| send_from(edge, *client, life, answered)));
        }
    });
}

fn send_from(edge: SocketAddr, client: Ipv4Addr, life: u64, answered: &AtomicU64) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((client, 0)).into()).unwrap();
    socket.connect(&edge.into()).unwrap();
    let mut stream = BufReader::new(TcpStream::from(socket));
    for at in 0..REQUESTS_PER_CLIENT {
        let request = format!("TRACE /{life}/{client}/{at} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        read_response(&mut stream).unwrap();
        answered.fetch_add(1, SeqCst);
    }
}

/// Returns a counter of the edge.
fn edge_counter(admin: SocketAddr, name: &str) -> u64 {
    let text = program::metrics(admin);
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap().parse().unwrap()
}

/// Returns the number of stored responses of each client.
fn stored_by_client(database: &Path) -> HashMap<IpAddr, u64> {
    let database = Connection::open_with_flags(database, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let mut query = database.prepare("SELECT client_ip, count(*) FROM responses GROUP BY 1").unwrap();
    let rows =
        query.query_map([], |row| Ok((row.get::<_, String>(0)?.parse().unwrap(), row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn sampled_responses_are_stored_and_others_counted() {
    let directory = Directory::new();
    let database = directory.0.join("telemetry.sqlite");
    let (admin, answered) = (free_address(), AtomicU64::new(0));
    let start = || sqlite_agent(admin, &directory.0, &database);
    let (mut running, address) = sampling_edge(admin, &directory.0);
    let mut following = start().0;
    following.wait_for_log(FOLLOWING);
    let per_life = u64::from(SAMPLED_CLIENTS) * REQUESTS_PER_CLIENT;

    let all_are_stored = |lives: u64| {
        let [begun, sampled_out] = ["begun", "sampled_out"]
            .map(|name| edge_counter(admin, &format!("thalweg_edge_responses_{name}_total")));
        assert_eq!(begun, lives * per_life);
        until("all responses are accounted for", || count(&database, STORED_OR_LOST) + sampled_out == begun);
        (begun, sampled_out)
    };
    // Responses before the first one in the agent's spool are not accounted for.
    send_from_all_clients(address, 0, &answered);
    all_are_stored(1);

    // Kill the agent under load.
    thread::scope(|scope| {
        scope.spawn(|| send_from_all_clients(address, 1, &answered));
        until("requests are under way", || answered.load(SeqCst) >= per_life * 3 / 2);
        following.kill();
        following = start().0;
    });
    let (begun, sampled_out) = all_are_stored(2);
    assert_eq!(started_responses(&directory.0.join("edge")), begun - sampled_out);

    // Kill the edge, and then its agent. The next edge draws the same clients.
    running.kill();
    following.kill();
    let (running, address) = sampling_edge(admin, &directory.0);
    send_from_all_clients(address, 2, &answered);
    let following = start().0;
    let recorded = || started_responses(&directory.0.join("edge"));
    until("all responses are accounted for", || count(&database, STORED_OR_LOST) == recorded());
    assert_eq!(count(&database, "count(*) FROM losses"), 0, "a response that is sampled out is not lost");

    let stored = stored_by_client(&database);
    let complete = 3 * REQUESTS_PER_CLIENT;
    assert!(stored.values().all(|&count| count == complete), "{stored:?}");
    assert_eq!(sampled_out / 2 * 3 + stored.len() as u64 * complete, 3 * per_life);
    // A third of the clients, within four standard deviations.
    let (clients, share) = (f64::from(SAMPLED_CLIENTS), 1.0 / ONE_IN as f64);
    let deviation = (clients * share * (1.0 - share)).sqrt();
    assert!((stored.len() as f64 - clients * share).abs() < 4.0 * deviation, "{}", stored.len());
    let responses = stored.len() as u64 * complete;
    assert_eq!(
        count(&database, &format!("count(*) FROM responses WHERE sample_one_in = {ONE_IN}")),
        responses
    );
    assert_eq!(count(&database, "sum(responses) FROM responses_5m"), responses * ONE_IN);
    assert_eq!(
        count(&database, "sum(bytes) FROM responses_5m"),
        ONE_IN * count(&database, "sum(bytes) FROM responses")
    );
    following.stop();
    running.stop();
}
