//! The tracks of a presentation: where each chunk lies in its file, and when it is to be decoded.
//!
//! **Invariant:** a loaded track has at least one chunk, the first begins with a sync sample, and its chunks follow on
//! each other in decode time.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use thalweg_media::chunk::{Chunk, ChunkScanner, Event};
use thalweg_media::track::{Media, TRACK_EXTENSIONS_TOLD, TrackInfo, is_track_file};

use super::timeline::Table;

/// Bytes read from a file at once while it is loaded.
const READ_BYTES: usize = 256 << 10;

/// Why a presentation cannot be pushed.
#[derive(Debug)]
pub(crate) enum Error {
    /// The directory or a file cannot be read.
    Io { path: PathBuf, cause: io::Error },
    /// A file is not the CMAF track it has to be.
    Media { path: PathBuf, cause: thalweg_media::error::Error },
    /// A file is CMAF, but cannot be pushed.
    Unfit { path: PathBuf, reason: &'static str },
    /// No file in the directory is a track.
    NoTrack { path: PathBuf },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { path, cause } => write!(f, "cannot read {}: {cause}", path.display()),
            Error::Media { path, cause } => write!(f, "{}: {cause}", path.display()),
            Error::Unfit { path, reason } => write!(f, "{}: {reason}", path.display()),
            Error::NoTrack { path } => {
                write!(f, "no track in {}: {TRACK_EXTENSIONS_TOLD}", path.display())
            }
        }
    }
}

impl std::error::Error for Error {
    // The causes are in the message: it is one line for the user, with the file before the cause.
}

/// One track.
#[derive(Debug)]
pub(super) struct Track {
    path: PathBuf,
    file: Arc<File>,
    /// What ingest calls it: `video_360.cmfv`.
    pub(super) name: String,
    /// Its CMAF header, as in the file.
    pub(super) header: Bytes,
    pub(super) info: Arc<TrackInfo>,
    chunks: Vec<Place>,
}

/// Where a chunk lies, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    offset: u64,
    len: usize,
    /// In the track's timescale, as in the file.
    pub(super) decode_time: u64,
    duration: u64,
    /// Decoding can start here.
    pub(super) starts_with_sync: bool,
}

/// Reads every track of the directory, in the order of names.
pub(super) fn load(directory: &Path) -> Result<Vec<Track>, Error> {
    let failed = |cause| Error::Io { path: directory.to_owned(), cause };
    let entries: io::Result<Vec<_>> = fs::read_dir(directory).map_err(failed)?.collect();
    let mut paths: Vec<_> = entries.map_err(failed)?.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| is_track_file(&name.to_string_lossy())));
    paths.sort();
    if paths.is_empty() {
        return Err(Error::NoTrack { path: directory.to_owned() });
    }
    let mut tracks = paths.into_iter().map(Track::load).collect::<Result<Vec<_>, _>>()?;
    name_apart(&mut tracks);
    Ok(tracks)
}

impl Track {
    fn load(path: PathBuf) -> Result<Self, Error> {
        let failed = |cause| Error::Io { path: path.clone(), cause };
        let file = File::open(&path).map_err(failed)?;
        let mut scan = Scan::default();
        let mut scanner = ChunkScanner::new();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let len = (&file).read(&mut buffer).map_err(failed)?;
            scanner.push(&buffer[..len]);
            scan.take(&mut scanner).map_err(|cause| Error::Media { path: path.clone(), cause })?;
            if len == 0 {
                break;
            }
        }
        scanner.finish().map_err(|cause| Error::Media { path: path.clone(), cause })?;
        let size = file.metadata().map_err(failed)?.len();
        let unfit = |reason| Error::Unfit { path: path.clone(), reason };
        let (header, info, chunks) = scan.end(size).map_err(unfit)?;
        let name = ingest_name(&path, &info.media);
        Ok(Self { path, file: Arc::new(file), name, header, info: Arc::new(info), chunks })
    }

    /// The media type of its upload.
    pub(super) fn content_type(&self) -> &'static str {
        match self.info.media {
            Media::Video { .. } => "video/mp4",
            Media::Audio { .. } => "audio/mp4",
            Media::Text => "application/mp4",
        }
    }

    /// Its chunks, for the timeline.
    pub(super) fn table(&self) -> Table<'_> {
        Table { chunks: &self.chunks, per_s: self.info.timescale }
    }

    /// Reads one chunk from the file, on a thread that may block.
    ///
    /// # Errors
    /// If the file is no longer what it was when it was loaded.
    pub(super) async fn read(&self, place: Place) -> anyhow::Result<Chunk> {
        let (file, info) = (Arc::clone(&self.file), Arc::clone(&self.info));
        let chunk = tokio::task::spawn_blocking(move || read_chunk(&file, &info, place)).await?;
        chunk.map_err(|cause| cause.context(format!("{} has changed", self.path.display())))
    }
}

impl Place {
    /// A chunk at `decode_time`, wherever it lies: for the timeline's tests.
    #[cfg(test)]
    pub(super) fn at(decode_time: u64, duration: u64, starts_with_sync: bool) -> Self {
        Self { offset: 0, len: 0, decode_time, duration, starts_with_sync }
    }

    /// When the next chunk is to be decoded.
    pub(super) fn decode_end(&self) -> u64 {
        self.decode_time + self.duration
    }
}

fn read_chunk(file: &File, info: &TrackInfo, place: Place) -> anyhow::Result<Chunk> {
    let mut bytes = vec![0; place.len];
    file.read_exact_at(&mut bytes, place.offset)?;
    let mut scanner = ChunkScanner::with_header(info);
    scanner.push(&bytes);
    match scanner.next_event()? {
        Some(Event::Chunk(chunk)) if chunk.fragment.decode_time == place.decode_time => Ok(chunk),
        _ => anyhow::bail!("another chunk lies at offset {}", place.offset),
    }
}

/// What has been found in a file so far.
#[derive(Default)]
struct Scan {
    header: Option<(Bytes, TrackInfo)>,
    chunks: Vec<Place>,
    unfit: Option<&'static str>,
}

impl Scan {
    fn take(&mut self, scanner: &mut ChunkScanner) -> thalweg_media::error::Result<()> {
        while let Some(event) = scanner.next_event()? {
            match event {
                Event::Header(header) if self.header.is_none() => {
                    self.header = Some((header.bytes, header.info));
                }
                Event::Header(_) => {
                    self.unfit = Some("a second CMAF header: the track changes inside the file");
                }
                Event::Chunk(chunk) => self.chunk(&chunk),
            }
        }
        Ok(())
    }

    fn chunk(&mut self, chunk: &Chunk) {
        let fragment = &chunk.fragment;
        if fragment.has_base_data_offset {
            self.unfit = Some("its fragments have a base_data_offset, which CMAF forbids");
        }
        match self.chunks.last_mut() {
            Some(before) => {
                before.len = usize::try_from(chunk.offset - before.offset).expect("a chunk was in memory");
                if fragment.decode_time < before.decode_end() {
                    self.unfit = Some("decode times overlap");
                }
            }
            None if !fragment.starts_with_sync => self.unfit = Some("it does not begin with a sync sample"),
            None => {}
        }
        self.chunks.push(Place {
            offset: chunk.offset,
            len: 0, // known when the next chunk begins, or the file ends
            decode_time: fragment.decode_time,
            duration: fragment.duration,
            starts_with_sync: fragment.starts_with_sync,
        });
    }

    fn end(mut self, size: u64) -> Result<(Bytes, TrackInfo, Vec<Place>), &'static str> {
        if let Some(reason) = self.unfit {
            return Err(reason);
        }
        let (Some((header, info)), Some(last)) = (self.header, self.chunks.last_mut()) else {
            return Err("a CMAF header alone: no chunk follows it");
        };
        last.len = usize::try_from(size - last.offset).map_err(|_| "too large")?;
        Ok((header, info, self.chunks))
    }
}

/// Origins tell tracks apart by the name without its extension: `a.m4v` and `a.m4a` become `a` and `a-2`.
fn name_apart(tracks: &mut [Track]) {
    let mut taken = HashSet::new();
    for track in tracks {
        let (stem, extension) = track.name.rsplit_once('.').expect("every ingest name has an extension");
        let mut candidates =
            std::iter::once(stem.to_owned()).chain((2..).map(|number| format!("{stem}-{number}")));
        let free = candidates.find(|name| !taken.contains(name)).expect("there is always a next number");
        track.name = format!("{free}.{extension}");
        taken.insert(free);
    }
}

/// The file's name with the extension that tells ingest the kind of track; what a URL cannot carry is
/// escaped.
fn ingest_name(path: &Path, media: &Media) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = match media {
        Media::Video { .. } => "cmfv",
        Media::Audio { .. } => "cmfa",
        Media::Text => "cmft",
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
