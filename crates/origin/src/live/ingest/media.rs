//! An upload of CMAF, from its bytes to the channel.
//!
//! **Invariant:** media that come before their track's header wait for it, for a while: a source that opens the uploads
//! of both at once does not say which is looked at first. Nothing is read on meanwhile, and nothing is lost: of two that
//! wait for the same header, the later goes on when the earlier is over.

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
    /// `None` until a header came, where there was no such channel before.
    cell: Option<Arc<Cell>>,
    /// What the path says of the track's name.
    names: Names,
    index: Option<usize>,
    scanner: ChunkScanner,
    /// What the upload holds back of the memory for all.
    share: Share<'a>,
    /// Its place among those that waited for a header, if it did.
    place: Option<Place<'a>>,
    /// A header that is not known to be that of a whole track or an object of its own.
    held: Option<Header>,
    /// The upload brought the header itself.
    has_header: bool,
    /// It brought a chunk.
    has_media: bool,
}

/// What is known of an upload's track: its channel, its index there, what its header says.
type Known = (Arc<Cell>, usize, TrackInfo);

/// Names of the track that an upload is of; empty where its path does not say.
pub(super) struct Names {
    /// If the upload is an object, a header or a segment.
    pub(super) track: String,
    /// If it is the whole track.
    pub(super) long: String,
}

impl Names {
    /// Nothing has to be known of the upload to name its track; sources leave a header's upload open for long.
    fn agree(&self) -> bool {
        self.track == self.long
    }
}

impl<'a> Media<'a> {
    /// An upload to `channel`, whose name was found good.
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

    pub(super) async fn run(&mut self, content: &mut Content) -> Result<(), Fault> {
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

    /// Accounts for what is held back, and `more`.
    fn hold(&mut self, more: usize) -> Result<(), Fault> {
        let header = self.held.as_ref().map_or(0, |h| h.bytes.len());
        let bytes = (self.scanner.buffered() + header + more) as u64;
        if self.share.set(bytes) { Ok(()) } else { Err(Fault::NoRoom) }
    }

    async fn take_events(&mut self) -> Result<(), Fault> {
        loop {
            match self.scanner.next_event() {
                Ok(None) => return Ok(()),
                Ok(Some(Event::Header(header))) if self.has_header || self.names.agree() => {
                    self.take_header(header)?;
                }
                Ok(Some(Event::Header(header))) => self.held = Some(header),
                Ok(Some(Event::Chunk(chunk))) => {
                    self.has_media = true;
                    if let Some(header) = self.held.take() {
                        self.take_header(header)?;
                    }
                    let (Some(cell), Some(index)) = (&self.cell, self.index) else {
                        unreachable!("a chunk comes after its header")
                    };
                    let outcome = cell.chunk(index, chunk.into(), now_us()).map_err(Fault::Refused)?;
                    tracing::trace!(channel = self.channel, index, ?outcome, "chunk");
                }
                Err(error) if error.fault == MediaFault::MissingHeader => self.find_header(error).await?,
                Err(error) => return Err(Fault::Media(error)),
            }
        }
    }

    /// A header, once it is known whether media follow it.
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
        let taken = cell.header(name, header.bytes, header.info, self.has_header, now_us());
        self.index = Some(taken.map_err(Fault::Refused)?);
        self.has_header = true;
        self.live.waiting.look_again();
        Ok(())
    }

    /// The header that came in another upload, or comes while this one waits; `missing` if none does.
    async fn find_header(&mut self, missing: MediaError) -> Result<(), Fault> {
        let at_once =
            if self.live.waiting.has(self.channel, &self.names.track) { None } else { self.known_header()? };
        let (cell, index, info) = match at_once {
            Some(found) => found,
            None => self.wait_for_header().await?.ok_or(Fault::Media(missing))?,
        };
        (self.cell, self.index) = (Some(cell), Some(index));
        self.scanner.go_on_with(&info);
        Ok(())
    }

    /// The header, once it is there and those that came before have gone on, but for one that does not end.
    async fn wait_for_header(&mut self) -> Result<Option<Known>, Fault> {
        let live = self.live;
        let mut changed = live.waiting.subscribe();
        let place = live.waiting.join(self.channel, &self.names.track);
        tracing::debug!(channel = self.channel, track = self.names.track, "media waits for its header");
        let its_turn = async {
            while !place.is_first() || self.known_header()?.is_none() {
                // The sender lives as long as the live channels.
                let _ = changed.changed().await;
            }
            Ok(())
        };
        if let Ok(fault) = timeout(live.uploads.header_wait, its_turn).await {
            fault?;
        }
        self.place = Some(place);
        self.known_header()
    }

    /// What is known of the upload's track.
    fn known_header(&self) -> Result<Option<Known>, Fault> {
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

/// The upload is over, one way or another; a source that is cut off takes its request with it. A segment that came in
/// objects of its own may go on in the next.
impl Drop for Media<'_> {
    fn drop(&mut self) {
        if let (Some(cell), Some(index), true) = (&self.cell, self.index, self.has_header) {
            cell.closed(index, self.has_media);
        }
    }
}
