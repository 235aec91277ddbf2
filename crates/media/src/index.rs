//! The index of a track's file, made by few ranged reads and without I/O of its own.
//!
//! The [`Indexer`] says which bytes it wants, is given them, and ends with a [`TrackIndex`]. It reads
//! the header, a sidx, box headers and moofs; it jumps over mdat.
//!
//! A sidx that covers the file says where the segments are, once a few of its references were looked
//! at. Without one, or with one that does not hold, every moof is read, and fragments are grouped.
//! Every want moves on through the file, so their number is bounded by [`TOP_LEVEL_BOXES_MAX`].
//!
//! ```text
//! let mut indexer = Indexer::new(file_size, options);
//! loop {
//!     match indexer.step()? {
//!         Step::Want(want) => indexer.feed(&read(want.offset, want.len)),
//!         Step::Done(index) => break index,
//!     }
//! }
//! ```

mod grouping;
mod probe;
mod rate;
mod walk;
mod window;

use crate::boxes::Mp4Box;
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::header::{self, MOOV_BYTES_MAX};
use crate::index::probe::{Probe, Verdict};
use crate::index::walk::Walk;
use crate::index::window::{Stop, Window};
use crate::sidx::{SIDX_BYTES_MAX, Sidx};
use crate::track::{TrackIndex, TrackInfo};

/// How to index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexOptions {
    /// Duration of a segment that fragments are grouped to, in milliseconds, where the file has no
    /// sidx that says where its segments are.
    pub segment_target_ms: u32,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self { segment_target_ms: 2000 }
    }
}

/// Bytes that the indexer wants. They lie wholly in the file, as its size was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// From the start of the file.
    pub offset: u64,
    /// Bytes, at least 1.
    pub len: u64,
}

/// What an [`Indexer`] needs next, or what it has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Read these bytes and [`feed`](Indexer::feed) them.
    Want(Want),
    /// The file is indexed.
    Done(TrackIndex),
}

/// Most boxes at the top level of a file: a day of 0.5 s chunks has 700,000.
pub const TOP_LEVEL_BOXES_MAX: u64 = 1 << 22;

/// Indexes one file.
#[derive(Debug)]
pub struct Indexer {
    window: Window,
    options: IndexOptions,
    wanted: Option<Want>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Looks for moov.
    Header {
        pos: u64,
        ftyp_seen: bool,
    },
    /// Looks for a sidx between moov and the first fragment.
    Front {
        header: Header,
        pos: u64,
    },
    /// Makes sure of what the sidx says.
    Probe(Box<Probe>),
    /// Reads every moof.
    Walk(Box<Walk>),
    Done(TrackIndex),
    Failed(Error),
}

/// The CMAF header of the file that is indexed.
#[derive(Debug, Clone)]
struct Header {
    info: TrackInfo,
    size: u64,
}

impl Indexer {
    /// An indexer of a file of `file_size` bytes (from its metadata, or from Content-Range).
    #[must_use]
    pub fn new(file_size: u64, options: IndexOptions) -> Self {
        let phase = Phase::Header { pos: 0, ftyp_seen: false };
        Self { window: Window::new(file_size), options, wanted: None, phase }
    }

    /// What to do next. The same again until it is fed.
    ///
    /// # Errors
    /// The file's first fault, with its offset and box. It stays.
    pub fn step(&mut self) -> Result<Step> {
        loop {
            let stop = match &self.phase {
                Phase::Done(index) => return Ok(Step::Done(index.clone())),
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

    /// Takes the bytes found at the offset last wanted. Fewer than wanted say that the file is shorter
    /// than it was said to be, which is a fault; the box that is cut off is named.
    pub fn feed(&mut self, bytes: &[u8]) {
        if let Some(want) = self.wanted.take() {
            self.window.feed(want, bytes);
        }
    }

    /// Goes on by one box, or to the next phase. A step that needs bytes changes nothing.
    fn advance(&mut self) -> Result<(), Stop> {
        let target = self.options.segment_target_ms;
        let next = match &mut self.phase {
            Phase::Header { pos, ftyp_seen } => match header_step(&self.window, pos, ftyp_seen)? {
                Some(header) => Phase::Front { pos: header.size, header },
                None => return Ok(()),
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
            Phase::Done(_) | Phase::Failed(_) => return Ok(()),
        };
        self.phase = next;
        Ok(())
    }
}

/// Reads one box up to moov.
fn header_step(window: &Window, pos: &mut u64, ftyp_seen: &mut bool) -> Result<Option<Header>, Stop> {
    let at = *pos;
    if at > 0 && window.ends_at(at)? {
        return Err(Error::new(0, FourCc::FTYP, Fault::Missing(FourCc::MOOV)).into());
    }
    let box_header = match window.header(at) {
        Err(Stop::Fault(_)) if at == 0 => return Err(not_iso_bmff().into()),
        other => other?,
    };
    let kind = box_header.kind;
    if at == 0 && !kind.can_begin() {
        return Err(not_iso_bmff().into());
    }
    match kind {
        FourCc::FTYP => *ftyp_seen = true,
        FourCc::MOOV if !*ftyp_seen => return Err(Error::invalid(at, kind, header::NO_FTYP).into()),
        FourCc::MOOV => {
            let moov = window.whole(at, &box_header, ("MOOV_BYTES_MAX", MOOV_BYTES_MAX))?;
            let info = header::parse_moov(&Mp4Box::parse(moov, at)?)?;
            return Ok(Some(Header { info, size: at + moov.len() as u64 }));
        }
        // moov after the media, or none at all: the moov of a fragmented file comes first.
        FourCc::MDAT if *ftyp_seen => return Err(Error::new(at, kind, Fault::Progressive).into()),
        FourCc::MOOF | FourCc::MDAT => return Err(Error::new(at, kind, Fault::MissingHeader).into()),
        _ => {}
    }
    *pos = at + box_header.size_in(at, window.file_size)?;
    Ok(None)
}

fn not_iso_bmff() -> Error {
    Error::new(0, FourCc::FTYP, Fault::NotIsoBmff)
}

enum Front {
    /// One that matters not.
    Box,
    /// A sidx that may index the whole file.
    Index(Box<Probe>),
    /// No sidx that does.
    Fragment,
}

/// Reads one box between moov and the first fragment.
fn front_step(window: &Window, header: &Header, pos: &mut u64) -> Result<Front, Stop> {
    let at = *pos;
    if window.ends_at(at)? {
        return Err(Error::new(0, FourCc::FTYP, Fault::Empty).into());
    }
    let box_header = window.header(at)?;
    match box_header.kind {
        FourCc::MOOF | FourCc::MDAT | FourCc::PRFT | FourCc::EMSG | FourCc::MOOV => Ok(Front::Fragment),
        FourCc::SIDX => {
            let bytes = window.whole(at, &box_header, ("SIDX_BYTES_MAX", SIDX_BYTES_MAX))?;
            let plan = Sidx::parse(bytes, at)
                .ok()
                .and_then(|sidx| Probe::plan(header, &sidx, at + bytes.len() as u64, window.file_size));
            Ok(plan.map_or(Front::Fragment, |probe| Front::Index(Box::new(probe))))
        }
        _ => {
            *pos = at + box_header.size_in(at, window.file_size)?;
            Ok(Front::Box)
        }
    }
}
