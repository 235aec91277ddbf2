//! Test fixture: a task that runs policies, with a connection that records its settings.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use thalweg_http::head::{parse_request, parse_response};
use thalweg_http::{Limits, RequestHead, ResponseHead};
use thalweg_policy::source::File;
use thalweg_policy::task::{
    Client, Delivered, Fetch, Geo, LogLine, Object, RequestState, Session, Storage, TcpInfo, Workspace,
};
use thalweg_policy::{
    Action, Connection, Failure, Host, Known, Program, Report, Severity, Sub, Task, compile,
};

/// A connection without a socket.
#[derive(Debug, Default)]
pub struct TestConnection {
    pub algorithm: String,
    pub pace: Option<u64>,
    pub cwnd: u64,
    pub tos: u8,
}

impl Connection for TestConnection {
    fn congestion_algorithm(&self) -> Option<String> {
        Some(self.algorithm.clone())
    }
    fn set_congestion_algorithm(&mut self, name: &str) -> Result<(), String> {
        if name == "nosuch" {
            return Err("congestion control nosuch: no such file or directory".to_owned());
        }
        self.algorithm = name.to_owned();
        Ok(())
    }
    fn pace_bytes_per_s(&self) -> Option<u64> {
        self.pace
    }
    fn set_pace_bytes_per_s(&mut self, pace: u64) -> Result<(), String> {
        self.pace = Some(pace);
        Ok(())
    }
    fn set_cwnd(&mut self, packets: u64) -> Result<(), String> {
        self.cwnd = packets;
        Err("no socket option sets cwnd".to_owned())
    }
    fn delivered(&self) -> Option<Delivered> {
        Some(Delivered { goodput_bytes_per_s: 1_250_000, testable_bytes_per_s: 2_500_000 })
    }
    fn tcp_info(&self) -> Option<TcpInfo> {
        Some(TcpInfo {
            advmss: 1448,
            bytes_acked: 1001,
            bytes_received: 1002,
            data_segs_in: 1003,
            data_segs_out: 1004,
            delivery_rate: 1005,
            last_data_sent_ms: 1006,
            lost: 1,
            max_pacing_rate: 1007,
            min_rtt_us: 1008,
            notsent_bytes: 1009,
            pacing_rate: 1010,
            pmtu: 1500,
            rcv_mss: 536,
            rcv_rtt_us: 1011,
            rcv_space: 1012,
            rcv_ssthresh: 1013,
            reordering: 3,
            retrans: 2,
            rtt_us: 20_500,
            rttvar_us: 1014,
            segs_in: 1015,
            segs_out: 1016,
            snd_cwnd: 10,
            snd_mss: 1448,
            snd_ssthresh: 1017,
            total_retrans: 1018,
            delta_retrans: 1019,
        })
    }
    fn requests(&self) -> u64 {
        1
    }
    fn set_type_of_service(&mut self, value: u8) -> Result<(), String> {
        self.tos = value;
        Ok(())
    }
}

/// A host that returns fixed values.
#[derive(Debug, Default)]
pub struct TestHost {
    /// Number of calls to `geo`.
    pub geo_calls: AtomicU32,
}

impl Host for TestHost {
    fn is_healthy(&self, backend: u32) -> bool {
        backend != 1
    }
    fn storage(&self, _name: &str) -> Storage {
        Storage { free_bytes: 4096, used_bytes: 1024, is_happy: true }
    }
    fn geo(&self, _address: IpAddr) -> Option<Geo> {
        self.geo_calls.fetch_add(1, Relaxed);
        Some(Geo {
            as_name: Some("Example Net".into()),
            as_number: Some(64_496),
            city: Some("Bergen".into()),
            continent_code: Some("EU".into()),
            country_code: Some("NO".into()),
            country_name: Some("Norway".into()),
            latitude: Some(60.39),
            longitude: Some(5.32),
            metro_code: Some(7),
            postal_code: Some("5003".into()),
            region: Some("46".into()),
        })
    }
    fn environment(&self, name: &str) -> Option<String> {
        (name == "HOME").then(|| "/root".to_owned())
    }
    fn read_file(&self, path: &str) -> Result<Vec<u8>, String> {
        if path == "/etc/motd" { Ok(b"hello".to_vec()) } else { Err(format!("{path}: not found")) }
    }
    fn file_exists(&self, path: &str) -> bool {
        path == "/etc/motd"
    }
    fn ban(&self, expression: &str) -> Result<(), String> {
        if expression.starts_with("req.") || expression.starts_with("obj.") {
            Ok(())
        } else {
            Err("no ban".to_owned())
        }
    }
    fn bundle_number(&self) -> Option<u64> {
        Some(42)
    }
    fn rule_algorithm(&self, address: IpAddr, _: &str) -> Option<String> {
        address.to_string().starts_with("192.0.2.").then(|| "bbr".to_owned())
    }
    fn is_holdout(&self, client: SocketAddr, _: &str) -> bool {
        client.port() == 4711
    }
    fn arm(&self, experiment: &str, host: &str, client: SocketAddr) -> Option<String> {
        (experiment == "live").then(|| format!("{host} {client}"))
    }
    fn purge_tags(&self, tags: &str, _soft: bool) -> Result<u64, String> {
        Ok(tags.split_whitespace().count() as u64)
    }
}

/// Owner of all data borrowed by a task.
pub struct Bench {
    pub now_s: f64,
    pub original: Option<RequestHead>,
    pub req: RequestHead,
    pub bereq: RequestHead,
    pub beresp: ResponseHead,
    pub obj: ResponseHead,
    pub resp: ResponseHead,
    pub client: Client,
    pub fetch: Fetch,
    pub object: Object,
    pub session: Session,
    pub wire: TestConnection,
    pub host: TestHost,
    pub log: Vec<LogLine>,
    pub kept: RequestState,
    pub workspace: Workspace,
    pub random: u64,
}

pub fn request(text: &str) -> RequestHead {
    let mut head = RequestHead::default();
    let text = format!("{}\r\n\r\n", text.trim().replace('\n', "\r\n"));
    parse_request(text.as_bytes(), &mut head, &Limits::default())
        .expect("the request is valid")
        .expect("the request is complete");
    head
}

pub fn response(text: &str) -> ResponseHead {
    let mut head = ResponseHead::default();
    let text = format!("{}\r\n\r\n", text.trim().replace('\n', "\r\n"));
    parse_response(text.as_bytes(), &mut head, &Limits::default())
        .expect("the response is valid")
        .expect("the response is complete");
    head
}

impl Default for Bench {
    fn default() -> Bench {
        let req = request(
            "GET /live/a/seg-1.m4s?b=2&a=1 HTTP/1.1\nHost: Media.Example:8080\nAccept-Encoding: gzip, br\nX-Two: one\nX-Two: two\nCookie: arm=b; id=7",
        );
        let beresp = response(
            "HTTP/1.1 200 OK\nContent-Type: video/mp4\nCache-Control: max-age=60\nContent-Length: 1000000",
        );
        Bench {
            now_s: 784_111_777.0,
            original: None,
            bereq: req.clone(),
            req,
            obj: beresp.clone(),
            resp: beresp.clone(),
            beresp,
            client: Client {
                time_s: 784_111_777.25,
                xid: 5,
                hash_data: b"/live/a/seg-1.m4s?b=2&a=1\0media.example:8080\0".into(),
                ..Client::default()
            },
            fetch: Fetch { ttl_s: 60.0, grace_s: 10.0, xid: 6, time_s: 784_111_777.5, ..Fetch::default() },
            object: Object {
                age_s: 3.0,
                hits: 2,
                ttl_s: 57.0,
                storage: Some("s0".into()),
                ..Object::default()
            },
            session: Session {
                client: "192.0.2.7:4711".parse().expect("the address is valid"),
                server: "198.51.100.1:80".parse().expect("the address is valid"),
                local: "198.51.100.1:80".parse().expect("the address is valid"),
                remote: "192.0.2.7:4711".parse().expect("the address is valid"),
                hostname: "edge-1".into(),
                identity: "edge".into(),
                endpoint: ":80".into(),
                socket: "a0".into(),
                xid: 4,
                ..Session::default()
            },
            wire: TestConnection { algorithm: "cubic".into(), ..TestConnection::default() },
            host: TestHost::default(),
            log: Vec::new(),
            kept: RequestState::default(),
            workspace: Workspace::default(),
            random: 1,
        }
    }
}

impl Bench {
    pub fn task(&mut self) -> Task<'_> {
        Task {
            now_s: self.now_s,
            original: self.original.as_ref(),
            req: Some(&mut self.req),
            bereq: Some(&mut self.bereq),
            beresp: Some(&mut self.beresp),
            obj: Some(&self.obj),
            resp: Some(&mut self.resp),
            client: &mut self.client,
            fetch: &mut self.fetch,
            object: &self.object,
            session: &mut self.session,
            connection: &mut self.wire,
            host: &self.host,
            log: &mut self.log,
            kept: &mut self.kept,
            workspace: &mut self.workspace,
            random: &mut self.random,
        }
    }

    pub fn run(&mut self, program: &Program, sub: Sub) -> Result<Action, Failure> {
        program.run(sub, &mut self.task())
    }
}

pub fn known() -> Known {
    Known {
        congestion_algorithms: Some(vec!["bbr".into(), "cubic".into(), "reno".into()]),
        has_geo: Some(true),
        storages: vec!["s0".into(), "Transient".into()],
        labels: Some(vec!["other".into()]),
        resolve: None,
        is_known_host: None,
    }
}

/// Compiles a policy, with `files` available as includes.
pub fn build_with(text: &str, files: &[(&str, &str)]) -> Result<(Program, Report), Report> {
    let mut loader = |path: &str, _: &str| {
        files
            .iter()
            .find(|(name, _)| *name == path)
            .map(|(name, text)| File { name: (*name).to_owned(), text: (*text).to_owned() })
            .ok_or_else(|| "not found".to_owned())
    };
    compile(File { name: "main.vcl".into(), text: text.into() }, &mut loader, &known())
}

pub fn build(text: &str) -> Result<(Program, Report), Report> {
    build_with(text, &[])
}

/// Compiles a valid policy.
pub fn program(text: &str) -> Program {
    match build(text) {
        Ok((program, _)) => program,
        Err(report) => panic!("{text}\n{report}"),
    }
}

/// Formats each fault on one line: position, message and help.
pub fn report_text(result: Result<(Program, Report), Report>) -> String {
    let report = match result {
        Ok((_, report)) | Err(report) => report,
    };
    let mut text = String::new();
    for fault in &report.faults {
        let kind = if fault.severity == Severity::Error { "" } else { "warning: " };
        text.push_str(&format!("{} {kind}{}", fault.place, fault.message));
        if let Some(help) = &fault.help {
            text.push_str(&format!(" ({help})"));
        }
        text.push('\n');
    }
    text
}
