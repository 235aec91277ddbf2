//! Thousands of sockets in every state that loopback gives, beside what `ss` of iproute2 says of them.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, listen, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thalweg_tcp::congestion;
use thalweg_tcp::diag::{Diag, Extensions, Filter, Socket, State};

use crate::pairs::{Pair, connect as pair};

/// Connections to each listener: both ends of them are 3,000 sockets.
const CONNECTIONS: usize = 500;
/// How long the sockets may take to come to rest on a machine that has much else to do.
const REST_MAX: Duration = Duration::from_secs(60);

/// The sockets, which live as long as this.
#[derive(Default)]
struct Crowd {
    listeners: Vec<TcpListener>,
    pairs: Vec<Pair>,
    raw: Vec<OwnedFd>,
}

impl Crowd {
    fn new() -> Self {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        let mut crowd = Self::default();
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        for (bound, target) in [(v4, v4), (v6, v6), (Ipv6Addr::UNSPECIFIED.into(), v4)] {
            let listener = TcpListener::bind(SocketAddr::new(bound, 0)).unwrap();
            for number in 0..CONNECTIONS {
                let pair = pair(&listener, |port| SocketAddr::new(target, port));
                crowd.pairs.extend(lived(pair, number));
            }
            crowd.listeners.push(listener);
        }
        crowd.add_syn_sent();
        crowd
    }

    /// A listener whose queue is full does not answer.
    fn add_syn_sent(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let make = || socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        let full = make();
        rustix::net::bind(&full, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        listen(&full, 0).unwrap();
        let listener = TcpListener::from(full);
        let address = listener.local_addr().unwrap();
        for _ in 0..4 {
            let client = make();
            let _ = connect(&client, &address); // it is in progress
            self.raw.push(client);
        }
        self.listeners.push(listener);
    }

    fn ports(&self) -> Vec<u16> {
        self.listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
    }
}

/// What becomes of a connection: open, used, half closed, closed while nothing more can be sent, over.
fn lived(mut pair: Pair, number: usize) -> Option<Pair> {
    let name = ["reno", "cubic", "bbr"][number % 3];
    congestion::set(pair.server.as_fd(), name.parse().unwrap()).unwrap();
    match number % 7 {
        0 => {}
        1 | 2 => {
            let bytes = 1 + number * 37;
            pair.server.write_all(&vec![7; bytes]).unwrap();
            pair.client.read_exact(&mut vec![0; bytes]).unwrap();
        }
        3 => pair.client.write_all(b"unread").unwrap(),
        4 => pair.client.shutdown(Shutdown::Write).unwrap(), // FIN-WAIT-2 and CLOSE-WAIT
        5 if number < 21 => {
            fill(&mut pair.server);
            pair.server.shutdown(Shutdown::Write).unwrap(); // FIN-WAIT-1: the FIN stands behind what is not taken
        }
        6 if number < 21 => {
            pair.client.shutdown(Shutdown::Write).unwrap();
            pair.server.read_exact(&mut [0]).unwrap_err(); // the FIN is there
            fill(&mut pair.server);
            pair.server.shutdown(Shutdown::Write).unwrap(); // LAST-ACK
        }
        6 => {
            pair.client.shutdown(Shutdown::Write).unwrap();
            pair.server.read_exact(&mut [0]).unwrap_err();
            return None; // TIME-WAIT of the client
        }
        _ => {}
    }
    Some(pair)
}

/// Sends until neither side takes any more.
fn fill(stream: &mut TcpStream) {
    stream.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + Duration::from_millis(50);
    while Instant::now() < deadline {
        if stream.write(&[7; 65_536]).is_err() {
            std::thread::yield_now();
        }
    }
}

/// What is compared of a socket.
type Fields = BTreeMap<&'static str, String>;

/// What a dump says of those that have one of the ports, by cookie.
fn ours(ports: &[u16]) -> HashMap<u64, (Fields, State)> {
    let mut found = HashMap::new();
    let all = Filter::parse("state all").unwrap();
    let each = |socket: &Socket| {
        if ports.contains(&socket.local.port()) || ports.contains(&socket.remote.port()) {
            found.insert(socket.cookie, (fields(socket), socket.state));
        }
    };
    Diag::open().unwrap().dump(&all, Extensions::ALL, each).unwrap();
    found
}

fn fields(socket: &Socket) -> Fields {
    let mut fields = Fields::new();
    fields.insert("state", socket.state.to_string());
    fields.insert("local", shown(socket.local, socket));
    fields.insert("remote", shown(socket.remote, socket));
    // What waits while it is closed is sent again and again.
    let is_at_rest = !matches!(
        socket.state,
        State::FinWait1 | State::LastAck | State::SynSent | State::TimeWait | State::Closing
    );
    if !is_at_rest {
        return fields;
    }
    let mut put = |name, value: Option<String>| {
        if let Some(value) = value.filter(|value| value != "0") {
            fields.insert(name, value);
        }
    };
    put("rqueue", Some(socket.rqueue_bytes.to_string()));
    put("wqueue", Some(socket.wqueue_bytes.to_string()));
    put("ino:", Some(socket.inode.to_string()));
    put("cc", socket.congestion_control.map(|name| name.to_string()));
    if let Some(info) = socket.tcp_info.filter(|_| socket.state != State::Listen) {
        put("mss:", Some(info.snd_mss_bytes.to_string()));
        put("cwnd:", Some(info.snd_cwnd.to_string()));
        put("bytes_acked:", info.bytes_acked.map(|bytes| bytes.to_string()));
        put("bytes_sent:", info.bytes_sent.map(|bytes| bytes.to_string()));
        put("bytes_received:", info.bytes_received.map(|bytes| bytes.to_string()));
        put("segs_out:", info.segs_out.map(|segments| segments.to_string()));
        put("segs_in:", info.segs_in.map(|segments| segments.to_string()));
        put("data_segs_out:", info.data_segs_out.map(|segments| segments.to_string()));
        put("data_segs_in:", info.data_segs_in.map(|segments| segments.to_string()));
        put("minrtt:", info.min_rtt_us.map(|us| milliseconds(us.into())));
        put("rto:", Some(milliseconds(info.rto_us.into())));
    }
    fields
}

/// As `ss` has an address: any of IPv6 and of IPv4 is a star.
fn shown(address: SocketAddr, socket: &Socket) -> String {
    let port = if address.port() == 0 { "*".to_owned() } else { address.port().to_string() };
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unspecified() && socket.is_v6_only != Some(true) => {
            format!("*:{port}")
        }
        SocketAddr::V6(v6) => format!("[{}]:{port}", v6.ip()),
        SocketAddr::V4(v4) => format!("{}:{port}", v4.ip()),
    }
}

/// As `ss` prints microseconds: `%g` of milliseconds.
fn milliseconds(us: u64) -> String {
    let (whole, part) = (us / 1000, us % 1000);
    let text = format!("{whole}.{part:03}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What `ss` says of those that have one of the ports, by cookie.
fn theirs(ports: &[u16]) -> HashMap<u64, Fields> {
    let output = Command::new("ss").arg("-tinHOea").output().expect("tools/setup test installs ss");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let is_ours = |address: &str| {
        address.rsplit_once(':').is_some_and(|(_, port)| port.parse().is_ok_and(|port| ports.contains(&port)))
    };
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = lines.filter(|words| is_ours(words[3]) || is_ours(words[4]));
    ours.map(|words| {
        let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
        let cookie = u64::from_str_radix(value("sk:").expect("ss -e tells the cookie"), 16).unwrap();
        let mut fields = Fields::new();
        fields.insert("state", words[0].to_owned());
        fields.insert("rqueue", words[1].to_owned());
        fields.insert("wqueue", words[2].to_owned());
        fields.insert("local", words[3].to_owned());
        fields.insert("remote", words[4].to_owned());
        let names = ["reno", "cubic", "bbr"];
        if let Some(name) = words.iter().find(|word| names.contains(word)) {
            fields.insert("cc", (*name).to_owned());
        }
        let numbers = [
            "ino:",
            "mss:",
            "cwnd:",
            "bytes_acked:",
            "bytes_sent:",
            "bytes_received:",
            "segs_out:",
            "segs_in:",
            "data_segs_out:",
            "data_segs_in:",
            "minrtt:",
            "rto:",
        ];
        fields.extend(numbers.into_iter().filter_map(|name| Some((name, value(name)?.to_owned()))));
        (cookie, fields)
    })
    .collect()
}

#[test]
fn ss_says_the_same() {
    let crowd = Crowd::new();
    let ports = crowd.ports();
    let deadline = Instant::now() + REST_MAX;
    // What is not at rest, a delayed acknowledgement for one, differs between two dumps.
    let (ours, theirs) = loop {
        let before = ours(&ports);
        let said = theirs(&ports);
        if before == ours(&ports) {
            break (before, said);
        }
        assert!(Instant::now() < deadline, "the sockets do not come to rest");
    };
    assert!(
        ours.len() > 6 * CONNECTIONS - 500 && ours.len() == theirs.len(),
        "{} {}",
        ours.len(),
        theirs.len()
    );
    let mut states: BTreeMap<State, usize> = BTreeMap::new();
    let mut compared = 0;
    for (cookie, (fields, state)) in &ours {
        *states.entry(*state).or_default() += 1;
        let said = &theirs[cookie];
        for (name, value) in fields {
            assert_eq!(said.get(name), Some(value), "{name} of {fields:?}, and ss says {said:?}");
            compared += 1;
        }
    }
    assert!(compared > 10 * ours.len(), "{compared} fields of {} sockets", ours.len());
    use State::{CloseWait, Established, FinWait1, FinWait2, LastAck, Listen, SynSent, TimeWait};
    for state in [Established, SynSent, FinWait1, FinWait2, CloseWait, LastAck, Listen, TimeWait] {
        assert!(states.contains_key(&state), "no socket was in {state}: {states:?}");
    }
}
