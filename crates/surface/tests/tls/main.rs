//! TLS tests of servers and clients: trusted and rejected certificates, error messages, and changed
//! files.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod authority;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use authority::Authority;
use axum::routing::get;
use axum::{Extension, Router};
use bytes::Bytes;
use hyper::Request;
use prometheus_client::metrics::counter::Counter;
use thalweg_surface::client::Client;
use thalweg_surface::{ClientTls, KeyPair, Limits, Listener, Pages, PeerNames, ServerTls, serve};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Time limit that exceeds the duration of any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const SERVER_NAMES: &str = "IP:127.0.0.1,DNS:controller.example";
const CLIENT_NAMES: &str = "DNS:Edge-1.example,URI:spiffe://example/edge-1,IP:127.0.0.1";

/// A directory of certificates, removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let name = format!("thalweg-tls-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn pair((certificate, key): (PathBuf, PathBuf)) -> KeyPair {
    KeyPair { certificate, key }
}

/// A running server, which responds with the names in the client's certificate.
struct Server {
    addr: SocketAddr,
    failed: Counter,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    fn start(tls: Option<(KeyPair, Option<&Path>)>) -> Self {
        let failed = Counter::default();
        let open = |(pair, client_ca): (_, Option<&Path>)| {
            ServerTls::open(pair, client_ca.map(Path::to_owned), failed.clone()).unwrap()
        };
        let tls = tls.map(open);
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = tcp.local_addr().unwrap();
        let names = async |names: Option<Extension<PeerNames>>| {
            names.map_or("none".to_owned(), |names| names.iter().collect::<Vec<_>>().join(" "))
        };
        let router = Router::new().route("/", get(names));
        let served = serve(Listener { tcp, tls }, router, Pages::None, std::future::pending());
        let task = tokio::spawn(async { served.await.unwrap() });
        Self { addr, failed, task }
    }

    /// Sends a request and returns the content, or the error with its causes.
    async fn get(&self, scheme: &str, tls: ClientTls) -> Result<String, String> {
        let url = format!("{scheme}://{}/", self.addr);
        let request = Request::get(&url).body(Bytes::new()).unwrap();
        let client = Client::with_tls(Limits::default(), Some(tls));
        let answer = async { client.send(request).await?.into_body().whole().await };
        let answer = answer.await.map(|content| String::from_utf8(content.into()).unwrap());
        answer.map_err(|error| {
            let causes = std::iter::successors(std::error::Error::source(&error), |error| error.source());
            let text = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
            text.replace(&url, "URL")
        })
    }
}

#[tokio::test]
async fn server_learns_the_names_in_the_clients_certificate() {
    let directory = Directory::new("names");
    let ca = Authority::new(&directory.0, "ca");
    let own = pair(ca.issue("server", SERVER_NAMES));
    let client = pair(ca.issue("client", CLIENT_NAMES));
    let open = |pair: Option<KeyPair>| ClientTls::open(Some(ca.certificate()), pair).unwrap();

    let server = Server::start(Some((own.clone(), None)));
    for pair in [None, Some(client.clone())] {
        assert_eq!(server.get("https", open(pair)).await.unwrap(), "none", "not asked for");
    }
    let server = Server::start(Some((own, Some(&ca.certificate()))));
    let answer = server.get("https", open(Some(client))).await;
    assert_eq!(answer.unwrap(), "edge-1.example spiffe://example/edge-1");
    assert_eq!(server.failed.get(), 0);
}

#[tokio::test]
async fn each_failure_states_its_cause() {
    let directory = Directory::new("failures");
    let [ca, other] = ["ca", "other"].map(|name| Authority::new(&directory.0, name));
    let own = pair(ca.issue("server", SERVER_NAMES));
    let client = || Some(pair(ca.issue("client", CLIENT_NAMES)));
    let open = |ca: &Authority, pair| ClientTls::open(Some(ca.certificate()), pair).unwrap();
    let failure = async |server: &Server, tls| server.get("https", tls).await.unwrap_err();

    let server = Server::start(Some((own, Some(&ca.certificate()))));
    let unknown = "TLS with URL failed: certificate signed by an unknown authority: set controller_ca";
    assert_eq!(failure(&server, open(&other, client())).await, unknown);
    assert_eq!(
        failure(&server, open(&ca, None)).await,
        "TLS with URL failed: the server requires a client certificate: set controller_certificate and controller_key"
    );
    let refused = "TLS with URL failed: the server refused the connection: ";
    let foreign = Some(pair(other.issue("foreign", CLIENT_NAMES)));
    let error = failure(&server, open(&ca, foreign)).await;
    assert_eq!(error, format!("{refused}UnknownCA"));
    let expired = Some(pair(ca.issue_expired("expired", CLIENT_NAMES)));
    let error = failure(&server, open(&ca, expired)).await;
    assert_eq!(error, format!("{refused}CertificateExpired"));
    let content = server.get("http", open(&ca, client())).await.unwrap();
    assert_eq!(content, r#"{"error":"this port expects TLS: use https://"}"#);
    assert_eq!(server.failed.get(), 4);
    // A health check that only connects does not count as a failure.
    drop(TcpStream::connect(server.addr).await.unwrap());
    assert!(server.get("https", open(&ca, client())).await.is_ok());
    assert_eq!(server.failed.get(), 4);

    let invalid = "TLS with URL failed: invalid certificate: ";
    let named = Server::start(Some((pair(ca.issue("named", "DNS:other.example")), None)));
    let error = failure(&named, open(&ca, None)).await;
    assert!(error.starts_with(invalid) && error.contains("not valid for name"), "{error}");
    let old = Server::start(Some((pair(ca.issue_expired("old", SERVER_NAMES)), None)));
    let error = failure(&old, open(&ca, None)).await;
    assert_eq!(error, "TLS with URL failed: the server's certificate has expired");

    let plain = Server::start(None);
    let error = failure(&plain, open(&ca, None)).await;
    assert_eq!(error, "TLS with URL failed: the server does not speak TLS: check the URL and the port");
}

#[tokio::test]
async fn changed_files_take_effect_and_unusable_ones_do_not() {
    let directory = Directory::new("changes");
    let [ca, other] = ["ca", "other"].map(|name| Authority::new(&directory.0, name));
    let own = pair(ca.issue("server", SERVER_NAMES));
    let server = Server::start(Some((own.clone(), None)));
    // The client trusts the authorities in this file.
    let trusted = directory.0.join("trusted.pem");
    std::fs::copy(ca.certificate(), &trusted).unwrap();
    let tls = ClientTls::open(Some(trusted.clone()), None).unwrap();
    let is_ok = async || server.get("https", tls.clone()).await.is_ok();
    let until = async |expected: bool| {
        let begun = Instant::now();
        while is_ok().await != expected {
            assert!(begun.elapsed() < PATIENCE, "must become {expected}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let stays = async |what: &str| {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2_200) {
            assert!(is_ok().await, "{what}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(is_ok().await);
    let good = std::fs::read(&own.certificate).unwrap();
    for bad in [&b""[..], b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        std::fs::write(&own.certificate, bad).unwrap();
        std::fs::write(&trusted, bad).unwrap();
        stays("unusable files change nothing").await;
    }
    // This certificate does not belong to the key.
    std::fs::write(&trusted, std::fs::read(ca.certificate()).unwrap()).unwrap();
    std::fs::copy(ca.issue("elsewhere", SERVER_NAMES).0, &own.certificate).unwrap();
    stays("a certificate without its key changes nothing").await;
    std::fs::write(&own.certificate, good).unwrap();

    other.issue("server", SERVER_NAMES);
    until(false).await;
    std::fs::copy(other.certificate(), &trusted).unwrap();
    until(true).await;
}

#[tokio::test]
async fn stalled_handshakes_delay_nobody() {
    let directory = Directory::new("stalled");
    let ca = Authority::new(&directory.0, "ca");
    let server = Server::start(Some((pair(ca.issue("server", SERVER_NAMES)), None)));
    let mut stalled = Vec::new();
    for bytes in [&b""[..], &[22], &[22, 3, 1, 2, 0, 1]].iter().cycle().take(60) {
        let stream = TcpStream::connect(server.addr).await.unwrap();
        stream.writable().await.unwrap();
        assert_eq!(stream.try_write(bytes).unwrap(), bytes.len());
        stalled.push(stream);
    }
    let begun = Instant::now();
    let tls = ClientTls::open(Some(ca.certificate()), None).unwrap();
    assert_eq!(server.get("https", tls).await.unwrap(), "none");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    for mut stream in stalled {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    let closed = begun.elapsed();
    assert!((Duration::from_secs(9)..PATIENCE).contains(&closed), "{closed:?}");
    assert_eq!(server.failed.get(), 60);
}

#[test]
fn faults_name_the_file() {
    let directory = Directory::new("faults");
    let ca = Authority::new(&directory.0, "ca");
    let KeyPair { certificate, key } = pair(ca.issue("server", SERVER_NAMES));
    let other = pair(ca.issue("other", SERVER_NAMES));
    let empty = directory.0.join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let fault = |certificate: &PathBuf, key: &PathBuf, ca: &PathBuf| {
        let pair = KeyPair { certificate: certificate.clone(), key: key.clone() };
        let fault = ServerTls::open(pair, Some(ca.clone()), Counter::default()).unwrap_err();
        fault.replace(&format!("{}/", directory.0.display()), "")
    };
    let ca = ca.certificate();
    let missing = directory.0.join("missing.pem");
    let no_certificate = "empty.pem: no certificate found: expected a PEM file";
    assert_eq!(fault(&empty, &key, &ca), no_certificate);
    assert_eq!(fault(&certificate, &key, &empty), no_certificate);
    let no_key = "no private key found: expected a PEM file without a password";
    assert_eq!(fault(&certificate, &empty, &ca), format!("empty.pem: {no_key}"));
    assert_eq!(fault(&certificate, &certificate, &ca), format!("server.pem: {no_key}"));
    assert!(fault(&certificate, &missing, &ca).starts_with("cannot read missing.pem: "));
    let mismatch = fault(&certificate, &other.key, &ca);
    assert!(mismatch.starts_with("other.key: ") && mismatch.contains("KeyMismatch"), "{mismatch}");
}
