//! What the thread that carries bundles knows of the topic, what edges have said there, and what is due. Pure.
//!
//! **Invariant:** each PoP goes by its own partition: what cannot be read or written of another does not hold it up.
//! **Invariant:** what may or may not be in the topic is taken for neither: it is written, or removed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use thalweg_bundle::Bundle;
use thalweg_record::is_name;
use thalweg_telemetry::keyed::Partitions;

use crate::carried::{Acknowledged, Key};
use crate::document::{Document, Heard};

/// For how long what an edge has said is what it says: it says it again before that.
const HEARD_FOR: Duration = Duration::from_secs(60);
/// Edges, and bundles in the topic, that are remembered. Further edges go by what all have.
const KEYS_MAX: usize = 100_000;

/// A PoP, or an edge of it.
pub(super) type Whom = (String, Option<String>);

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The checksums of the bundles in the topic; none where it is not known what is there, or that is no bundle.
    published: BTreeMap<Key, Option<String>>,
    /// Edges that have said something, by PoP and name.
    edges: BTreeMap<(String, String), Edge>,
    /// Of whom it is to be asked what they are to have.
    due: BTreeSet<Whom>,
    /// The partition that could not be written to last.
    failed: Option<i32>,
}

#[derive(Debug)]
struct Edge {
    /// What it has said, until that is heard.
    said: Option<Heard>,
    at: Instant,
}

impl Known {
    /// The topic is read from its beginning: nothing is known of it any more.
    pub(super) fn begin(&mut self) {
        self.published.clear();
    }

    /// Takes what is in a partition. What is in another than that of its PoP is not looked at by agents either.
    pub(super) fn take(
        &mut self,
        (partitions, partition): (&Partitions, i32),
        key: &str,
        value: Option<&[u8]>,
        now: Instant,
    ) {
        let Some(key) = Key::parse(key).filter(|key| partitions.of(key.pop()) == Some(partition)) else {
            return;
        };
        match (key, partitions.has_read(partition)) {
            // Afterwards it is what was written here.
            (key @ Key::Bundle(..), false) => match value {
                Some(document) if self.published.len() < KEYS_MAX => {
                    let bundle = Bundle::decode(document).ok();
                    self.published.insert(key, bundle.map(|bundle| bundle.checksum().to_owned()));
                }
                _ => drop(self.published.remove(&key)),
            },
            // What was said before this began, or is read again, is old.
            (Key::Acknowledged(pop, edge), true) => {
                if let Some(said) = value.and_then(Acknowledged::decode) {
                    self.hear(pop, edge, Heard::said(said), now);
                }
            }
            _ => {}
        }
    }

    fn hear(&mut self, pop: String, name: String, said: Heard, now: Instant) {
        if self.edges.len() == KEYS_MAX {
            self.edges.retain(|_, edge| edge.is_there(now));
        }
        if self.edges.len() < KEYS_MAX {
            self.edges.insert((pop.clone(), name.clone()), Edge { said: Some(said), at: now });
            self.due.insert((pop, Some(name)));
        }
    }

    /// What these PoPs, and their edges, are to have may be something else.
    pub(super) fn are_due(&mut self, pops: impl IntoIterator<Item = String>, now: Instant) {
        // A PoP without a proper name has no key: records that were read from Kafka may say anything.
        let pops: BTreeSet<_> = pops.into_iter().filter(|pop| is_name(pop)).collect();
        let edges = self.edges.iter().filter(|((pop, _), edge)| pops.contains(pop) && edge.is_there(now));
        self.due.extend(edges.map(|((pop, edge), _)| (pop.clone(), Some(edge.clone()))));
        self.due.extend(pops.into_iter().map(|pop| (pop, None)));
    }

    /// Trusts no more in what was written.
    pub(super) fn forget(&mut self) {
        self.published.values_mut().for_each(|checksum| *checksum = None);
    }

    /// Who is due and can be helped: first those of the partitions after the one that failed, and each PoP before its edges.
    pub(super) fn in_turn(&mut self, partitions: &Partitions) -> Vec<Whom> {
        let failed = self.failed.take();
        let place = |whom: &Whom| {
            let partition = partitions.of(&whom.0).filter(|partition| partitions.has_read(*partition))?;
            Some((failed.is_some_and(|failed| partition <= failed), partition, whom.clone()))
        };
        let in_turn: BTreeSet<_> = self.due.iter().filter_map(place).collect();
        in_turn.into_iter().map(|(_, _, whom)| whom).collect()
    }

    /// Whether an edge has to wait: what all edges of its PoP are to have is not written.
    pub(super) fn waits(&self, (pop, edge): &Whom) -> bool {
        edge.is_some() && self.due.contains(&(pop.clone(), None))
    }

    /// What an edge has said and is not heard yet.
    pub(super) fn said(&self, (pop, edge): &Whom) -> Option<Heard> {
        self.edges.get(&(pop.clone(), edge.clone()?))?.said.clone()
    }

    /// What an edge has said is heard.
    pub(super) fn heard(&mut self, (pop, edge): &Whom) {
        let edge = edge.as_ref().and_then(|edge| self.edges.get_mut(&(pop.clone(), edge.clone())));
        if let Some(edge) = edge {
            edge.said = None;
        }
    }

    /// What is to be written so that a PoP, or an edge of it, gets a document: under which key, and whether that, or nothing. An edge
    /// that is to have what all have has none of its own.
    pub(super) fn to_write(&self, (pop, edge): &Whom, document: &Document) -> Option<(Key, bool)> {
        let is_there = |key: &Key| {
            self.published.get(key).is_some_and(|there| there.as_deref() == Some(document.checksum()))
        };
        let key = Key::Bundle(pop.clone(), edge.clone());
        let is_wanted = edge.is_none() || !is_there(&Key::Bundle(pop.clone(), None));
        let is_right = if is_wanted { is_there(&key) } else { !self.published.contains_key(&key) };
        (!is_right).then_some((key, is_wanted))
    }

    /// A key is about to be written: whether it was is not known before somebody says so.
    pub(super) fn writes(&mut self, key: &Key) {
        self.published.insert(key.clone(), None);
    }

    /// It was, with the document of this checksum, or was removed.
    pub(super) fn written(&mut self, key: Key, checksum: Option<&str>) {
        match checksum {
            Some(checksum) => drop(self.published.insert(key, Some(checksum.to_owned()))),
            None => drop(self.published.remove(&key)),
        }
    }

    /// It has what it is to have.
    pub(super) fn done(&mut self, whom: &Whom) {
        self.due.remove(whom);
    }

    /// It could not be written.
    pub(super) fn failed(&mut self, (pop, _): &Whom, partitions: &Partitions) {
        self.failed = partitions.of(pop);
    }
}

impl Edge {
    fn is_there(&self, now: Instant) -> bool {
        now.duration_since(self.at) < HEARD_FOR
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]
mod tests;
