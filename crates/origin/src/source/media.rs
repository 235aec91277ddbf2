//! Tracks of a presentation, with each chunk's location and decode time.
//!
//! **Invariant:** a loaded track has at least one chunk, its first chunk begins with a sync sample,
//! and its chunks do not overlap in decode time.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use thalweg_media::chunk::{Chunk, ChunkScanner, Event};
use thalweg_media::track::{Media, TRACK_EXTENSIONS_HELP, TrackInfo, is_track_file};
use thalweg_media::vtt::is_vtt_file;

use super::timeline::Table;

/// Size of one file read while loading, in bytes.
const READ_BYTES: usize = 256 << 10;

/// Reasons why a presentation cannot be pushed.
#[derive(Debug)]
pub enum SourceError {
    /// The directory or a file cannot be read.
    Io {
        /// Path of the directory or file.
        path: PathBuf,
        /// The I/O error.
        cause: io::Error,
    },
    /// A file is not a valid CMAF track.
    Media {
        /// Path of the file.
        path: PathBuf,
        /// The error and its location in the file.
        cause: thalweg_media::error::Error,
    },
    /// A file is CMAF, but cannot be pushed.
    Unfit {
        /// Path of the file.
        path: PathBuf,
        /// Why the file cannot be pushed.
        reason: &'static str,
    },
    /// No file in the directory is a track.
    NoTrack {
        /// Path of the directory.
        path: PathBuf,
    },
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceError::Io { path, cause } => write!(f, "cannot read {}: {cause}", path.display()),
            SourceError::Media { path, cause } => write!(f, "{}: {cause}", path.display()),
            SourceError::Unfit { path, reason } => write!(f, "{}: {reason}", path.display()),
            SourceError::NoTrack { path } => {
                write!(f, "no track in {}: {TRACK_EXTENSIONS_HELP}", path.display())
            }
        }
    }
}

impl std::error::Error for SourceError {
    // `source` is not implemented, because the message already includes the cause after the file
    // name.
}

/// One track.
#[derive(Debug)]
pub(super) struct Track {
    path: PathBuf,
    file: Arc<File>,
    /// Track name in ingest, such as `video_360.cmfv`.
    pub(super) name: String,
    /// CMAF header, as in the file.
    pub(super) header: Bytes,
    pub(super) info: Arc<TrackInfo>,
    chunks: Vec<ChunkLocation>,
}

/// Location and decode time of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkLocation {
    offset: u64,
    len: usize,
    /// Decode time in the track's timescale, as in the file.
    pub(super) decode_time: u64,
    duration: u64,
    /// Whether the chunk begins with a sync sample.
    pub(super) starts_with_sync: bool,
}

/// Reads every track in the directory, in name order.
pub(super) fn load(directory: &Path) -> Result<Vec<Track>, SourceError> {
    let failed = |cause| SourceError::Io { path: directory.to_owned(), cause };
    let entries: io::Result<Vec<_>> = fs::read_dir(directory).map_err(failed)?.collect();
    let mut paths: Vec<_> = entries.map_err(failed)?.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| {
        path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            // A live source has no WebVTT files, only tracks in MP4.
            is_track_file(&name) && !is_vtt_file(&name)
        })
    });
    paths.sort();
    if paths.is_empty() {
        return Err(SourceError::NoTrack { path: directory.to_owned() });
    }
    let mut tracks = paths.into_iter().map(Track::load).collect::<Result<Vec<_>, _>>()?;
    make_names_unique(&mut tracks);
    Ok(tracks)
}

impl Track {
    fn load(path: PathBuf) -> Result<Self, SourceError> {
        let failed = |cause| SourceError::Io { path: path.clone(), cause };
        let file = File::open(&path).map_err(failed)?;
        let mut scan = Scan::default();
        let mut scanner = ChunkScanner::new();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let len = (&file).read(&mut buffer).map_err(failed)?;
            scanner.push(&buffer[..len]);
            scan.read_events(&mut scanner)
                .map_err(|cause| SourceError::Media { path: path.clone(), cause })?;
            if len == 0 {
                break;
            }
        }
        scanner.finish().map_err(|cause| SourceError::Media { path: path.clone(), cause })?;
        let size = file.metadata().map_err(failed)?.len();
        let unfit = |reason| SourceError::Unfit { path: path.clone(), reason };
        let (header, info, chunks) = scan.finish(size).map_err(unfit)?;
        let name = ingest_name(&path, &info.media);
        Ok(Self { path, file: Arc::new(file), name, header, info: Arc::new(info), chunks })
    }

    /// Returns the media type of the track's upload.
    pub(super) fn content_type(&self) -> &'static str {
        match self.info.media {
            Media::Video { .. } => "video/mp4",
            Media::Audio { .. } => "audio/mp4",
            Media::Text | Media::WebVtt => "application/mp4",
        }
    }

    /// Returns the track's chunks, for the timeline.
    pub(super) fn table(&self) -> Table<'_> {
        Table { chunks: &self.chunks, per_s: self.info.timescale }
    }

    /// Reads one chunk from the file on a blocking thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the file has changed since it was loaded.
    pub(super) async fn read(&self, location: ChunkLocation) -> io::Result<Chunk> {
        let (file, info) = (Arc::clone(&self.file), Arc::clone(&self.info));
        let chunk = tokio::task::spawn_blocking(move || read_chunk(&file, &info, location)).await?;
        chunk.map_err(|cause| {
            io::Error::new(cause.kind(), format!("{} has changed: {cause}", self.path.display()))
        })
    }
}

impl ChunkLocation {
    /// Creates a chunk without a location, for timeline tests.
    #[cfg(test)]
    pub(super) fn at(decode_time: u64, duration: u64, starts_with_sync: bool) -> Self {
        Self { offset: 0, len: 0, decode_time, duration, starts_with_sync }
    }

    /// Returns the decode time at the end of the chunk, in the track's timescale.
    pub(super) fn decode_end(&self) -> u64 {
        self.decode_time + self.duration
    }
}

fn read_chunk(file: &File, info: &TrackInfo, location: ChunkLocation) -> io::Result<Chunk> {
    let mut bytes = vec![0; location.len];
    file.read_exact_at(&mut bytes, location.offset)?;
    let mut scanner = ChunkScanner::with_header(info);
    scanner.push(&bytes);
    match scanner.next_event().map_err(io::Error::other)? {
        Some(Event::Chunk(chunk)) if chunk.fragment.decode_time == location.decode_time => Ok(chunk),
        _ => Err(io::Error::other(format!("offset {} holds a different chunk", location.offset))),
    }
}

/// Scan state of a file.
#[derive(Default)]
struct Scan {
    header: Option<(Bytes, TrackInfo)>,
    chunks: Vec<ChunkLocation>,
    unfit: Option<&'static str>,
}

impl Scan {
    fn read_events(&mut self, scanner: &mut ChunkScanner) -> thalweg_media::error::Result<()> {
        while let Some(event) = scanner.next_event()? {
            match event {
                Event::Header(header) if self.header.is_none() => {
                    self.header = Some((header.bytes, header.info));
                }
                Event::Header(_) => {
                    self.unfit = Some("has a second CMAF header: split it into one file per track");
                }
                Event::Chunk(chunk) => self.chunk(&chunk),
            }
        }
        Ok(())
    }

    fn chunk(&mut self, chunk: &Chunk) {
        let fragment = &chunk.fragment;
        if fragment.has_base_data_offset {
            self.unfit = Some("has a fragment with base_data_offset, which CMAF does not allow");
        }
        match self.chunks.last_mut() {
            Some(before) => {
                before.len = usize::try_from(chunk.offset - before.offset).expect("the chunk fits in memory");
                if fragment.decode_time < before.decode_end() {
                    self.unfit = Some("has chunks with overlapping decode times");
                }
            }
            None if !fragment.starts_with_sync => self.unfit = Some("does not begin with a sync sample"),
            None => {}
        }
        self.chunks.push(ChunkLocation {
            offset: chunk.offset,
            len: 0, // set when the next chunk begins, or at the end of the file
            decode_time: fragment.decode_time,
            duration: fragment.duration,
            starts_with_sync: fragment.starts_with_sync,
        });
    }

    fn finish(mut self, size: u64) -> Result<(Bytes, TrackInfo, Vec<ChunkLocation>), &'static str> {
        if let Some(reason) = self.unfit {
            return Err(reason);
        }
        let (Some((header, info)), Some(last)) = (self.header, self.chunks.last_mut()) else {
            return Err("has no chunk after the CMAF header");
        };
        last.len = usize::try_from(size - last.offset).map_err(|_| "last chunk is too large")?;
        Ok((header, info, self.chunks))
    }
}

/// Makes the stems of names unique, because origins distinguish tracks by the stem alone: `a.m4v`
/// and `a.m4a` become `a` and `a-2`.
fn make_names_unique(tracks: &mut [Track]) {
    let mut taken = HashSet::new();
    for track in tracks {
        let (stem, extension) = track.name.rsplit_once('.').expect("every ingest name has an extension");
        let mut candidates =
            std::iter::once(stem.to_owned()).chain((2..).map(|number| format!("{stem}-{number}")));
        let free = candidates.find(|name| !taken.contains(name)).expect("the candidates are unlimited");
        track.name = format!("{free}.{extension}");
        taken.insert(free);
    }
}

/// Returns the file's stem, percent-encoded for a URL, with the extension that denotes the media
/// kind in ingest.
fn ingest_name(path: &Path, media: &Media) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = match media {
        Media::Video { .. } => "cmfv",
        Media::Audio { .. } => "cmfa",
        Media::Text | Media::WebVtt => "cmft",
    };
    let mut name = String::new();
    for byte in stem.bytes() {
        match byte {
            b if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~') => name.push(b.into()),
            b => name.push_str(&format!("%{b:02X}")),
        }
    }
    format!("{name}.{extension}")
}
