//! Content of a found response: read from one fill, or from consecutive slices.

use std::ops::Range;
use std::sync::Arc;

use thalweg_cache::fill::{Progress, Trailer};
use thalweg_cache::{Failure, Head, Piece, Reader};

use super::Sliced;

/// The readable content of a response.
#[derive(Debug)]
pub(crate) enum Content {
    Fill(Reader<Arc<Head>>),
    Sliced(Box<Sliced>),
}

impl Content {
    /// Returns the progress of the fill. Slices are fetched as they are read, so sliced content
    /// counts as complete.
    pub(crate) fn progress(&self) -> Progress {
        match self {
            Self::Fill(reader) => reader.progress(),
            Self::Sliced(sliced) => Progress::Complete(sliced.length()),
        }
    }

    /// Moves to the start of `range`. Content beyond the range's end need not be fetched for this
    /// reader.
    pub(crate) fn seek(&mut self, range: &Range<u64>) {
        match self {
            Self::Fill(reader) => reader.seek(range.start),
            Self::Sliced(sliced) => sliced.seek(range),
        }
    }

    /// Returns up to `max` bytes of content without waiting: `None` if none is ready, `Ok(None)` at
    /// the end.
    pub(crate) fn try_next(&mut self, max: usize) -> Option<Result<Option<Piece>, Failure>> {
        match self {
            Self::Fill(reader) => reader.try_next(max),
            Self::Sliced(sliced) => sliced.try_next(max),
        }
    }

    /// Returns up to `max` bytes of content, waiting for it if necessary; `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns an error if the fetch failed and all content that arrived before has been read.
    pub(crate) async fn next(&mut self, max: usize) -> Result<Option<Piece>, Failure> {
        match self {
            Self::Fill(reader) => reader.next(max).await,
            Self::Sliced(sliced) => sliced.next(max).await,
        }
    }

    /// Waits until content stored on disk can be read. Does not wait for content from a backend.
    ///
    /// Returns [`Failure::Unreadable`] if the disk cannot be read. The response has then already
    /// been removed from the index.
    pub(crate) async fn ready(&mut self) -> Result<(), Failure> {
        match self {
            Self::Fill(reader) => reader.ready().await,
            // The first slice is already open.
            Self::Sliced(_) => Ok(()),
        }
    }

    /// Returns whether all content is known to have been read.
    pub(crate) fn is_at_end(&self) -> bool {
        match self {
            Self::Fill(reader) => reader.is_at_end(),
            // The length is known from the start, so callers need not detect the end.
            Self::Sliced(_) => false,
        }
    }

    /// Returns the trailer fields; `None` if the response has none or is not complete yet.
    pub(crate) fn trailer(&self) -> Option<Arc<Trailer>> {
        match self {
            Self::Fill(reader) => reader.trailer(),
            Self::Sliced(_) => None,
        }
    }

    /// Waits until the byte at `offset` has arrived or the content has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the fill fails first.
    pub(crate) async fn arrived(&mut self, offset: u64) -> Result<(), Failure> {
        match self {
            Self::Fill(reader) if offset == u64::MAX => reader.ended().await.map(|_| ()),
            Self::Fill(reader) => {
                reader.seek(offset);
                reader.next(1).await.map(|_| ())
            }
            Self::Sliced(_) => Ok(()),
        }
    }
}
