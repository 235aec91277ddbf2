//! Presentation indexing: indexes each file with ranged reads and checks that the tracks align.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use futures_util::future::try_join_all;
use thalweg_media::error::Error as MediaError;
use thalweg_media::index::{IndexOptions, Indexer, Step};
use thalweg_media::presentation::{Misaligned, NamedTrack, OnDemand};
use thalweg_media::track::{TRACK_EXTENSIONS_HELP, TrackIndex};

use super::names::track_names;
use crate::storage::{Object, Storage, StorageError};

/// A presentation that can be served.
#[derive(Debug)]
pub(crate) struct Presentation {
    /// Tracks and their timing.
    pub(crate) media: OnDemand,
    /// File of each track, in the order of `media.tracks()`.
    objects: Vec<Object>,
}

impl Presentation {
    /// Returns the track called `name` and its file.
    pub(crate) fn track(&self, name: &str) -> Option<(&NamedTrack, &Object)> {
        self.media.tracks().iter().zip(&self.objects).find(|(track, _)| track.name == name)
    }

    /// Returns the number of indexed segments, which is the presentation's cost in the cache.
    pub(super) fn segments(&self) -> usize {
        self.media.tracks().iter().map(|t| t.index.segments.len()).sum()
    }
}

/// Reasons why a presentation cannot be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No presentation has this name.
    Unknown,
    /// Storage failed.
    Storage(StorageError),
    /// The directory has no track.
    NoTracks { name: String },
    /// A file is not a valid CMAF track.
    Media { key: String, error: MediaError },
    /// The tracks do not align.
    Misaligned(Misaligned),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unknown => f.write_str("no such presentation"),
            Fault::Storage(error) => error.fmt(f),
            Fault::NoTracks { name } => {
                write!(f, "{name}: no track; {TRACK_EXTENSIONS_HELP}")
            }
            Fault::Media { key, error } => write!(f, "{key}: {error}"),
            Fault::Misaligned(misaligned) => misaligned.fmt(f),
        }
    }
}

impl std::error::Error for Fault {}

/// Indexes the presentation `name`, which consists of `objects`.
pub(super) async fn load(
    storage: &Storage,
    name: &str,
    objects: Vec<Object>,
    segment_target_ms: u32,
) -> Result<Presentation, Fault> {
    if objects.is_empty() {
        return Err(Fault::NoTracks { name: name.to_owned() });
    }
    let options = IndexOptions { segment_target_ms };
    let indices = try_join_all(objects.iter().map(|object| index(storage, object, options))).await?;
    let names = track_names(name, objects.iter().map(|o| o.key.as_str()));
    let tracks = names.into_iter().zip(&objects).zip(indices);
    let tracks = tracks.map(|((name, object), index)| {
        let version = object.version.clone();
        NamedTrack { name, version, file: object.key.clone(), index }
    });
    let media = OnDemand::new(tracks.collect()).map_err(Fault::Misaligned)?;
    Ok(Presentation { media, objects })
}

/// Indexes one file, reading only what the indexer requests.
async fn index(storage: &Storage, object: &Object, options: IndexOptions) -> Result<TrackIndex, Fault> {
    let reader = storage.open(object).await.map_err(Fault::Storage)?;
    let mut indexer = Indexer::new(object.size, options);
    let fault = |error| Fault::Media { key: object.key.clone(), error };
    loop {
        match indexer.step().map_err(fault)? {
            Step::Want(want) => {
                let bytes = reader.read(want.offset, want.len).await.map_err(Fault::Storage)?;
                indexer.feed(&bytes);
            }
            Step::Done(index) => return Ok(index),
        }
    }
}

/// Returns a value that changes whenever a file is added, removed or modified.
pub(super) fn fingerprint(objects: &[Object]) -> u64 {
    let mut hasher = DefaultHasher::new();
    objects.hash(&mut hasher);
    hasher.finish()
}
