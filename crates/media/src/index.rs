//! Track file indexer: builds an index from a few ranged reads, which the caller performs.
//!
//! The [`Indexer`] requests bytes, accepts them, and produces a [`TrackIndex`]. It reads the
//! header, a sidx, box headers and moofs, but not the content of mdat.
//!
//! If the file is progressive, the result is a [`Movie`], read from moov alone, wherever it is.
//!
//! A sidx that covers the file provides the segments, once a few of its references have been
//! verified. Without a valid sidx, every moof is read, and fragments are grouped into segments.
//! Every request advances through the file, so the number of requests is bounded by
//! [`TOP_LEVEL_BOXES_MAX`].
//!
//! ```text
//! let mut indexer = Indexer::new(file_size, options);
//! loop {
//!     match indexer.step()? {
//!         Step::Want(want) => indexer.feed(&read(want.offset, want.len)),
//!         Step::Done(index) => break index,
//!         Step::Movie(movie) => …
//!     }
//! }
//! ```

mod front;
pub(crate) mod grouping;
mod probe;
pub(crate) mod rate;
mod walk;
mod window;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::index::front::{Found, Front, Header, HeaderSearch, front_step};
use crate::index::probe::{Probe, Verdict};
use crate::index::walk::Walk;
use crate::index::window::{Stop, Window};
use crate::progressive::Movie;
use crate::track::TrackIndex;

pub use walk::TOP_LEVEL_BOXES_MAX;
pub use window::Want;

/// Indexing options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexOptions {
    /// Target duration of a segment in milliseconds, used if the file has no sidx that defines its
    /// segments.
    pub segment_target_ms: u32,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self { segment_target_ms: 2000 }
    }
}

/// An [`Indexer`]'s next request, or its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Read these bytes and pass them to [`feed`](Indexer::feed).
    Want(Want),
    /// The file is indexed.
    Done(TrackIndex),
    /// The file is progressive, and its tracks are indexed.
    Movie(Arc<Movie>),
}

/// Builds the index of one file.
#[derive(Debug)]
pub struct Indexer {
    window: Window,
    options: IndexOptions,
    wanted: Option<Want>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Searching for moov.
    Header(HeaderSearch),
    /// Searching for a sidx between moov and the first fragment.
    Front {
        header: Header,
        pos: u64,
    },
    /// Verifying the sidx.
    Probe(Box<Probe>),
    /// Reading every moof.
    Walk(Box<Walk>),
    Done(TrackIndex),
    Movie(Arc<Movie>),
    Failed(Error),
}

impl Indexer {
    /// Creates an indexer for a file of `file_size` bytes (from its metadata, or from
    /// Content-Range).
    #[must_use]
    pub fn new(file_size: u64, options: IndexOptions) -> Self {
        let phase = Phase::Header(HeaderSearch::default());
        Self { window: Window::new(file_size), options, wanted: None, phase }
    }

    /// Returns the next step; repeated calls return the same request until [`feed`](Self::feed) is
    /// called.
    ///
    /// # Errors
    ///
    /// Returns the file's first fault, with its offset and box. Later calls repeat it.
    pub fn step(&mut self) -> Result<Step> {
        loop {
            let stop = match &self.phase {
                Phase::Done(index) => return Ok(Step::Done(index.clone())),
                Phase::Movie(movie) => return Ok(Step::Movie(movie.clone())),
                Phase::Failed(error) => return Err(error.clone()),
                _ => self.advance(),
            };
            match stop {
                Ok(()) => {}
                Err(Stop::Want(want)) => {
                    self.wanted = Some(want);
                    return Ok(Step::Want(want));
                }
                Err(Stop::Fault(error)) => self.phase = Phase::Failed(error),
            }
        }
    }

    /// Accepts the bytes last requested. If there are fewer bytes than requested, the file is
    /// shorter than declared, and the next step returns a fault that names the truncated box.
    pub fn feed(&mut self, bytes: &[u8]) {
        if let Some(want) = self.wanted.take() {
            self.window.feed(want, bytes);
        }
    }

    /// Advances by one box, or to the next phase. A step that lacks bytes changes nothing.
    fn advance(&mut self) -> Result<(), Stop> {
        let target = self.options.segment_target_ms;
        let next = match &mut self.phase {
            Phase::Header(search) => match search.step(&self.window, target)? {
                Found::Box => return Ok(()),
                Found::Header(header) => Phase::Front { pos: header.size, header },
                Found::Movie(movie) => {
                    self.window.clear();
                    Phase::Movie(Arc::new(movie))
                }
            },
            Phase::Front { header, pos } => match front_step(&self.window, header, pos)? {
                Front::Box => return Ok(()),
                Front::Index(probe) => Phase::Probe(probe),
                Front::Fragment => Phase::Walk(Box::new(Walk::new(header, target))),
            },
            Phase::Probe(probe) => match probe.step(&self.window, target)? {
                Verdict::Unsure => return Ok(()),
                Verdict::Sound(index) => Phase::Done(index),
                Verdict::Unsound => Phase::Walk(Box::new(Walk::new(&probe.header, target))),
            },
            Phase::Walk(walk) => match walk.step(&mut self.window)? {
                None => return Ok(()),
                Some(index) => Phase::Done(index),
            },
            Phase::Done(_) | Phase::Movie(_) | Phase::Failed(_) => return Ok(()),
        };
        self.phase = next;
        Ok(())
    }
}
