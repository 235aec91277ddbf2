//! A running controller and its database, accessed over HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;
use serde_json::Value;
use thalweg_control::Settings;
use thalweg_controller::{Config, Controller};
use thalweg_record::{Batch, Entry, Network, Record, SocketRecord, Source};
use tokio::sync::oneshot;

/// Time limit that exceeds the duration of any step on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const RECORDS: &str = "Content-Type: application/x-protobuf\r\n";

/// Temporary directory for a controller's database, removed after the test.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("thalweg-service-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("control.sqlite")
    }

    pub(crate) fn database(&self) -> Connection {
        Connection::open(self.file()).unwrap()
    }

    pub(crate) fn bind(&self) -> Result<Controller, String> {
        let settings = Settings { window_s: 1, late_s: 1, ..Settings::default() };
        let config =
            Config { listen: "127.0.0.1:0".parse().unwrap(), kafka: None, database: self.file(), settings };
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
        let _ = std::fs::remove_dir_all(&self.0);
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

    /// Returns the decided rounds, read over HTTP.
    pub(crate) fn rounds(&self) -> Vec<Value> {
        let answer = self.get("/rounds?pop=here", "").json();
        answer["rounds"].as_array().cloned().unwrap_or_default()
    }

    /// Returns a metric's value.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics", "").content;
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("thalweg_controller_{name} ")));
        value.unwrap().parse().unwrap()
    }
}

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) etag: String,
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
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(content).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, content) = text.split_once("\r\n\r\n").unwrap();
    let etag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_default();
    Response { status: head[9..12].parse().unwrap(), etag: etag.to_owned(), content: content.to_owned() }
}

pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

pub(crate) fn batch(number: u64) -> Vec<u8> {
    let socket = SocketRecord {
        cookie: number,
        ..SocketRecord::new(
            u64::try_from(now().as_micros()).unwrap(),
            "192.0.2.7:1024".parse().unwrap(),
            "192.0.2.1:80".parse().unwrap(),
        )
    };
    let entry = Entry { number, network: Network::default(), record: Record::Socket(Box::new(socket)) };
    let source = Source { host: "edge-1".into(), pop: "here".into(), epoch: 1 };
    let mut content = Vec::new();
    Batch { source, entries: vec![entry] }.encode(&mut content);
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
