//! Bundle tests: rules, holdouts, precedence, and invalid bundles, which must change nothing.
//! Clients use different loopback addresses.

#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;

use serde_json::Value;
use thalweg_bundle::{Arm, Bundle, Content, Experiment, Rule, Share, Unit};
use thalweg_edge::Follower;
use thalweg_edge::{BundleSource, Config};
use thalweg_record::{Decider, ResponseRecord, Steered};
use thalweg_tcp::{CongestionControl, congestion};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use crate::policy::File;
use crate::steering::accepted;
use crate::support::{Backend, Client, PATIENCE, TestEdge, config};

pub(crate) const STEERED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// Content size above the minimum size of rules, in bytes.
const LARGE_BYTES: usize = 150_000;
/// Content size below the minimum size of rules, in bytes.
const SMALL_BYTES: usize = 1000;

fn named(name: &str) -> CongestionControl {
    name.parse().unwrap()
}

/// Returns the algorithms of the rule and of the experiment. Both differ from the default, reno.
pub(crate) fn algorithms() -> [&'static str; 2] {
    let bbr = if congestion::check(named("bbr")).is_ok() { "bbr" } else { "cubic" };
    [bbr, "cubic"]
}

pub(crate) fn rule(holdout: f64) -> Rule {
    Rule {
        tenant: String::new(),
        prefix: "127.0.0.2/32".parse().unwrap(),
        congestion_control: algorithms()[0].into(),
        size_bytes_min: None,
        initcwnd: None,
        initrwnd: None,
        holdout: Share::from_number(holdout).unwrap(),
        period_s: None,
        switchback_block_s: None,
        salt: String::new(),
        reason: "slow".into(),
    }
}

/// Creates an experiment for the test clients' host, with one arm for all connections.
fn experiment(congestion_control: Option<&str>) -> Experiment {
    let arm = Arm {
        name: "all".into(),
        share: Share::ALL,
        congestion_control: congestion_control.map(str::to_owned),
    };
    let hosts = vec!["media.example".into()];
    Experiment { name: "live".into(), hosts, salt: "s".into(), unit: Unit::Client, arms: vec![arm] }
}

pub(crate) fn document(number: u64, rules: Vec<Rule>, experiments: Vec<Experiment>) -> String {
    Bundle::new(Content { number, rules, experiments, ..Content::default() }).unwrap().encode()
}

/// An edge with a bundle and its own backend.
pub(crate) struct Bundled {
    pub(crate) edge: TestEdge,
    backend: Backend,
    records: Follower,
    /// The bundle file; `None` if the bundle comes from a server.
    file: Option<File>,
    _policy: Option<File>,
}

impl Bundled {
    async fn with(document: &str, policy: Option<&str>) -> Self {
        let file = File::new(document);
        let source = BundleSource::File(file.0.clone());
        Self { file: Some(file), ..Self::of(source, policy).await }
    }

    pub(crate) async fn of(source: BundleSource, policy: Option<&str>) -> Self {
        let backend = Backend::new().await;
        let port = backend.address.port();
        let policy = policy.map(|text| {
            File::new(format!(
                "vcl 4.1; import thalweg;\nbackend b {{ .host = \"127.0.0.1\"; .port = \"{port}\"; }}\n{text}"
            ))
        });
        let edge = TestEdge::start(Config {
            congestion_control: Some(named("reno")),
            admin: Some((Ipv4Addr::LOCALHOST, 0).into()),
            bundle: Some(source),
            policy: policy.as_ref().map(|policy| policy.0.clone()),
            ..config(backend.address)
        });
        let records = edge.records.follow();
        let mut it = Self { edge, backend, records, file: None, _policy: policy };
        it.store("/large", LARGE_BYTES).await;
        it.store("/small", SMALL_BYTES).await;
        it
    }

    async fn store(&mut self, path: &str, bytes: usize) {
        let mut client = self.client(OTHER).await;
        client.request("GET", path, "").await;
        let mut fetch = self.backend.fetch().await;
        fetch.respond("200 OK", "Cache-Control: max-age=600\r\nConnection: close\r\n", &vec![7; bytes]).await;
        assert_eq!(client.response().await.content.len(), bytes);
        self.records.recv().await.unwrap();
    }

    pub(crate) async fn client(&self, from: Ipv4Addr) -> Client {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        Client::new(socket.connect(self.edge.address).await.unwrap())
    }

    /// Sends a GET and returns its record, after comparing the record with the kernel's state of
    /// the edge's socket.
    pub(crate) async fn get(&mut self, client: &mut Client, path: &str) -> thalweg_edge::NumberedRecord {
        client.request("GET", path, "").await;
        assert_eq!(client.response().await.status, 200);
        let record = self.records.recv().await.unwrap();
        let tcp = record.tcp.as_ref().unwrap();
        assert_eq!(tcp.congestion_control, congestion::get(accepted(client).as_fd()).unwrap().as_str());
        record
    }

    /// Replaces the bundle file atomically.
    fn put(&self, document: &str) {
        let file = &self.file.as_ref().unwrap().0;
        let next = PathBuf::from(format!("{}.next", file.display()));
        std::fs::write(&next, document).unwrap();
        std::fs::rename(&next, file).unwrap();
    }

    pub(crate) async fn stats(&self) -> Value {
        let mut admin = self.edge.admin_client().await;
        admin.request("GET", "/stats", "Connection: close\r\n").await;
        serde_json::from_slice::<Value>(&admin.response().await.content).unwrap()["bundle"].clone()
    }

    /// Waits until `holds` is true for the bundle status, and returns that status.
    pub(crate) async fn stats_once(&self, holds: impl Fn(&Value) -> bool) -> Value {
        let mut changes = self.edge.bundle_changes.clone();
        loop {
            changes.mark_unchanged();
            let stats = self.stats().await;
            if holds(&stats) {
                return stats;
            }
            timeout(PATIENCE, changes.changed()).await.unwrap_or_else(|_| panic!("{stats}")).unwrap();
        }
    }
}

pub(crate) fn decided(record: &ResponseRecord) -> (&str, Decider) {
    let tcp = record.tcp.as_ref().unwrap();
    (tcp.congestion_control.as_str(), tcp.decider.unwrap())
}

pub(crate) fn by_rule(bundle: u64, is_holdout: bool) -> Steered {
    Steered { bundle, rule: Some("127.0.0.2/32".into()), is_holdout, ..Steered::default() }
}

fn by_arm(bundle: u64) -> Steered {
    Steered { bundle, experiment: Some("live".into()), arm: Some("all".into()), ..Steered::default() }
}

#[tokio::test]
async fn rule_steers_its_prefix_at_its_minimum_size() {
    let [bbr, _] = algorithms();
    let mut it = Bundled::with(&document(7, vec![rule(0.0)], Vec::new()), None).await;
    let mut steered = it.client(STEERED).await;
    let record = it.get(&mut steered, "/small").await;
    assert_eq!((decided(&record), &record.steered), (("reno", Decider::Default), &None));
    let record = it.get(&mut steered, "/large").await;
    assert_eq!((decided(&record), &record.steered), ((bbr, Decider::Rule), &Some(by_rule(7, false))));
    let record = it.get(&mut steered, "/small").await;
    assert_eq!((decided(&record), &record.steered), ((bbr, Decider::Rule), &Some(by_rule(7, false))));
    let mut other = it.client(OTHER).await;
    let record = it.get(&mut other, "/large").await;
    assert_eq!((decided(&record), &record.steered), (("reno", Decider::Default), &None));
    it.edge.stop().await;
}

#[tokio::test]
async fn minimum_size_of_rule_includes_content_sent_earlier() {
    let [bbr, _] = algorithms();
    let small = Rule { size_bytes_min: Some(2 * SMALL_BYTES as u64), ..rule(0.0) };
    let mut it = Bundled::with(&document(7, vec![small], Vec::new()), None).await;
    let mut client = it.client(STEERED).await;
    for expected in ["reno", "reno", bbr] {
        assert_eq!(decided(&*it.get(&mut client, "/small").await).0, expected);
    }
    it.edge.stop().await;
}

#[tokio::test]
async fn held_out_clients_keep_the_default_on_every_connection() {
    const CLIENTS_MAX: u8 = 200;
    let [bbr, _] = algorithms();
    let rule = Rule { prefix: "127.0.0.0/24".parse().unwrap(), ..rule(0.5) };
    let mut it = Bundled::with(&document(7, vec![rule.clone()], Vec::new()), None).await;
    let mut seen = [false; 2];
    for address in (2..CLIENTS_MAX).map(|at| Ipv4Addr::new(127, 0, 0, at)) {
        let is_holdout = rule.holds_out(address.into(), 0);
        let expected = if is_holdout { ("reno", Decider::Default) } else { (bbr, Decider::Rule) };
        for _ in 0..2 {
            let mut client = it.client(address).await;
            for _ in 0..2 {
                let record = it.get(&mut client, "/large").await;
                let steered = Steered { rule: Some("127.0.0.0/24".into()), ..by_rule(7, is_holdout) };
                assert_eq!((decided(&record), &record.steered), (expected, &Some(steered)));
            }
        }
        seen[usize::from(is_holdout)] = true;
        if seen == [true; 2] {
            break;
        }
    }
    assert_eq!(seen, [true; 2]);
    it.edge.stop().await;
}

#[tokio::test]
async fn switchback_follows_the_clock_and_connections_keep_their_arm() {
    const TRIES_MAX: u32 = 100;
    let [bbr, _] = algorithms();
    let rule = Rule { period_s: Some(1), switchback_block_s: Some(1), ..rule(0.5) };
    let mut it = Bundled::with(&document(7, vec![rule.clone()], Vec::new()), None).await;
    let mut first = it.client(STEERED).await;
    let kept = it.get(&mut first, "/large").await.steered.clone().unwrap();
    let mut arms = Vec::new();
    for _ in 0..TRIES_MAX {
        let mut client = it.client(STEERED).await;
        let record = it.get(&mut client, "/large").await;
        let steered = record.steered.clone().unwrap();
        let block = steered.draw_period.unwrap();
        assert_eq!(steered.is_holdout, thalweg_bundle::is_block_held_out(rule.prefix, &rule.salt, block));
        assert_eq!(decided(&record).0, if steered.is_holdout { "reno" } else { bbr });
        let before = it.get(&mut first, "/large").await;
        assert_eq!(before.steered.as_ref(), Some(&kept));
        arms.push(steered.is_holdout);
        if arms.contains(&true) && arms.contains(&false) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(arms.contains(&true) && arms.contains(&false), "{arms:?}");
    it.edge.stop().await;
}

#[tokio::test]
async fn kernel_refusal_is_recorded() {
    let rule = Rule { congestion_control: "nosuch".into(), ..rule(0.0) };
    let mut it = Bundled::with(&document(7, vec![rule], Vec::new()), None).await;
    let mut client = it.client(STEERED).await;
    for _ in 0..2 {
        let record = it.get(&mut client, "/large").await;
        assert_eq!(decided(&record), ("reno", Decider::Default));
        let steered = record.steered.clone().unwrap();
        let refused = steered.refused.as_deref().unwrap();
        assert!(
            refused.starts_with("this kernel has no congestion control \"nosuch\"; it has "),
            "{refused}"
        );
        assert_eq!(Steered { refused: None, ..steered }, by_rule(7, false));
    }
    it.edge.stop().await;
}

#[tokio::test]
async fn policy_beats_experiment_beats_rule() {
    let [bbr, cubic] = algorithms();
    let both = document(7, vec![rule(0.0)], vec![experiment(Some(cubic))]);

    let mut it = Bundled::with(&both, None).await;
    let mut client = it.client(STEERED).await;
    let record = it.get(&mut client, "/large").await;
    // Whichever decider wins, the record has the rule and the arm.
    let assigned = |bundle| Some(Steered { rule: Some("127.0.0.2/32".into()), ..by_arm(bundle) });
    assert_eq!((decided(&record), &record.steered), ((cubic, Decider::Experiment), &assigned(7)));
    it.edge.stop().await;

    // With an arm that has no algorithm, the rule decides.
    let as_is = document(8, vec![rule(0.0)], vec![experiment(None)]);
    let mut it = Bundled::with(&as_is, None).await;
    let mut client = it.client(STEERED).await;
    let record = it.get(&mut client, "/large").await;
    assert_eq!((decided(&record), &record.steered), ((bbr, Decider::Rule), &assigned(8)));
    it.edge.stop().await;

    let policy =
        r#"sub vcl_recv { if (req.url == "/large") { set client.socket.congestion_algorithm = "reno"; } }"#;
    let mut it = Bundled::with(&both, Some(policy)).await;
    let mut client = it.client(STEERED).await;
    for _ in 0..2 {
        let record = it.get(&mut client, "/large").await;
        assert_eq!((decided(&record), &record.steered), (("reno", Decider::Policy), &assigned(7)));
    }
    // If the policy sets no algorithm, the bundle applies once the minimum size is reached.
    let mut client = it.client(STEERED).await;
    for _ in 0..LARGE_BYTES / SMALL_BYTES {
        it.get(&mut client, "/small").await;
    }
    let record = it.get(&mut client, "/small").await;
    assert_eq!((decided(&record), &record.steered), ((cubic, Decider::Experiment), &assigned(7)));
    it.edge.stop().await;
}

#[tokio::test]
async fn new_bundle_applies_immediately_and_invalid_bundle_is_ignored() {
    let [bbr, cubic] = algorithms();
    let mut it = Bundled::with("{\"format\":2,", None).await;
    let stats = it.stats().await;
    assert_eq!(stats["number"], Value::Null);
    assert_eq!(stats["refused"]["reason"], "1:12: EOF while parsing a value");
    let mut early = it.client(STEERED).await;
    assert_eq!(decided(&*it.get(&mut early, "/large").await), ("reno", Decider::Default));

    it.put(&document(7, vec![rule(0.0)], Vec::new()));
    let stats = it.stats_once(|stats| stats["number"] == 7).await;
    assert_eq!((&stats["rules"], &stats["experiments"]), (&1.into(), &0.into()));
    assert!(stats["taken_unix_ms"].as_u64().unwrap() > 0);
    // An existing connection without a decision is also steered.
    assert_eq!(decided(&*it.get(&mut early, "/large").await), (bbr, Decider::Rule));

    it.put(&document(8, vec![rule(0.0)], Vec::new()).replace("slow", "fast"));
    let is_refused = |stats: &Value| stats["refused"]["reason"].as_str().unwrap().starts_with("/checksum: ");
    assert_eq!(it.stats_once(is_refused).await["number"], 7);
    let mut late = it.client(STEERED).await;
    let record = it.get(&mut late, "/large").await;
    assert_eq!((decided(&record), &record.steered), ((bbr, Decider::Rule), &Some(by_rule(7, false))));

    // Removing a rule does not revert its connections, but an experiment overrides the rule.
    it.put(&document(9, Vec::new(), Vec::new()));
    it.stats_once(|stats| stats["number"] == 9).await;
    let record = it.get(&mut late, "/large").await;
    assert_eq!((decided(&record), &record.steered), ((bbr, Decider::Rule), &Some(by_rule(7, false))));
    it.put(&document(10, Vec::new(), vec![experiment(Some(cubic))]));
    it.stats_once(|stats| stats["number"] == 10).await;
    assert_eq!(decided(&*it.get(&mut late, "/large").await), (cubic, Decider::Experiment));
    it.edge.stop().await;
}

#[tokio::test]
async fn host_matches_in_every_spelling() {
    let [bbr, cubic] = algorithms();
    let about = Content { number: 7, rules: vec![rule(0.0)], ..Content::default() };
    let alone = Content { hosts_left_alone: vec!["media.example".into()], ..about.clone() };
    let tried = Content { experiments: vec![experiment(Some(cubic))], ..about };
    let policy =
        r#"sub vcl_deliver { set resp.http.x-decision = thalweg.rule_algorithm() + thalweg.arm("live"); }"#;
    for (content, decider, expected) in
        [(alone, Decider::Default, String::new()), (tried, Decider::Experiment, format!("{bbr}all"))]
    {
        let document = Bundle::new(content).unwrap().encode();
        for policy in [None, Some(policy)] {
            let mut it = Bundled::with(&document, policy).await;
            for host in ["media.example", "MEDIA.example", "media.example.", "Media.Example.:80"] {
                let mut client = it.client(STEERED).await;
                client.send(format!("GET /other HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await;
                let mut fetch = it.backend.fetch().await;
                fetch
                    .respond("200 OK", "Cache-Control: no-store\r\nConnection: close\r\n", &[7; LARGE_BYTES])
                    .await;
                let response = client.response().await;
                assert_eq!(response.field("x-decision"), policy.map(|_| expected.as_str()), "{host}");
                let record = it.records.recv().await.unwrap();
                assert_eq!(decided(&record).1, decider, "{host}");
            }
            it.edge.stop().await;
        }
    }
}

#[tokio::test]
async fn policy_reads_the_bundle() {
    let policy = r#"sub vcl_deliver {
        set resp.http.x-bundle = thalweg.bundle_number() + " [" + thalweg.rule_algorithm() + "] ["
            + thalweg.rule_algorithm(std.ip("127.0.0.2", client.ip)) + "] " + thalweg.is_holdout() + " ["
            + thalweg.arm("live") + "] [" + thalweg.arm("nosuch") + "]";
    }"#;
    let bundle = document(7, vec![rule(1.0)], vec![experiment(None)]);
    let it = Bundled::with(&bundle, Some(&format!("import std;\n{policy}"))).await;
    let [bbr, _] = algorithms();
    for (from, expected) in [
        (STEERED, format!("7 [{bbr}] [{bbr}] true [all] []")),
        (OTHER, format!("7 [] [{bbr}] false [all] []")),
    ] {
        let mut client = it.client(from).await;
        client.request("GET", "/small", "").await;
        assert_eq!(client.response().await.field("x-bundle"), Some(expected.as_str()));
    }
    let other_host: SocketAddr = it.edge.address;
    let mut client = it.client(OTHER).await;
    client.send(format!("GET /other HTTP/1.1\r\nHost: {other_host}\r\n\r\n").as_bytes()).await;
    it.backend.fetch().await.respond("200 OK", "", b"").await;
    let expected = format!("7 [] [{bbr}] false [] []");
    assert_eq!(client.response().await.field("x-bundle"), Some(expected.as_str()));
    it.edge.stop().await;
}
