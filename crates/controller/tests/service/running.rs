//! A running controller and its database, accessed over HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;
use serde_json::Value;
use thalweg_control::Settings;
use thalweg_controller::{Config, Controller, Limits, Tls, create_token};
use thalweg_record::{Batch, Entry, Network, Record, SocketRecord, Source};
use tokio::sync::oneshot;

/// Time limit that exceeds the duration of any step on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const RECORDS: &str = "Content-Type: application/x-protobuf\r\n";

/// Temporary directory for a controller's database, removed after the test, and the settings of the
/// controller.
pub(crate) struct Place {
    directory: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) limits: Limits,
    pub(crate) tls: Option<Tls>,
}

impl Place {
    pub(crate) fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("thalweg-service-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let settings = Settings { window_s: 1, late_s: 1, ..Settings::default() };
        Self { directory, settings, limits: Limits::default(), tls: None }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.join("control.sqlite")
    }

    /// Returns the identities file, if the test has written one.
    pub(crate) fn identities(&self) -> Option<PathBuf> {
        Some(self.directory.join("identities.toml")).filter(|path| path.exists())
    }

    /// Adds an identity to the identities file, and returns the request field with its token.
    pub(crate) fn add_identity(&self, keys: &str) -> String {
        let (token, digest) = create_token().unwrap();
        self.write_identity(keys, &format!("token_sha256 = \"{digest}\""));
        format!("Authorization: Bearer {token}\r\n")
    }

    /// Adds an identity to the identities file.
    pub(crate) fn write_identity(&self, keys: &str, credential: &str) {
        let path = self.directory.join("identities.toml");
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        std::fs::write(path, format!("{known}[[identity]]\n{keys}\n{credential}\n")).unwrap();
    }

    pub(crate) fn database(&self) -> Connection {
        Connection::open(self.file()).unwrap()
    }

    pub(crate) fn bind(&self) -> Result<Controller, String> {
        self.bind_at("127.0.0.1:0")
    }

    pub(crate) fn bind_at(&self, listen: &str) -> Result<Controller, String> {
        let config = Config {
            listen: listen.parse().unwrap(),
            tls: self.tls.clone(),
            identities: self.identities(),
            limits: self.limits.clone(),
            kafka: None,
            database: self.file(),
            settings: self.settings.clone(),
        };
        Controller::bind(&config).map_err(|error| error.to_string())
    }

    pub(crate) fn start(&self) -> Service<'_> {
        let controller = self.bind().unwrap();
        let address = controller.local_addr();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(controller.run(async { drop(stopped.await) })).unwrap();
        });
        Service { place: self, address, stop, running, records: 0 }
    }

    /// Returns the error with which a controller fails to start, without the file name.
    pub(crate) fn start_error(&self) -> String {
        let why = self.bind().unwrap_err();
        let error = why.strip_prefix(&format!("cannot use {}: ", self.file().display()));
        error.unwrap_or_else(|| panic!("{why}")).to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A running controller.
pub(crate) struct Service<'a> {
    place: &'a Place,
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
    /// Number of records posted so far.
    records: u64,
}

impl Service<'_> {
    pub(crate) fn end(self) {
        drop(self.stop);
        self.running.join().unwrap();
        until("its file is released", || self.place.bind().is_ok());
    }

    /// Posts a batch of one record with the current time.
    pub(crate) fn post_record(&mut self) -> Vec<u8> {
        let batch = batch(self.records);
        self.records += 1;
        let answer = request(self.address, "POST /records", RECORDS, &batch);
        assert_eq!((answer.status, answer.json()["position"].as_u64()), (200, Some(self.records)));
        batch
    }

    pub(crate) fn get(&self, target: &str, fields: &str) -> Response {
        request(self.address, &format!("GET {target}"), fields, &[])
    }

    /// Reads the decided rounds over HTTP.
    pub(crate) fn rounds(&self) -> Vec<Value> {
        let answer = self.get("/rounds?pop=here", "").json();
        answer["rounds"].as_array().cloned().unwrap_or_default()
    }

    /// Returns a metric's value.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        self.metric_as(name, "")
    }

    /// Returns a metric's value, read with the given fields.
    pub(crate) fn metric_as(&self, name: &str, fields: &str) -> u64 {
        let text = self.get("/metrics", fields).content;
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("thalweg_controller_{name} ")));
        value.unwrap().parse().unwrap()
    }
}

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) etag: String,
    pub(crate) head: String,
    pub(crate) content: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.content).unwrap()
    }
}

pub(crate) fn request(address: SocketAddr, what: &str, fields: &str, content: &[u8]) -> Response {
    request_as("localhost", address, what, fields, content)
}

/// Sends a request with the given `Host` field.
pub(crate) fn request_as(
    host: &str,
    address: SocketAddr,
    what: &str,
    fields: &str,
    content: &[u8],
) -> Response {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "{what} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}Content-Length: {}\r\n\r\n",
        content.len()
    );
    // The server may refuse the content before it has read all of it.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(content));
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8(text).unwrap();
    let (head, content) = text.split_once("\r\n\r\n").unwrap();
    let etag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_default();
    let (status, etag) = (head[9..12].parse().unwrap(), etag.to_owned());
    Response { status, etag, head: head.to_owned(), content: content.to_owned() }
}

/// An edge that polls over HTTP.
#[derive(Default)]
pub(crate) struct Poller {
    pop: String,
    name: String,
    pub(crate) in_force: String,
    pub(crate) number: u64,
    refused: String,
}

impl Poller {
    pub(crate) fn new(pop: &str, name: &str) -> Self {
        Self { pop: pop.into(), name: name.into(), ..Self::default() }
    }

    /// Polls once. `refuses` decides whether a bundle is refused or applied. Returns the status.
    pub(crate) fn poll(&mut self, address: SocketAddr, refuses: bool) -> Response {
        let mut fields = "Prefer: wait=0\r\n".to_owned();
        let tags: Vec<_> =
            [&self.in_force, &self.refused].into_iter().filter(|tag| !tag.is_empty()).cloned().collect();
        if self.in_force.is_empty() && !self.refused.is_empty() {
            fields += &format!("If-None-Match: \"\", {}\r\n", self.refused);
        } else if !tags.is_empty() {
            fields += &format!("If-None-Match: {}\r\n", tags.join(", "));
        }
        if !self.refused.is_empty() {
            fields += &format!("Thalweg-Refused: {} hostile\r\n", self.refused.trim_matches('"'));
        }
        if self.number > 0 {
            fields += &format!("Thalweg-Bundle-Number: {}\r\n", self.number);
        }
        let reply =
            request(address, &format!("GET /bundle?pop={}&edge={}", self.pop, self.name), &fields, &[]);
        if reply.status == 200 && refuses {
            self.refused.clone_from(&reply.etag);
        } else if reply.status == 200 {
            self.in_force.clone_from(&reply.etag);
            self.number = reply.json()["number"].as_u64().unwrap();
        }
        reply
    }
}

pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Returns a batch of one socket record of `edge-1` at the PoP `here`.
pub(crate) fn batch(number: u64) -> Vec<u8> {
    batch_of("here", "edge-1", number, vec![socket("192.0.2.7:1024")])
}

/// Returns a socket record of the current time.
pub(crate) fn socket(client: &str) -> Record {
    let time_unix_us = u64::try_from(now().as_micros()).unwrap();
    let server = "192.0.2.1:80".parse().unwrap();
    Record::Socket(Box::new(SocketRecord::new(time_unix_us, client.parse().unwrap(), server)))
}

/// Encodes a batch whose first record has the given number.
pub(crate) fn batch_of(pop: &str, host: &str, number: u64, records: Vec<Record>) -> Vec<u8> {
    let numbered = records.into_iter().zip(number..);
    let entry = |(record, number)| Entry { number, network: Network::default(), record };
    let source = Source { host: host.into(), pop: pop.into(), epoch: 1 };
    let mut content = Vec::new();
    Batch { source, entries: numbered.map(entry).collect() }.encode(&mut content);
    content
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        // Another thread fulfils the condition, so poll for it.
        thread::sleep(Duration::from_millis(20));
    }
}
