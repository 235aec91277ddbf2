//! Joined presentations: a directory without tracks, whose playlist file ([`list`]) names other
//! presentations of the library.
//!
//! **Invariant:** a joined presentation has only manifests of its own. Headers and segments are
//! requested at the URLs of its entries, so a cache stores them once.

mod list;

use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use hyper::{Response, StatusCode};
use thalweg_media::presentation::joined::{Entry, Joined, Unmatched};
use thalweg_media::presentation::select::Selection;
use thalweg_media::{dash, hls};

use super::load::{Fault, Presentation};
use super::{DASH, HLS, Library, encode, manifest, not_found, unreadable};
use crate::body::Body;
use crate::response::{self, RequestHead};
use crate::route::Item;
use crate::storage::StorageError;
use list::Line;

/// Name of the playlist file in its presentation's directory.
pub(crate) const PLAYLIST_FILE: &str = "playlist.txt";
/// Maximum size of a playlist file, in bytes.
pub(crate) const PLAYLIST_BYTES_MAX: u64 = 64 << 10;

/// A playlist file with its presentations.
#[derive(Debug)]
pub(crate) struct Playlist {
    /// Path of the file below the library's root.
    file: String,
    entries: Vec<(Line, Arc<Presentation>)>,
}

/// Reasons why a joined presentation cannot be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JoinFault {
    /// Storage failed.
    Storage(StorageError),
    /// A line of the playlist file is invalid.
    Line { file: String, line: usize, message: String },
}

impl fmt::Display for JoinFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinFault::Storage(error) => error.fmt(f),
            JoinFault::Line { file, line, message } => write!(f, "{file}:{line}: {message}"),
        }
    }
}

impl std::error::Error for JoinFault {}

/// Reads the playlist file of presentation `name`, and indexes its entries. Returns `None` if there
/// is no such file.
pub(crate) async fn load(library: &Library, name: &str) -> Result<Option<Playlist>, JoinFault> {
    let storage = library.storage();
    let read = storage.text(name, PLAYLIST_FILE, PLAYLIST_BYTES_MAX).await;
    let Some(bytes) = read.map_err(JoinFault::Storage)? else { return Ok(None) };
    let file = format!("{name}/{PLAYLIST_FILE}");
    let fault = |line, message| JoinFault::Line { file: file.clone(), line, message };
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        fault(line, String::from("the file is not UTF-8: save it in that encoding"))
    })?;
    let lines = list::parse(text).map_err(|error| fault(error.line, error.to_string()))?;
    let presentations = join_all(lines.iter().map(|line| library.get(&line.name))).await;
    let mut entries = Vec::new();
    for (line, presentation) in lines.into_iter().zip(presentations) {
        match presentation {
            Ok(presentation) => entries.push((line, presentation)),
            Err(Fault::Storage(error)) => return Err(JoinFault::Storage(error)),
            Err(entry_fault) => {
                let number = line.number;
                return Err(fault(number, explain(library, &line.name, &entry_fault).await));
            }
        }
    }
    Ok(Some(Playlist { file, entries }))
}

/// Explains why an entry cannot be served.
async fn explain(library: &Library, entry: &str, fault: &Fault) -> String {
    let is_empty = matches!(fault, Fault::Unknown | Fault::NoTracks { .. });
    match fault {
        _ if is_empty && has_playlist(library, entry).await => {
            format!("{entry:?} is itself a playlist: write its entries here instead")
        }
        Fault::Unknown => {
            format!(
                "{entry:?} is not a presentation: create it, or correct the name (/catalog.json lists all)"
            )
        }
        fault => format!("{entry:?} cannot be served: {fault}"),
    }
}

async fn has_playlist(library: &Library, name: &str) -> bool {
    let read = library.storage().text(name, PLAYLIST_FILE, PLAYLIST_BYTES_MAX).await;
    read.is_ok_and(|file| file.is_some())
}

impl Playlist {
    /// Returns the entries with their clips, or the fault of a clip.
    pub(crate) fn joined(&self) -> Result<Joined<'_>, JoinFault> {
        let mut entries = Vec::new();
        for (line, presentation) in &self.entries {
            let entry = Entry::new(encode(&line.name), &presentation.media, line.clip)
                .map_err(|beyond| self.fault(line, beyond.to_string()))?;
            entries.push(entry);
        }
        Ok(Joined { entries })
    }

    /// Returns the reason why HLS cannot join the entries, which names two lines.
    pub(crate) fn unmatched(&self, unmatched: &Unmatched) -> JoinFault {
        let (line, _) = &self.entries[unmatched.entry];
        let (other, _) = &self.entries[unmatched.other];
        let message = format!(
            "HLS cannot join {:?}: it has no {}, but {:?} (line {}) has; add such a track, remove those of the \
             others, or use the MPD, which does not need it",
            line.name, unmatched.media, other.name, other.number
        );
        self.fault(line, message)
    }

    /// Returns the path of the playlist file below the library's root.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    fn fault(&self, line: &Line, message: String) -> JoinFault {
        JoinFault::Line { file: self.file.clone(), line: line.number, message }
    }
}

/// Responds to a GET or HEAD request for an item of a joined presentation.
pub(super) fn respond(
    request: &RequestHead<'_>,
    name: &str,
    playlist: &Playlist,
    selection: &Selection,
    what: &Item,
) -> Response<Body> {
    let joined = match playlist.joined() {
        Ok(joined) => joined,
        Err(fault) => return refuse(&fault),
    };
    if *what == Item::Mpd {
        return match joined.select(selection) {
            Ok(joined) => manifest(request, DASH, dash::joined(&joined)),
            Err(nothing) => not_found(nothing),
        };
    }
    let rungs = match joined.ladder() {
        Ok(rungs) => rungs,
        Err(unmatched) => return refuse(&playlist.unmatched(&unmatched)),
    };
    match what {
        Item::Multivariant => match selection.of(rungs.iter().map(|rung| rung.rendition()).collect()) {
            Ok(renditions) => manifest(request, HLS, hls::multivariant(&renditions)),
            Err(nothing) => not_found(nothing),
        },
        Item::MediaPlaylist { track } => match rungs.iter().find(|rung| rung.name == *track) {
            Some(rung) => manifest(request, HLS, hls::joined::media(&joined, rung)),
            None => super::no_track(name, track),
        },
        _ => not_found(format_args!(
            "{name} joins other presentations: request headers and segments from those"
        )),
    }
}

/// Responds to a request for a joined presentation that cannot be served.
pub(super) fn refuse(fault: &JoinFault) -> Response<Body> {
    match fault {
        JoinFault::Storage(error) => unreadable(error),
        JoinFault::Line { .. } => {
            tracing::warn!(%fault, "joined presentation cannot be served");
            response::text(StatusCode::INTERNAL_SERVER_ERROR, fault)
        }
    }
}
