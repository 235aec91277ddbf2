//! Steering tests on accepted sockets: decider precedence, and agreement of policies, policy
//! variables and records with the kernel.

use std::os::fd::AsFd;

use thalweg_http::RequestHead;
use thalweg_http::head::parse_request;
use thalweg_policy::source::File;
use thalweg_policy::task::{
    Client, Fetch, LogLine, LogSource, NoHost, Object, RequestState, Session, Workspace,
};
use thalweg_policy::{Action, Connection as _, Known, Program, Sub, Task, compile};
use thalweg_record::TcpState;
use thalweg_tcp::{TcpInfo, sending};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const MIN: u64 = 100_000;
use Decider::{Default, Experiment, Policy, Rule};

fn name(text: &str) -> CongestionControl {
    text.parse().unwrap()
}

/// An accepted socket and its client.
struct Accepted {
    stream: TcpStream,
    _client: TcpStream,
    steering: Steering,
    common: SharedSteering,
}

impl Accepted {
    async fn with(default: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = listener.accept().await.unwrap().0;
        let common = SharedSteering::new(MIN);
        let steering = Steering::begin(stream.as_fd(), default.map(name), &common);
        Self { stream, _client: client, steering, common }
    }

    fn socket(&mut self) -> Socket<'_> {
        Socket {
            fd: self.stream.as_fd(),
            steering: &mut self.steering,
            common: &self.common,
            delivered: None,
        }
    }

    fn apply(
        &mut self,
        by: Decider,
        algorithm: &str,
        response_bytes: u64,
    ) -> Result<bool, thalweg_tcp::Error> {
        let (algorithm, response_bytes) = (Some(name(algorithm)), Some(response_bytes));
        let request = SteeringRequest { by, algorithm, response_bytes, size_bytes_min: MIN };
        self.steering.apply(self.stream.as_fd(), request, &self.common)
    }

    /// Reads the kernel's current algorithm.
    fn algorithm(&self) -> String {
        congestion::get(self.stream.as_fd()).unwrap().to_string()
    }

    /// Reads the TCP state as it appears in a record.
    fn tcp(&self) -> TcpState {
        let info = TcpInfo::read(self.stream.as_fd()).unwrap();
        Tcp::of(&info, &self.steering).unwrap().into()
    }

    /// Runs `vcl_recv` for a request with these fields. Returns the request and the log lines.
    fn recv(&mut self, program: &Program, fields: &str) -> (RequestHead, Vec<LogLine>) {
        let mut req = RequestHead::default();
        let text = format!("GET /a HTTP/1.1\r\nHost: media.example\r\n{fields}\r\n");
        parse_request(text.as_bytes(), &mut req, &thalweg_http::Limits::default()).unwrap().unwrap();
        let mut log = Vec::new();
        self.steering.begin_request();
        let action = program.run(
            Sub::Recv,
            &mut Task {
                now_s: 0.0,
                original: None,
                req: Some(&mut req),
                bereq: None,
                beresp: None,
                obj: None,
                resp: None,
                client: &mut Client::default(),
                fetch: &mut Fetch::default(),
                object: &Object::default(),
                session: &mut Session::default(),
                connection: &mut self.socket(),
                host: &NoHost,
                log: &mut log,
                kept: &mut RequestState::default(),
                workspace: &mut Workspace::default(),
                random: &mut 1,
            },
        );
        assert_eq!(action, Ok(Action::Hash));
        (req, log)
    }
}

fn program(text: &str) -> Program {
    let mut none = |path: &str, _: &str| Err(path.to_owned());
    let file = File { name: "main.vcl".into(), text: text.into() };
    compile(file, &mut none, &Known::default()).unwrap_or_else(|report| panic!("{report}")).0
}

#[test]
fn stronger_decider_wins_and_all_but_policy_decide_once() {
    let check = |decided: &[Decider], expected: &[Decider]| {
        let mut steering = Steering::new(None);
        for by in decided {
            assert!(steering.is_due(*by, Some(MIN), MIN), "{decided:?}: {by}");
            steering.requested |= bit(*by);
            steering.decided = steering.decided.max(Some(*by));
        }
        let due: Vec<_> =
            Decider::ALL.iter().copied().filter(|by| steering.is_due(*by, Some(MIN), MIN)).collect();
        assert_eq!(due, expected, "after {decided:?}");
    };
    check(&[], &[Default, Rule, Experiment, Policy]);
    check(&[Default], &[Rule, Experiment, Policy]);
    check(&[Rule], &[Experiment, Policy]);
    check(&[Default, Experiment], &[Policy]);
    check(&[Rule, Experiment], &[Policy]);
    check(&[Policy], &[Policy]);
    check(&[Default, Rule, Experiment, Policy, Policy], &[Policy]);
}

#[test]
fn rules_and_arms_wait_for_minimum_size() {
    let due = |steering: &Steering, length| {
        Decider::ALL.iter().map(|by| steering.is_due(*by, length, MIN)).collect::<Vec<_>>()
    };
    let mut steering = Steering::new(None);
    for small in [None, Some(0), Some(MIN - 1)] {
        assert_eq!(due(&steering, small), [true, false, false, true], "{small:?}");
    }
    assert_eq!(due(&steering, Some(MIN)), [true; 4]);
    steering.count_sent(MIN - 1);
    assert_eq!(due(&steering, Some(1)), [true, false, false, true]);
    steering.count_sent(1);
    assert_eq!(due(&steering, None), [true; 4]);
}

#[tokio::test]
async fn connection_is_upgraded_once_and_never_switched_back() {
    let mut it = Accepted::with(Some("reno")).await;
    assert_eq!(it.algorithm(), "reno");
    assert!(!it.apply(Rule, "cubic", MIN - 1).unwrap());
    assert_eq!((it.algorithm(), it.steering.decider()), ("reno".into(), Default));
    assert!(it.apply(Rule, "cubic", MIN).unwrap());
    assert_eq!((it.algorithm(), it.steering.decider()), ("cubic".into(), Rule));
    assert!(!it.apply(Rule, "bbr", MIN).unwrap());
    assert!(it.apply(Experiment, "bbr", MIN).unwrap());
    assert!(!it.apply(Rule, "cubic", MIN).unwrap());
    assert_eq!((it.algorithm(), it.steering.decider()), ("bbr".into(), Experiment));
    for algorithm in ["reno", "cubic", "reno"] {
        assert!(it.apply(Policy, algorithm, 0).unwrap());
        assert_eq!((it.algorithm(), it.steering.decider()), (algorithm.into(), Policy));
    }
    assert!(!it.apply(Experiment, "bbr", MIN).unwrap());
    assert_eq!(it.algorithm(), "reno");
}

#[tokio::test]
async fn refusal_by_kernel_changes_nothing_and_is_counted() {
    let mut it = Accepted::with(Some("reno")).await;
    for refused in 1..=3 {
        let error = it.socket().set_congestion_algorithm("nosuch").unwrap_err();
        assert!(error.starts_with("this kernel has no congestion control \"nosuch\"; it has "), "{error}");
        assert_eq!(it.common.refused(), refused);
    }
    let error = it.socket().set_congestion_algorithm("an invalid algorithm").unwrap_err();
    assert_eq!(error, "\"an invalid algorithm\" is not the name of a congestion control");
    assert_eq!((it.algorithm(), it.steering.decider(), it.common.refused()), ("reno".into(), Default, 4));
    assert_eq!(*it.common.logged.lock().unwrap(), ["nosuch", "an invalid algor"]);
    for number in 0..2 * LOGGED_NAMES_MAX {
        let _ = it.socket().set_congestion_algorithm(&format!("no {number}"));
    }
    assert_eq!(it.common.logged.lock().unwrap().len(), LOGGED_NAMES_MAX);

    // A weaker decider may still decide, but does not retry a refused algorithm.
    assert!(it.apply(Experiment, "nosuch", MIN).is_err());
    assert!(!it.apply(Experiment, "nosuch", MIN).unwrap());
    assert!(it.apply(Rule, "cubic", MIN).unwrap());
    assert_eq!((it.algorithm(), it.steering.decider()), ("cubic".into(), Rule));
    let tcp = it.tcp();
    assert_eq!((tcp.congestion_control, tcp.decider), ("cubic".into(), Some(Rule)));
}

#[tokio::test]
async fn record_matches_kernel() {
    let mut it = Accepted::with(None).await;
    let start = it.algorithm();
    let recorded = |it: &Accepted| {
        let tcp = it.tcp();
        assert_eq!(tcp.congestion_control, it.algorithm());
        (tcp.congestion_control_start.unwrap(), tcp.decider.unwrap())
    };
    assert_eq!(recorded(&it), (start.clone(), Default));
    for algorithm in ["cubic", "reno", "bbr"] {
        it.socket().set_congestion_algorithm(algorithm).unwrap();
        assert_eq!(it.algorithm(), algorithm);
        assert_eq!(recorded(&it), (start.clone(), Policy));
    }
}

#[tokio::test]
async fn published_policy_dumps_tcp_info() {
    let policy = program(
        r#"vcl 4.1; import tcp;
        backend default { .host = "127.0.0.1"; .port = "8081"; }
        sub vcl_recv {
            tcp.dump_info();
            set req.http.x-tcp = tcp.congestion_algorithm("bbr");
        }"#,
    );
    let mut it = Accepted::with(Some("reno")).await;
    let (req, log) = it.recv(&policy, "");
    let fd = it.stream.as_fd();
    let info = TcpInfo::read(fd).unwrap();
    let expected = [
        format!(
            "tcpi: snd_mss={} rcv_mss={} lost={} retrans={}",
            info.snd_mss_bytes, info.rcv_mss_bytes, info.lost, info.retrans
        ),
        format!(
            "tcpi2: pmtu={} rtt={} rttvar={} snd_cwnd={} advmss={} reordering={}",
            info.pmtu_bytes, info.rtt_us, info.rttvar_us, info.snd_cwnd, info.advmss_bytes, info.reordering
        ),
        format!("getsockopt() returned: {}", congestion::get(fd).unwrap()),
    ];
    assert_eq!(log.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), expected);
    assert_eq!((req.fields.get_str("x-tcp"), it.algorithm().as_str()), (Some("0"), "bbr"));
    assert_eq!(it.steering.decider(), Policy);
}

#[tokio::test]
async fn published_policy_selects_by_host() {
    let policy = program(
        r#"vcl 4.1;
        backend default { .host = "127.0.0.1"; }
        sub vcl_recv {
            if (req.http.x-original-host == "audio-fa-bbr.spotify.com" && client.requests == 1) {
                set client.socket.congestion_algorithm = "bbr";
            }
        }"#,
    );
    const HOST: &str = "X-Original-Host: audio-fa-bbr.spotify.com\r\n";
    let mut it = Accepted::with(Some("cubic")).await;
    it.recv(&policy, HOST);
    assert_eq!((it.algorithm(), it.steering.decider()), ("bbr".into(), Policy));
    let mut other = Accepted::with(Some("cubic")).await;
    other.recv(&policy, "");
    other.recv(&policy, HOST);
    assert_eq!((other.algorithm(), other.steering.decider()), ("cubic".into(), Default));
}

#[tokio::test]
async fn policy_sets_pace_and_gets_errors_for_unsupported_options() {
    let policy = program(
        r#"vcl 4.1;
        backend default { .host = "127.0.0.1"; }
        sub vcl_recv {
            set client.socket.pace = 500;
            set req.http.x-pace = client.socket.pace;
            set client.socket.cwnd = 60;
            set req.http.x-cwnd = client.socket.cwnd;
        }"#,
    );
    let mut it = Accepted::with(Some("cubic")).await;
    let (req, log) = it.recv(&policy, "");
    assert_eq!(sending::max_pacing_rate(it.stream.as_fd()).unwrap(), Some(500 * 1024));
    assert_eq!(it.socket().tcp_info().unwrap().max_pacing_rate, 500 * 1024);
    assert_eq!(req.fields.get_str("x-pace"), Some("500"));
    let cwnd = TcpInfo::read(it.stream.as_fd()).unwrap().snd_cwnd.to_string();
    assert_eq!(req.fields.get_str("x-cwnd"), Some(cwnd.as_str()));
    assert_eq!((log.len(), log[0].tag), (1, LogSource::Error));
    assert_eq!(log[0].text, thalweg_tcp::Error::NoCongestionWindow.to_string());
    let slow =
        r#"vcl 4.1; backend default { .host = "127.0.0.1"; } sub vcl_recv { set client.socket.pace = 64; }"#;
    it.recv(&program(slow), "");
    assert_eq!(sending::max_pacing_rate(it.stream.as_fd()).unwrap(), Some(128 * 1024), "Fastly's minimum");
    it.socket().set_pace_bytes_per_s(0).unwrap();
    assert_eq!(it.socket().pace_bytes_per_s(), None);
    it.socket().set_type_of_service(0xb8).unwrap();
    assert_eq!(sending::type_of_service(it.stream.as_fd()).unwrap(), 0xb8);
}

#[tokio::test]
async fn retransmissions_count_from_last_read_in_an_earlier_request() {
    let mut it = Accepted::with(None).await;
    let delta = |it: &mut Accepted| it.socket().tcp_info().unwrap().delta_retrans;
    it.steering.begin_request();
    assert_eq!((it.socket().requests(), delta(&mut it)), (1, 0));
    // Set the counter directly, because loopback loses no segments. The difference wraps around.
    it.steering.retrans_before = u32::MAX - 6;
    assert_eq!((delta(&mut it), delta(&mut it)), (7, 7));
    it.steering.begin_request();
    assert_eq!((it.socket().requests(), delta(&mut it)), (2, 0));
}

mod composition;
