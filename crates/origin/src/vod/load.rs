//! Presentation indexing: indexes each file with ranged reads and checks that the tracks align.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use futures_util::future::join_all;
use thalweg_media::error::Error as MediaError;
use thalweg_media::index::{IndexOptions, Indexer, Step};
use thalweg_media::language;
use thalweg_media::presentation::{Misaligned, NamedTrack, OnDemand};
use thalweg_media::progressive::{FORM, MOVIE_MOOV_BYTES_MAX, Movie, MovieTrack};
use thalweg_media::tiles::Tiles;
use thalweg_media::track::{Segment, TRACK_EXTENSIONS_HELP, TrackIndex};
use thalweg_media::vtt;
use tokio::sync::Semaphore;

use super::images;
use super::names::{movie_track_name, track_names};
use crate::storage::{Object, Storage, StorageError};

/// Size above which a read for an index counts as large, in bytes. Only the moov of a progressive
/// file is as long.
const LARGE_READ_BYTES: u64 = 1 << 20;
/// Maximum total size of large reads in memory, in MiB; further files wait. It must not be less
/// than the longest moov.
const LARGE_READS_MIB_MAX: u32 = 128;
const _: () = assert!(LARGE_READS_MIB_MAX as u64 * (1 << 20) >= MOVIE_MOOV_BYTES_MAX);
/// Memory for large reads, in MiB.
static LARGE_READS: Semaphore = Semaphore::const_new(LARGE_READS_MIB_MAX as usize);

/// A presentation that can be served.
#[derive(Debug)]
pub(crate) struct Presentation {
    /// Tracks and their timing.
    pub(crate) media: OnDemand,
    /// Source of each track, in the order of `media.tracks()`.
    sources: Vec<Source>,
    /// Images of each set of thumbnails, in the order of `media.tiles()`.
    images: Vec<Vec<Object>>,
    /// Reasons for the tracks that are left out.
    pub(crate) faults: Vec<Fault>,
}

impl Presentation {
    /// Returns the track called `name` and its source.
    pub(crate) fn track(&self, name: &str) -> Option<(&NamedTrack, &Source)> {
        self.media.tracks().iter().zip(&self.sources).find(|(track, _)| track.name == name)
    }

    /// Returns the set of thumbnails called `name`, and its images in order.
    pub(crate) fn tiles(&self, name: &str) -> Option<(&Tiles, &[Object])> {
        let mut sets = self.media.tiles().iter().zip(&self.images);
        sets.find(|(tiles, _)| tiles.name == name).map(|(tiles, images)| (tiles, images.as_slice()))
    }

    /// Returns the presentation's cost in the cache: the number of indexed segments. The sample
    /// tables of progressive files count as many segments as they take memory.
    pub(super) fn segments(&self) -> usize {
        let tables = self.sources.iter().filter_map(|source| source.movie.as_ref());
        let tables: usize = tables.map(|movie| movie.track().memory_bytes() / size_of::<Segment>()).sum();
        tables + self.media.tracks().iter().map(|t| t.index.segments.len()).sum::<usize>()
    }
}

/// Where the bytes of a track are.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) object: Object,
    /// The track within the object, if the object is progressive; otherwise, the object is the
    /// track.
    pub(super) movie: Option<MovieSource>,
}

/// A track of a progressive file.
#[derive(Debug, Clone)]
pub(super) struct MovieSource {
    movie: Arc<Movie>,
    /// Position in the movie's tracks.
    at: usize,
}

impl MovieSource {
    pub(super) fn track(&self) -> &MovieTrack {
        &self.movie.tracks[self.at]
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
    let set_names = names[objects.len()..].to_vec();
    let (mut tracks, mut sources, mut faults) = (Vec::new(), HashMap::new(), Vec::new());
    for (at, (object, index)) in objects.into_iter().zip(indices).enumerate() {
        let name = names[at].clone();
        match index {
            Ok(Indexed::Track(index)) => {
                let (version, file) = (object.version.clone(), object.key.clone());
                sources.insert(name.clone(), Source { object, movie: None });
                tracks.push(NamedTrack { name, version, file, index });
            }
            Ok(Indexed::Movie(movie)) => {
                // The target duration determines which samples a segment has.
                let version = format!("{}-{FORM}-{segment_target_ms}", object.version);
                faults.extend(movie.faults.iter().map(|fault| Fault::Media {
                    key: movie_track_file(&object.key, &movie, fault.number),
                    error: fault.error.clone(),
                }));
                for (at, track) in movie.tracks.iter().enumerate() {
                    let name = match movie.track_count {
                        1 => name.clone(),
                        _ => movie_track_name(&name, &track.index.info, &names),
                    };
                    names.push(name.clone());
                    let movie_track = MovieSource { movie: movie.clone(), at };
                    sources.insert(name.clone(), Source { object: object.clone(), movie: Some(movie_track) });
                    let file = movie_track_file(&object.key, &movie, track.number);
                    tracks.push(NamedTrack {
                        name,
                        // The names of tracks depend on other files; their numbers do not.
                        version: format!("{version}-{}", track.number),
                        file,
                        index: track.index.clone(),
                    });
                }
            }
            Err(Fault::Storage(error)) => return Err(Fault::Storage(error)),
            Err(fault) => faults.push(fault),
        }
    }
    let media = match OnDemand::new(tracks) {
        Ok(media) => media,
        Err(misaligned) => return Err(unusable(faults, misaligned)),
    };
    faults.extend(media.excluded().iter().cloned().map(Fault::Misaligned));
    let sources = media.tracks().iter().filter_map(|track| sources.remove(&track.name)).collect();
    let (sets, image_faults) = images::load(storage, image_sets, &set_names).await?;
    faults.extend(image_faults);
    let (tiles, images) = sets.into_iter().unzip();
    Ok(Presentation { media: media.with_tiles(tiles), sources, images, faults })
}

/// Returns the name shown to the operator for a track of a file.
fn movie_track_file(key: &str, movie: &Movie, number: usize) -> String {
    if movie.track_count == 1 { key.to_owned() } else { format!("{key} track {number}") }
}

/// Returns the fault of a presentation without a usable track: the reasons for all its files.
fn unusable(mut faults: Vec<Fault>, misaligned: Misaligned) -> Fault {
    if faults.is_empty() || misaligned != Misaligned::NoTracks {
        faults.push(Fault::Misaligned(misaligned));
    }
    if faults.len() == 1 { faults.remove(0) } else { Fault::Unusable(faults) }
}

/// The contents of a file.
enum Indexed {
    Track(TrackIndex),
    Movie(Arc<Movie>),
}

/// Indexes one file, reading only what the indexer requests. WebVTT files are read as a whole.
async fn index(storage: &Storage, object: &Object, options: IndexOptions) -> Result<Indexed, Fault> {
    let reader = storage.open(object).await.map_err(Fault::Storage)?;
    let fault = |error| Fault::Media { key: object.key.clone(), error };
    if vtt::is_vtt_file(&object.key) {
        let text = reader.read(0, object.size.min(vtt::VTT_BYTES_MAX + 1)).await.map_err(Fault::Storage)?;
        let index = vtt::index(&text, language::from_name(&object.key)).map_err(fault)?;
        return Ok(Indexed::Track(index));
    }
    let mut indexer = Indexer::new(object.size, options);
    // A large read stays in memory until the next one replaces it.
    let mut permit = None;
    loop {
        match indexer.step().map_err(fault)? {
            Step::Want(want) if want.len > LARGE_READ_BYTES => {
                let mib = u32::try_from(want.len.div_ceil(1 << 20)).unwrap_or(u32::MAX);
                drop(permit.take());
                permit = LARGE_READS.acquire_many(mib.min(LARGE_READS_MIB_MAX)).await.ok();
                let bytes = reader.read(want.offset, want.len).await.map_err(Fault::Storage)?;
                // Reading the tables of a long film takes too long for a thread that serves
                // requests.
                let parsed = tokio::task::spawn_blocking(move || {
                    indexer.feed(&bytes);
                    drop(indexer.step());
                    indexer
                });
                indexer = parsed.await.expect("the indexer does not panic, and is never aborted");
            }
            Step::Want(want) => {
                let bytes = reader.read(want.offset, want.len).await.map_err(Fault::Storage)?;
                indexer.feed(&bytes);
            }
            Step::Done(index) => return Ok(Indexed::Track(index)),
            Step::Movie(movie) => return Ok(Indexed::Movie(movie)),
        }
    }
}

/// Returns a value that changes whenever a file is added, removed or modified.
pub(super) fn fingerprint(objects: &[Object]) -> u64 {
    let mut hasher = DefaultHasher::new();
    objects.hash(&mut hasher);
    hasher.finish()
}
