//! The thread that carries bundles over Kafka: it writes which bundle edges are to have into a compacted topic, and hears there what they
//! have ([`crate::carried`]). To the engine it is as if each edge polled.
//!
//! **Invariant:** what edges are to have is asked of the engine, which answers with what is in its file: nothing is written before.
//! **Invariant:** what was in the topic as this began is known before anything is written: what is right stays, and the bundle of a canary
//! that is heard and is none any more is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_bundle::{BYTES_MAX, Bundle};
use thalweg_record::is_name;
use thalweg_telemetry::Error;
use thalweg_telemetry::kafka::Cluster;
use thalweg_telemetry::keyed::{DOCUMENT_BYTES_MAX, Found, Reader, Writer};
use tokio::sync::oneshot;

use crate::carried::{Acknowledged, Key};
use crate::document::Heard;
use crate::engine::{Answer, Handle, Message};

/// Partitions of the topic where it is made.
const PARTITIONS: u16 = 12;
/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// For how long is read before what is due is written.
const READ_FOR: Duration = Duration::from_secs(1);
/// For how long what an edge has said is what it says: it says it again before that.
const HEARD_FOR: Duration = Duration::from_secs(60);
/// After which all is written again: a topic that somebody cleared, or that is not compacted, would have lost it.
const WRITE_AGAIN_AFTER: Duration = Duration::from_secs(3600);
/// Edges, and bundles in the topic, that are remembered. Further edges go by what all have.
const KEYS_MAX: usize = 100_000;
const _: () = assert!(BYTES_MAX <= DOCUMENT_BYTES_MAX, "each bundle can be written");

/// The thread's own.
#[derive(Debug)]
pub(crate) struct Carrier {
    reader: Reader,
    writer: Writer,
    is_caught_up: bool,
    /// The checksums of the bundles in the topic; none of what is no bundle.
    published: BTreeMap<Key, Option<String>>,
    /// When that was last read, or forgotten.
    published_at: Instant,
    /// What edges have said, by PoP and name.
    edges: BTreeMap<(String, String), (Heard, Instant)>,
    /// PoPs, and edges of them, of which it is to be asked what they are to have. The PoP comes before its edges.
    due: BTreeSet<(String, Option<String>)>,
    /// What of these could not be written last.
    failed: Option<(String, Option<String>)>,
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
            is_caught_up: false,
            published: BTreeMap::new(),
            published_at: Instant::now(),
            edges: BTreeMap::new(),
            due: BTreeSet::new(),
            failed: None,
        })
    }

    /// Carries until nobody answers any more.
    pub(crate) fn run(mut self, mut handle: Handle) {
        let mut told = None;
        while !handle.messages.is_closed() {
            let now = self.step(&mut handle).err().map(|error| chain(&error));
            match &now {
                Some(error) if told.as_ref() != Some(error) => {
                    tracing::warn!(error, "bundles are not carried over Kafka; tried again and again");
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

    fn step(&mut self, handle: &mut Handle) -> Result<(), Error> {
        self.writer.create()?;
        let begun = Instant::now();
        while begun.elapsed() < READ_FOR {
            // It may be gone: then it is made again.
            match self.reader.read().inspect_err(|_| self.writer.refresh())? {
                Found::Document(key, value) => self.take(&key, value.as_deref()),
                Found::End => {
                    if std::mem::replace(&mut self.is_caught_up, true) {
                        // There are more partitions, and keys are in others; or it is another topic.
                        self.writer.refresh();
                        self.write_again();
                    }
                    self.all_are_due(handle);
                }
                Found::Nothing => break,
            }
        }
        if !self.is_caught_up {
            return Ok(());
        }
        if self.published_at.elapsed() >= WRITE_AGAIN_AFTER {
            self.write_again();
            self.all_are_due(handle);
        }
        if handle.changes.has_changed().unwrap_or(false) {
            handle.changes.mark_unchanged();
            self.all_are_due(handle);
        }
        // After one that fails come the others, before it is tried again.
        let after = self.failed.take();
        let is_later = |key: &&(String, Option<String>)| after.as_ref().is_none_or(|after| *key > after);
        let (later, first): (Vec<_>, Vec<_>) = self.due.iter().partition(is_later);
        for (pop, edge) in later.into_iter().chain(first).cloned().collect::<Vec<_>>() {
            match self.publish(handle, &pop, edge.as_deref()) {
                Ok(true) => drop(self.due.remove(&(pop, edge))),
                Ok(false) => {} // not in the controller's file yet
                Err(error) => {
                    self.failed = Some((pop, edge));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes what is in the topic.
    fn take(&mut self, key: &str, value: Option<&[u8]>) {
        match Key::parse(key) {
            // Afterwards it is what was written here.
            Some(key @ Key::Bundle(..)) if !self.is_caught_up => match value {
                Some(document) if self.published.len() < KEYS_MAX => {
                    let bundle = Bundle::decode(document).ok();
                    self.published.insert(key, bundle.map(|bundle| bundle.checksum().to_owned()));
                }
                _ => drop(self.published.remove(&key)),
            },
            // What was said before this began, or is read again, is old.
            Some(Key::Acknowledged(pop, edge)) if self.is_caught_up && !self.reader.is_behind() => {
                let Some(said) = value.and_then(Acknowledged::decode) else { return };
                if self.edges.len() == KEYS_MAX {
                    self.edges.retain(|_, (_, at)| at.elapsed() < HEARD_FOR);
                }
                if self.edges.len() < KEYS_MAX {
                    let heard = (Heard::said(said), Instant::now());
                    self.edges.insert((pop.clone(), edge.clone()), heard);
                    self.due.insert((pop, Some(edge)));
                }
            }
            _ => {}
        }
    }

    /// Trusts no more in what was written.
    fn write_again(&mut self) {
        self.published.clear();
        self.published_at = Instant::now();
    }

    fn all_are_due(&mut self, handle: &Handle) {
        let pops = handle.shared.views().into_iter().map(|(pop, _)| (pop, None));
        let edges = self.edges.iter().filter(|(_, (_, at))| at.elapsed() < HEARD_FOR);
        let edges = edges.map(|((pop, edge), _)| (pop.clone(), Some(edge.clone())));
        // A PoP without a proper name has no key: records that were read from Kafka may say anything.
        self.due.extend(pops.chain(edges).filter(|(pop, _)| is_name(pop)));
    }

    /// Writes what a PoP, or an edge of it, is to have, if that is not in the topic. Whether it is known.
    fn publish(&mut self, handle: &Handle, pop: &str, edge: Option<&str>) -> Result<bool, Error> {
        let heard = edge.and_then(|edge| self.edges.get(&(pop.to_owned(), edge.to_owned())));
        let heard = heard.map(|(heard, _)| heard.clone()).unwrap_or_default();
        let document = match ask(handle, pop, edge, heard) {
            Some(Answer::Document(Some(document), _)) => document,
            // Also one that an edge has refused: it is not given it again.
            Some(Answer::Document(None, _)) => return Ok(true),
            Some(Answer::Unwritten) | None => return Ok(false),
        };
        let key = Key::Bundle(pop.to_owned(), edge.map(str::to_owned));
        let of_all = self.published.get(&Key::Bundle(pop.to_owned(), None)).cloned().flatten();
        let is_as_all = edge.is_some() && of_all.as_deref() == Some(document.checksum());
        let wanted = (!is_as_all).then_some(&document);
        let checksum = wanted.map(|document| document.checksum().to_owned());
        match self.published.get(&key) {
            Some(there) if *there == checksum => return Ok(true),
            None if wanted.is_none() => return Ok(true),
            _ => {}
        }
        self.writer.put(pop, &key.to_string(), wanted.map(|document| document.text.as_bytes()))?;
        match checksum {
            Some(checksum) => drop(self.published.insert(key, Some(checksum))),
            None => drop(self.published.remove(&key)),
        }
        Ok(true)
    }
}

/// Asks the engine as an edge does; nothing once it has ended.
fn ask(handle: &Handle, pop: &str, edge: Option<&str>, heard: Heard) -> Option<Answer> {
    let (tell, answer) = oneshot::channel();
    let (pop, edge) = (pop.to_owned(), edge.map(str::to_owned));
    handle.messages.blocking_send(Message::Poll { pop, edge, heard, tell }).ok()?;
    answer.blocking_recv().ok()
}

fn chain(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}
