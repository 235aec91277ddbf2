//! CMAF upload: scans the received bytes and passes headers and chunks to the channel.
//!
//! **Invariant:** media that arrives before its track's header waits for it, up to a time limit,
//! because a source may open both uploads at once and either may be processed first. A waiting
//! upload reads no more bytes and loses none. If two uploads wait for the same header, the later
//! one resumes after the earlier one has ended.

use std::sync::Arc;

use thalweg_media::chunk::{ChunkScanner, Event, Header};
use thalweg_media::error::{Error as MediaError, Fault as MediaFault};
use thalweg_media::track::TrackInfo;
use tokio::time::timeout;

use super::Content;
use super::fault::Fault;
use crate::clock::now_us;
use crate::live::Live;
use crate::live::budget::Share;
use crate::live::cell::Cell;
use crate::live::queue::Place;

/// An upload of CMAF.
pub(super) struct Media<'a> {
    live: &'a Live,
    channel: &'a str,
    /// `None` until the upload's header has been received or found.
    cell: Option<Arc<Cell>>,
    /// Candidate track names from the path.
    names: Names,
    index: Option<usize>,
    scanner: ChunkScanner,
    /// The upload's share of the memory for incomplete chunks.
    share: Share<'a>,
    /// The upload's position in the queue, if it waited for a header.
    place: Option<Place<'a>>,
    /// A received header not yet accepted: it may be part of a whole track or an object of its own.
    held: Option<Header>,
    /// Whether the upload sent the header itself.
    has_header: bool,
    /// Whether the upload sent a chunk.
    has_media: bool,
}

/// A track whose header is known: its channel, its index there, and its header's contents.
type KnownTrack = (Arc<Cell>, usize, TrackInfo);

/// Candidate names of an upload's track; empty if the path does not name the track.
pub(super) struct Names {
    /// Track name if the upload is a single object: a header or a segment.
    pub(super) track: String,
    /// Track name if the upload is the whole track.
    pub(super) long: String,
}

impl Names {
    /// Returns whether the track name is certain before any media arrives. A header can then be
    /// accepted at once, which matters because sources may leave its upload open for a long time.
    fn is_unambiguous(&self) -> bool {
        self.track == self.long
    }
}

impl<'a> Media<'a> {
    /// Creates an upload to `channel`, whose name must have been validated.
    pub(super) fn new(live: &'a Live, channel: &'a str, names: Names) -> Media<'a> {
        Media {
            live,
            channel,
            cell: None,
            names,
            index: None,
            scanner: ChunkScanner::new(),
            share: live.held_back.share(),
            place: None,
            held: None,
            has_header: false,
            has_media: false,
        }
    }

    pub(super) async fn run(&mut self, content: &mut Content<'_>) -> Result<(), Fault> {
        while let Some(bytes) = content.next().await? {
            self.hold(bytes.len())?;
            self.scanner.push(&bytes);
            self.take_events().await?;
            self.hold(0)?;
        }
        self.scanner.finish().map_err(Fault::Media)?;
        match self.held.take() {
            Some(header) => self.take_header(header),
            None => Ok(()),
        }
    }

    /// Resizes the upload's memory share to the bytes it has buffered plus `more`.
    fn hold(&mut self, more: usize) -> Result<(), Fault> {
        let header = self.held.as_ref().map_or(0, |h| h.bytes.len());
        let bytes = (self.scanner.buffered() + header + more) as u64;
        if self.share.set(bytes) { Ok(()) } else { Err(Fault::NoRoom) }
    }

    async fn take_events(&mut self) -> Result<(), Fault> {
        loop {
            match self.scanner.next_event() {
                Ok(None) => return Ok(()),
                Ok(Some(Event::Header(header))) if self.has_header || self.names.is_unambiguous() => {
                    self.take_header(header)?;
                }
                Ok(Some(Event::Header(header))) => self.held = Some(header),
                Ok(Some(Event::Chunk(chunk))) => {
                    self.has_media = true;
                    if let Some(header) = self.held.take() {
                        self.take_header(header)?;
                    }
                    let (Some(cell), Some(index)) = (&self.cell, self.index) else {
                        unreachable!("a chunk follows its header")
                    };
                    let outcome = cell.chunk(index, chunk.into(), now_us()).map_err(Fault::Refused)?;
                    tracing::trace!(channel = self.channel, index, ?outcome, "chunk");
                }
                Err(error) if error.fault == MediaFault::MissingHeader => self.find_header(error).await?,
                Err(error) => return Err(Fault::Media(error)),
            }
        }
    }

    /// Accepts a header once it is known whether media follows in the same upload.
    fn take_header(&mut self, header: Header) -> Result<(), Fault> {
        let cell = match &self.cell {
            Some(cell) => cell,
            None => self.cell.insert(self.live.channel_for_header(self.channel).map_err(Fault::Channel)?),
        };
        let name = if self.has_media { &self.names.long } else { &self.names.track };
        let only = if self.names.track.is_empty() { cell.only_track() } else { None };
        let numbered = format!("track{}", header.info.track_id);
        let name = match only {
            Some(ref only) if !self.has_media => only,
            _ if name.is_empty() => &numbered,
            _ => name,
        };
        let index = cell.header(name, header.bytes, header.info, self.has_header, now_us());
        self.index = Some(index.map_err(Fault::Refused)?);
        self.has_header = true;
        self.live.waiting.notify();
        Ok(())
    }

    /// Finds the header received in another upload, and waits for it if necessary. Returns
    /// `missing` if no header arrives in time.
    async fn find_header(&mut self, missing: MediaError) -> Result<(), Fault> {
        let at_once =
            if self.live.waiting.has(self.channel, &self.names.track) { None } else { self.known_track()? };
        let (cell, index, info) = match at_once {
            Some(found) => found,
            None => self.wait_for_header().await?.ok_or(Fault::Media(missing))?,
        };
        (self.cell, self.index) = (Some(cell), Some(index));
        self.scanner.resume_with_header(&info);
        Ok(())
    }

    /// Waits for the header, and for earlier uploads of the track to end. Proceeds after the time
    /// limit, because an earlier upload may never end.
    async fn wait_for_header(&mut self) -> Result<Option<KnownTrack>, Fault> {
        let live = self.live;
        let mut changed = live.waiting.subscribe();
        let place = live.waiting.join(self.channel, &self.names.track);
        tracing::debug!(channel = self.channel, track = self.names.track, "media waiting for its header");
        let its_turn = async {
            while !place.is_first() || self.known_track()?.is_none() {
                // This cannot fail, because the sender lives as long as `live`.
                let _ = changed.changed().await;
            }
            Ok(())
        };
        if let Ok(fault) = timeout(live.uploads.header_wait, its_turn).await {
            fault?;
        }
        self.place = Some(place);
        self.known_track()
    }

    /// Returns the upload's track, if known.
    fn known_track(&self) -> Result<Option<KnownTrack>, Fault> {
        let Some(cell) = self.live.channel_of_upload(self.channel).map_err(Fault::Channel)? else {
            return Ok(None);
        };
        let known = if !self.names.track.is_empty() {
            cell.track_info(&self.names.track)
        } else if cell.has_many_tracks() {
            return Err(Fault::WhichTrack);
        } else {
            cell.only_track().and_then(|name| cell.track_info(&name))
        };
        Ok(known.map(|(index, info)| (cell, index, info)))
    }
}

/// Ends the upload, even if the source disconnects and the request is dropped. An upload without a
/// header ends nothing, because its segment may continue in the next upload.
impl Drop for Media<'_> {
    fn drop(&mut self) {
        if let (Some(cell), Some(index), true) = (&self.cell, self.index, self.has_header) {
            cell.upload_ended(index, self.has_media);
        }
    }
}
