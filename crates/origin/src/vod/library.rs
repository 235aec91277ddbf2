//! Cache of presentation indices.
//!
//! **Invariant:** concurrent requests for a presentation share one indexing run.
//! **Invariant:** an index is never served for files known to have changed. Storage is checked
//! again once a listing reaches the configured age.
//!
//! Lock order: the map's lock is released before a slot is locked, and is never held across an
//! await.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Mutex as AsyncMutex;

use super::load::{Fault, Presentation, fingerprint, load};
use crate::storage::{Storage, StorageError};

/// Maximum presentations with a cached index or error.
const SLOTS_MAX: usize = 1024;
/// Maximum segments in all cached indices: 64 MiB at 32 bytes each.
const SEGMENTS_MAX: usize = 2 << 20;

/// All presentations of an origin.
#[derive(Debug)]
pub(crate) struct Library {
    storage: Storage,
    segment_target_ms: u32,
    listing_max_age: Duration,
    slots: Mutex<HashMap<String, Entry>>,
}

#[derive(Debug)]
struct Entry {
    slot: Arc<AsyncMutex<Slot>>,
    used: Instant,
    segments: usize,
}

type Outcome = Result<Arc<Presentation>, Fault>;

/// The cached state of one presentation.
#[derive(Debug, Default)]
struct Slot {
    loaded: Option<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    fingerprint: u64,
    listed: Instant,
    outcome: Outcome,
}

impl Library {
    pub(crate) fn new(storage: Storage, segment_target_ms: u32, listing_max_age: Duration) -> Library {
        Library { storage, segment_target_ms, listing_max_age, slots: Mutex::default() }
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Returns the names of all presentations, sorted.
    pub(crate) async fn names(&self) -> Result<Vec<String>, StorageError> {
        self.storage.names().await
    }

    /// Returns the presentation called `name`, indexing it if necessary.
    pub(crate) async fn get(&self, name: &str) -> Outcome {
        let slot = self.slot(name);
        let mut slot = slot.lock().await;
        let known = slot.loaded.as_ref().filter(|l| l.listed.elapsed() < self.listing_max_age);
        if let Some(loaded) = known {
            return loaded.outcome.clone();
        }
        let outcome = self.refresh(name, &mut slot).await;
        drop(slot);
        match &outcome {
            Err(Fault::Unknown) => drop(self.lock().remove(name)),
            Ok(presentation) => self.make_room(name, presentation.segments()),
            Err(_) => self.make_room(name, 0),
        }
        outcome
    }

    /// Lists the presentation's files again, and indexes them if they changed.
    async fn refresh(&self, name: &str, slot: &mut Slot) -> Outcome {
        let listed = Instant::now();
        let objects = self.storage.tracks(name).await.map_err(Fault::Storage)?.ok_or(Fault::Unknown)?;
        let fingerprint = fingerprint(&objects);
        if let Some(loaded) = slot.loaded.as_mut().filter(|l| l.fingerprint == fingerprint) {
            loaded.listed = listed;
            return loaded.outcome.clone();
        }
        let started = Instant::now();
        let outcome = load(&self.storage, name, objects, self.segment_target_ms).await.map(Arc::new);
        let took_ms = started.elapsed().as_millis();
        match &outcome {
            Ok(p) => {
                let (tracks, segments) = (p.media.tracks().len(), p.segments());
                tracing::info!(name, tracks, segments, took_ms, "presentation indexed");
                for fault in &p.faults {
                    tracing::warn!(name, %fault, "track left out");
                }
                for warning in p.media.warnings() {
                    tracing::warn!(name, %warning, "check the presentation");
                }
            }
            // The directory may have a playlist file instead of tracks.
            Err(fault @ Fault::NoTracks { .. }) => tracing::debug!(name, %fault, "no presentation"),
            Err(fault) => tracing::warn!(name, %fault, "presentation cannot be served"),
        }
        // A storage failure may be temporary, so it is not cached.
        if !matches!(outcome, Err(Fault::Storage(_))) {
            slot.loaded = Some(Loaded { fingerprint, listed, outcome: outcome.clone() });
        }
        outcome
    }

    fn slot(&self, name: &str) -> Arc<AsyncMutex<Slot>> {
        let mut slots = self.lock();
        let new = || Entry { slot: Arc::default(), used: Instant::now(), segments: 0 };
        let entry = slots.entry(name.to_owned()).or_insert_with(new);
        entry.used = Instant::now();
        entry.slot.clone()
    }

    /// Evicts the least recently used indices until the new one fits.
    fn make_room(&self, name: &str, segments: usize) {
        let mut slots = self.lock();
        if let Some(entry) = slots.get_mut(name) {
            entry.segments = segments;
        }
        while slots.len() > SLOTS_MAX || slots.values().map(|e| e.segments).sum::<usize>() > SEGMENTS_MAX {
            let others = slots.iter().filter(|(other, _)| *other != name);
            let Some(oldest) = others.min_by_key(|(_, e)| e.used).map(|(n, _)| n.clone()) else { return };
            slots.remove(&oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use std::path::Path;

    fn library(listing_max_age: Duration) -> Library {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets");
        Library::new(Storage::local(&sample).unwrap(), 2000, listing_max_age)
    }

    #[tokio::test]
    async fn concurrent_requests_share_one_index() {
        for listing_max_age in [Duration::ZERO, Duration::from_secs(60)] {
            let library = library(listing_max_age);
            let all = join_all((0..50).map(|_| library.get("sample"))).await;
            let first = all[0].as_ref().unwrap();
            assert!(all.iter().all(|p| Arc::ptr_eq(p.as_ref().unwrap(), first)));
        }
    }

    #[tokio::test]
    async fn unknown_names_are_not_cached() {
        let library = library(Duration::ZERO);
        for name in ["", ".", "..", "make-sample", "nothing", "sample/audio.mp4"] {
            assert_eq!(library.get(name).await.unwrap_err(), Fault::Unknown, "{name}");
        }
        assert!(library.lock().is_empty());
    }

    #[tokio::test]
    async fn least_recently_used_index_is_evicted() {
        let library = library(Duration::ZERO);
        library.get("sample").await.unwrap();
        library.slot("other");
        library.make_room("other", SEGMENTS_MAX);
        assert_eq!(library.lock().keys().collect::<Vec<_>>(), ["other"]);
    }
}
