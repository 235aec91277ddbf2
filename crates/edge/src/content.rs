//! Where the content of a reply is read from: one fill, or slices one after the other.

use std::ops::Range;
use std::sync::Arc;

use thalweg_cache::fill::{Progress, Trailer};
use thalweg_cache::{Failure, Head, Piece, Reader};

use crate::slices::Sliced;

/// The content of a response, to be read.
#[derive(Debug)]
pub(crate) enum Content {
    Fill(Reader<Arc<Head>>),
    Sliced(Box<Sliced>),
}

impl Content {
    /// How far it has come. Slices of it come when they are read, so none has to be waited for before.
    pub(crate) fn progress(&self) -> Progress {
        match self {
            Self::Fill(reader) => reader.progress(),
            Self::Sliced(sliced) => Progress::Complete(sliced.length()),
        }
    }

    /// Goes to the start of `range`. What lies after its end need not be fetched for this reader.
    pub(crate) fn seek(&mut self, range: &Range<u64>) {
        match self {
            Self::Fill(reader) => reader.seek(range.start),
            Self::Sliced(sliced) => sliced.seek(range),
        }
    }

    /// The next content, at most `max` bytes, if it need not be waited for; `None` in it at the clean end.
    pub(crate) fn try_next(&mut self, max: usize) -> Option<Result<Option<Piece>, Failure>> {
        match self {
            Self::Fill(reader) => reader.try_next(max),
            Self::Sliced(sliced) => sliced.try_next(max),
        }
    }

    /// [`Content::try_next`], waiting for it.
    ///
    /// # Errors
    /// When the fetch that brings it failed and all that had arrived was read.
    pub(crate) async fn next(&mut self, max: usize) -> Result<Option<Piece>, Failure> {
        match self {
            Self::Fill(reader) => reader.next(max).await,
            Self::Sliced(sliced) => sliced.next(max).await,
        }
    }

    /// Waits until what is stored on disk can be read there, or cannot. What comes from a backend is not waited for.
    ///
    /// # Errors
    /// [`Failure::Unreadable`]: it has left the cache.
    pub(crate) async fn ready(&mut self) -> Result<(), Failure> {
        match self {
            Self::Fill(reader) => reader.ready().await,
            // Its first slice was opened before.
            Self::Sliced(_) => Ok(()),
        }
    }

    /// Whether the end has come and been read.
    pub(crate) fn is_at_end(&self) -> bool {
        match self {
            Self::Fill(reader) => reader.is_at_end(),
            // Its length is known, so nobody has to find its end.
            Self::Sliced(_) => false,
        }
    }

    /// The fields that came after the content; `None` if there were none, and before it is complete.
    pub(crate) fn trailer(&self) -> Option<Arc<Trailer>> {
        match self {
            Self::Fill(reader) => reader.trailer(),
            Self::Sliced(_) => None,
        }
    }

    /// Waits until byte `offset`, or the end, has arrived.
    ///
    /// # Errors
    /// When the fill failed before.
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
