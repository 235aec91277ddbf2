//! Presentation indexing: indexes each file with ranged reads and checks that the tracks align.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use futures_util::future::join_all;
use thalweg_media::error::Error as MediaError;
use thalweg_media::index::{IndexOptions, Indexer, Step};
use thalweg_media::language;
use thalweg_media::presentation::{Misaligned, NamedTrack, OnDemand};
use thalweg_media::tiles::Tiles;
use thalweg_media::track::{TRACK_EXTENSIONS_HELP, TrackIndex};
use thalweg_media::vtt;

use super::images;
use super::names::track_names;
use crate::storage::{Object, Storage, StorageError};

/// A presentation that can be served.
#[derive(Debug)]
pub(crate) struct Presentation {
    /// Tracks and their timing.
    pub(crate) media: OnDemand,
    /// File of each track, in the order of `media.tracks()`.
    objects: Vec<Object>,
    /// Images of each set of thumbnails, in the order of `media.tiles()`.
    images: Vec<Vec<Object>>,
    /// Reasons for the tracks that are left out.
    pub(crate) faults: Vec<Fault>,
}

impl Presentation {
    /// Returns the track called `name` and its file.
    pub(crate) fn track(&self, name: &str) -> Option<(&NamedTrack, &Object)> {
        self.media.tracks().iter().zip(&self.objects).find(|(track, _)| track.name == name)
    }

    /// Returns the set of thumbnails called `name`, and its images in order.
    pub(crate) fn tiles(&self, name: &str) -> Option<(&Tiles, &[Object])> {
        let mut sets = self.media.tiles().iter().zip(&self.images);
        sets.find(|(tiles, _)| tiles.name == name).map(|(tiles, images)| (tiles, images.as_slice()))
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
    /// An image does not belong to a set of thumbnails.
    Image { key: String, problem: &'static str },
    /// Tracks do not align.
    Misaligned(Misaligned),
    /// No track is usable, each for another reason.
    Unusable(Vec<Fault>),
}

impl Fault {
    /// Returns the file left out, if the fault concerns one file.
    pub(crate) fn file(&self) -> Option<&str> {
        match self {
            Fault::Media { key, .. } | Fault::Image { key, .. } => Some(key),
            Fault::Misaligned(misaligned) => misaligned.file(),
            Fault::Unknown | Fault::Storage(_) | Fault::NoTracks { .. } | Fault::Unusable(_) => None,
        }
    }
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
            Fault::Image { key, problem } => write!(f, "{key}: {problem}"),
            Fault::Misaligned(misaligned) => misaligned.fmt(f),
            Fault::Unusable(faults) => {
                let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
                f.write_str(&faults.join("; "))
            }
        }
    }
}

impl std::error::Error for Fault {}

/// Indexes the presentation `name`, which consists of `objects`. Invalid and misaligned files are
/// left out. If storage fails, so does the presentation: the failure may be temporary, and the
/// manifest must not change with it.
pub(crate) async fn load(
    storage: &Storage,
    name: &str,
    mut objects: Vec<Object>,
    segment_target_ms: u32,
) -> Result<Presentation, Fault> {
    let image_sets = images::take(&mut objects);
    if objects.is_empty() {
        return Err(Fault::NoTracks { name: name.to_owned() });
    }
    let options = IndexOptions { segment_target_ms };
    let indices = join_all(objects.iter().map(|object| index(storage, object, options))).await;
    // Names count invalid files too, so that URLs do not change once a file is repaired.
    let set_keys: Vec<String> = image_sets.keys().map(|(set, ..)| format!("{set}.tiles")).collect();
    let keys = objects.iter().map(|o| o.key.as_str()).chain(set_keys.iter().map(String::as_str));
    let mut names = track_names(name, keys);
    let set_names = names.split_off(objects.len());
    let (mut tracks, mut faults) = (Vec::new(), Vec::new());
    for ((name, object), index) in names.iter().zip(&objects).zip(indices) {
        let (name, version, file) = (name.clone(), object.version.clone(), object.key.clone());
        match index {
            Ok(index) => tracks.push(NamedTrack { name, version, file, index }),
            Err(Fault::Storage(error)) => return Err(Fault::Storage(error)),
            Err(fault) => faults.push(fault),
        }
    }
    let media = match OnDemand::new(tracks) {
        Ok(media) => media,
        Err(misaligned) => return Err(unusable(faults, misaligned)),
    };
    faults.extend(media.excluded().iter().cloned().map(Fault::Misaligned));
    let mut by_name: HashMap<String, Object> = names.into_iter().zip(objects).collect();
    let objects = media.tracks().iter().filter_map(|track| by_name.remove(&track.name)).collect();
    let (sets, image_faults) = images::load(storage, image_sets, &set_names).await?;
    faults.extend(image_faults);
    let (tiles, images) = sets.into_iter().unzip();
    Ok(Presentation { media: media.with_tiles(tiles), objects, images, faults })
}

/// Returns the fault of a presentation without a usable track: the reasons for all its files.
fn unusable(mut faults: Vec<Fault>, misaligned: Misaligned) -> Fault {
    if faults.is_empty() || misaligned != Misaligned::NoTracks {
        faults.push(Fault::Misaligned(misaligned));
    }
    if faults.len() == 1 { faults.remove(0) } else { Fault::Unusable(faults) }
}

/// Indexes one file, reading only what the indexer requests. WebVTT files are read as a whole.
async fn index(storage: &Storage, object: &Object, options: IndexOptions) -> Result<TrackIndex, Fault> {
    let reader = storage.open(object).await.map_err(Fault::Storage)?;
    let fault = |error| Fault::Media { key: object.key.clone(), error };
    if vtt::is_vtt_file(&object.key) {
        let text = reader.read(0, object.size.min(vtt::VTT_BYTES_MAX + 1)).await.map_err(Fault::Storage)?;
        return vtt::index(&text, language::from_name(&object.key)).map_err(fault);
    }
    let mut indexer = Indexer::new(object.size, options);
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
