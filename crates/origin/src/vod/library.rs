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

use thalweg_media::track::Segment;
use tokio::sync::Mutex as AsyncMutex;

use super::load::{Fault, Presentation, fingerprint, load};
use crate::storage::{Storage, StorageError};

/// Pause before a remote presentation is listed again after its listing failed.
const RELIST_AFTER: Duration = Duration::from_secs(1);
/// Maximum presentations with a cached index or error.
const SLOTS_MAX: usize = 16 << 10;
/// Maximum size of all cached indices in bytes: 4000 films of two hours with six tracks.
const INDEX_BYTES_MAX: usize = 512 << 20;
/// Approximate size of a presentation without its segments, in bytes.
const PRESENTATION_BYTES: usize = 4 << 10;

/// Maximum age of a presentation's file listing, by the kind of its library.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListingAges {
    /// Directories.
    pub(crate) local: Duration,
    /// Libraries reached over HTTP.
    pub(crate) remote: Duration,
}

/// All presentations of an origin.
#[derive(Debug)]
pub(crate) struct Library {
    storage: Storage,
    segment_target_ms: u32,
    listing_max_ages: ListingAges,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    entries: HashMap<String, Entry>,
    /// Sum over all entries.
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    slot: Arc<AsyncMutex<Slot>>,
    used: Instant,
    bytes: usize,
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
    listing_max_age: Duration,
    outcome: Outcome,
}

impl Library {
    pub(crate) fn new(storage: Storage, segment_target_ms: u32, listing_max_ages: ListingAges) -> Library {
        Library { storage, segment_target_ms, listing_max_ages, slots: Mutex::default() }
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
        let known = slot.loaded.as_ref().filter(|l| l.listed.elapsed() < l.listing_max_age);
        if let Some(loaded) = known {
            return loaded.outcome.clone();
        }
        let outcome = self.refresh(name, &mut slot).await;
        drop(slot);
        match &outcome {
            Err(Fault::Unknown) => self.lock().remove(name),
            Ok(presentation) => self.make_room(name, presentation.segments() * size_of::<Segment>()),
            Err(_) => self.make_room(name, 0),
        }
        outcome
    }

    /// Makes the next request for a presentation list its files again.
    pub(crate) async fn expire(&self, name: &str) {
        let slot = self.slot(name);
        if let Some(loaded) = &mut slot.lock().await.loaded {
            loaded.listing_max_age = Duration::ZERO;
        }
    }

    /// Lists the presentation's files again, and indexes them if they changed.
    async fn refresh(&self, name: &str, slot: &mut Slot) -> Outcome {
        let listed = Instant::now();
        let objects = match self.storage.tracks(name).await {
            Ok(objects) => objects.ok_or(Fault::Unknown)?,
            // Every read of a remote object names its version, so the known index is safe to use.
            Err(error @ StorageError::Remote { .. }) if slot.loaded.is_some() => {
                tracing::warn!(name, %error, "presentation cannot be listed, the known index stays in use");
                let loaded = slot.loaded.as_mut().expect("checked by the guard");
                (loaded.listed, loaded.listing_max_age) = (listed, RELIST_AFTER);
                return loaded.outcome.clone();
            }
            Err(error) => return Err(Fault::Storage(error)),
        };
        let fingerprint = fingerprint(&objects);
        let is_remote = objects.first().is_some_and(|object| self.storage.is_remote(object));
        let ages = self.listing_max_ages;
        let listing_max_age = if is_remote { ages.remote } else { ages.local };
        if let Some(loaded) = slot.loaded.as_mut().filter(|l| l.fingerprint == fingerprint) {
            (loaded.listed, loaded.listing_max_age) = (listed, listing_max_age);
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
            slot.loaded = Some(Loaded { fingerprint, listed, listing_max_age, outcome: outcome.clone() });
        }
        outcome
    }

    fn slot(&self, name: &str) -> Arc<AsyncMutex<Slot>> {
        let mut slots = self.lock();
        let new = || Entry { slot: Arc::default(), used: Instant::now(), bytes: 0 };
        let entry = slots.entries.entry(name.to_owned()).or_insert_with(new);
        entry.used = Instant::now();
        entry.slot.clone()
    }

    /// Evicts the least recently used indices until the new one fits.
    fn make_room(&self, name: &str, segment_bytes: usize) {
        let mut slots = self.lock();
        slots.resize(name, segment_bytes + PRESENTATION_BYTES);
        while slots.entries.len() > SLOTS_MAX || slots.bytes > INDEX_BYTES_MAX {
            let others = slots.entries.iter().filter(|(other, _)| *other != name);
            let Some(oldest) = others.min_by_key(|(_, e)| e.used).map(|(n, _)| n.clone()) else { return };
            slots.remove(&oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    fn resize(&mut self, name: &str, bytes: usize) {
        if let Some(entry) = self.entries.get_mut(name) {
            self.bytes = self.bytes - entry.bytes + bytes;
            entry.bytes = bytes;
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some(entry) = self.entries.remove(name) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use std::path::Path;

    fn library(listing_max_age: Duration) -> Library {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets");
        let ages = ListingAges { local: listing_max_age, remote: listing_max_age };
        Library::new(Storage::local(&sample).unwrap(), 2000, ages)
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
        assert!(library.lock().entries.is_empty());
    }

    #[tokio::test]
    async fn least_recently_used_index_is_evicted() {
        let library = library(Duration::ZERO);
        library.get("sample").await.unwrap();
        library.slot("other");
        library.make_room("other", INDEX_BYTES_MAX - PRESENTATION_BYTES);
        assert_eq!(library.lock().entries.keys().collect::<Vec<_>>(), ["other"]);
        assert_eq!(library.lock().bytes, INDEX_BYTES_MAX);
    }
}
