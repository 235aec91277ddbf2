//! The thread that carries bundles over Kafka: it writes which bundle edges are to have into a compacted topic, and hears there what they
//! have ([`crate::carried`]). To the engine it is as if each edge polled.
//!
//! **Invariant:** what edges are to have is asked of the engine, which answers with what is in its file: nothing is written before.
//! **Invariant:** what was in a PoP's partition as this began is known before anything is written there: what is right stays, and the bundle
//! of a canary that is heard and is none any more is removed.

mod known;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use thalweg_bundle::BYTES_MAX;
use thalweg_telemetry::Error;
use thalweg_telemetry::kafka::Cluster;
use thalweg_telemetry::keyed::{DOCUMENT_BYTES_MAX, Found, Reader, Writer};
use tokio::sync::{oneshot, watch};

use crate::document::{Document, Heard};
use crate::engine::{Answer, Message, WeakHandle};
use known::{Known, Whom};

/// Partitions of the topic where it is made.
const PARTITIONS: u16 = 12;
/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// For how long is read before what is due is written.
const READ_FOR: Duration = Duration::from_secs(1);
/// After which all is written again: a topic that somebody cleared, or that is not compacted, would have lost it.
const WRITE_AGAIN_AFTER: Duration = Duration::from_secs(3600);
const _: () = assert!(BYTES_MAX <= DOCUMENT_BYTES_MAX, "each bundle can be written");

/// The thread's own.
#[derive(Debug)]
pub(crate) struct Carrier {
    reader: Reader,
    writer: Writer,
    known: Known,
    /// When all was last to be written again.
    written_at: Instant,
    /// By what it is known of a PoP that what it is to have may have become another.
    changes: BTreeMap<String, watch::Receiver<()>>,
}

impl Carrier {
    /// Nothing is asked yet.
    ///
    /// # Errors
    /// When a property is wrong.
    pub(crate) fn open(cluster: &Cluster) -> Result<Self, Error> {
        Ok(Self {
            reader: Reader::open(cluster, None)?,
            writer: Writer::of(cluster.clone(), Some(PARTITIONS)),
            known: Known::default(),
            written_at: Instant::now(),
            changes: BTreeMap::new(),
        })
    }

    /// Carries until nobody answers any more.
    pub(crate) fn run(mut self, mut handle: WeakHandle) {
        let mut told = None;
        while handle.is_open() {
            let now = self.step(&mut handle).err().map(|error| chain(&error));
            match &now {
                Some(error) if told.as_ref() != Some(error) => {
                    tracing::warn!(error, "not all bundles are carried over Kafka; tried again and again");
                }
                None if told.is_some() => tracing::info!("bundles are carried over Kafka again"),
                _ => {}
            }
            if now.is_some() {
                thread::sleep(PAUSE);
            }
            told = now;
        }
    }

    /// Reads, then writes. One broker of several may be away: what fails of the one is told, and the other goes on.
    fn step(&mut self, handle: &mut WeakHandle) -> Result<(), Error> {
        let is_there = self.reader.partitions().are_there();
        let created = if is_there { Ok(()) } else { self.writer.create() };
        let read = self.read(handle);
        if !self.reader.partitions().are_there() {
            return created.and(read);
        }
        self.find_due(handle);
        self.write(handle).and(read)
    }

    /// Reads what there is, for a moment.
    fn read(&mut self, handle: &WeakHandle) -> Result<(), Error> {
        let begun = Instant::now();
        while begun.elapsed() < READ_FOR {
            match self.reader.read()? {
                Found::Beginning => {
                    self.known.begin();
                    self.writer.refresh(); // keys may be in other partitions
                }
                Found::Document { partition, key, document } => {
                    let of = (self.reader.partitions(), partition);
                    self.known.take(of, &key, document.as_deref(), Instant::now());
                }
                Found::End(partition) => {
                    let partitions = self.reader.partitions();
                    let pops = handle.pops().filter(|pop| partitions.of(pop) == Some(partition));
                    self.known.are_due(pops, Instant::now());
                }
                Found::Nothing => break,
            }
        }
        Ok(())
    }

    fn find_due(&mut self, handle: &mut WeakHandle) {
        if self.written_at.elapsed() >= WRITE_AGAIN_AFTER {
            self.known.forget();
            self.known.are_due(handle.pops(), Instant::now());
            self.written_at = Instant::now();
        }
        if handle.changes.has_changed().unwrap_or(false) {
            handle.changes.mark_unchanged();
            let has_changed = |pop: &String| {
                self.changes.get(pop).is_none_or(|changes| changes.has_changed().unwrap_or(true))
            };
            self.known.are_due(handle.pops().filter(has_changed), Instant::now());
        }
    }

    /// Writes what is due. After a partition that fails come the others, before it is tried again.
    fn write(&mut self, handle: &WeakHandle) -> Result<(), Error> {
        for whom in self.known.in_turn(self.reader.partitions()) {
            if self.known.waits(&whom) {
                continue;
            }
            match self.publish(handle, &whom) {
                Ok(true) => self.known.done(&whom),
                Ok(false) => {} // not in the controller's file yet
                Err(error) => {
                    self.known.failed(&whom, self.reader.partitions());
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Writes what a PoP, or an edge of it, is to have, if that is not in the topic. Whether it is known.
    fn publish(&mut self, handle: &WeakHandle, whom: &Whom) -> Result<bool, Error> {
        let Some(Answer::Document(document, changes)) = ask(handle, whom, self.known.said(whom)) else {
            return Ok(false);
        };
        self.known.heard(whom);
        if whom.1.is_none() {
            self.changes.insert(whom.0.clone(), changes);
        }
        // None also where an edge has refused it: it is not given it again.
        let Some(document) = document else { return Ok(true) };
        let Some((key, is_wanted)) = self.known.to_write(whom, &document) else { return Ok(true) };
        let wanted = is_wanted.then_some(&*document);
        self.known.writes(&key);
        self.writer.put(&whom.0, &key.to_string(), wanted.map(|document| document.text.as_bytes()))?;
        self.known.written(key, wanted.map(Document::checksum));
        Ok(true)
    }
}

/// Asks the engine as an edge does; nothing once it has ended.
fn ask(handle: &WeakHandle, (pop, edge): &Whom, heard: Option<Heard>) -> Option<Answer> {
    let (tell, answer) = oneshot::channel();
    let (pop, edge) = (pop.clone(), edge.clone());
    handle.send(Message::Poll { pop, edge, heard, tell })?;
    answer.blocking_recv().ok()
}

fn chain(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}
