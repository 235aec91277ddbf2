//! CMAF chunks out of a stream of bytes that arrives in any pieces: the door of live ingest.
//!
//! [`ChunkScanner::push`] takes what has arrived, [`ChunkScanner::next_event`] gives the CMAF header
//! and each chunk the moment it is complete. The events depend on the bytes alone, not on how they
//! were split. After a fault the scanner stays at fault and drops what is pushed, so that an upload
//! can be read to its end before it is answered. One fault can be mended: where a fragment comes
//! before its header, the scanner keeps what it has, and [`ChunkScanner::go_on_with`] gives it the
//! header that came another way; nothing is lost as long as nothing is pushed in between.

use bytes::{Buf, Bytes, BytesMut};

use crate::boxes::{BoxHeader, Mp4Box};
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::fragment::{Fragment, MOOF_BYTES_MAX};
use crate::header::{self, MOOV_BYTES_MAX};
pub use crate::prft::Prft;
use crate::track::TrackInfo;

/// Longest CMAF chunk in bytes, and so the most that a scanner holds besides what was last pushed:
/// half a second at 1 Gbit/s.
pub const CHUNK_BYTES_MAX: u64 = 64 << 20;

/// What a scanner finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The CMAF header.
    Header(Header),
    /// A complete chunk.
    Chunk(Chunk),
}

/// A CMAF header: ftyp and moov.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Its bytes as received.
    pub bytes: Bytes,
    /// What they say.
    pub info: TrackInfo,
    /// Whether a header was known before: sources repeat it, and may change it.
    pub repeated: bool,
}

/// A CMAF chunk: moof and mdat, and what stands before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// styp, prft, emsg, moof and mdat as received. Boxes for players of whole files (sidx, ssix,
    /// mfra, free) that came before the moof are left out.
    pub bytes: Bytes,
    /// Where its first box began in the upload.
    pub offset: u64,
    /// What its moof says.
    pub fragment: Fragment,
    /// Its producer reference time, the last where several came.
    pub prft: Option<Prft>,
    /// Brands of its styp, the major one first; `None` without a styp.
    pub styp: Option<Vec<FourCc>>,
}

impl Chunk {
    /// Whether it belongs to the last segment of its track: brand `lmsg`.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.styp.as_ref().is_some_and(|brands| brands.contains(&FourCc::LMSG))
    }
}

/// Finds CMAF headers and chunks in a stream of bytes.
#[derive(Debug, Default)]
pub struct ChunkScanner {
    info: Option<TrackInfo>,
    /// What has come of the group that is being gathered, and what has not been looked at.
    buffer: BytesMut,
    /// Bytes at the front of `buffer` that are whole boxes of the group.
    gathered: usize,
    /// Where the first byte after those lies in the stream.
    pos: u64,
    group: Group,
    /// Boxes before a moof that it takes along.
    lead: Lead,
    dropping: Option<Dropping>,
    failed: Option<Error>,
}

/// What is being gathered.
#[derive(Debug, Default)]
enum Group {
    /// Nothing, or boxes that come before a moof.
    #[default]
    Lead,
    /// ftyp has come, at this offset; moov is to come.
    Header(u64),
    /// moof has come, at this offset; mdat is to come.
    Fragment(u64, Fragment),
}

/// What the boxes before a moof say.
#[derive(Debug, Default)]
struct Lead {
    offset: Option<u64>,
    prft: Option<Prft>,
    styp: Option<Vec<FourCc>>,
}

/// A box that is left out and has not come whole yet.
#[derive(Debug)]
struct Dropping {
    offset: u64,
    header: BoxHeader,
    left: u64,
}

impl ChunkScanner {
    /// A scanner of a stream that brings its own CMAF header.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A scanner of a stream whose CMAF header came earlier, such as a segment uploaded on its own.
    #[must_use]
    pub fn with_header(info: &TrackInfo) -> Self {
        Self { info: Some(info.clone()), ..Self::default() }
    }

    /// Mends [`Fault::MissingHeader`]: what was scanned so far is kept, and goes on under this header. Does nothing
    /// where the scanner is not at this fault, or where bytes were dropped at it.
    pub fn go_on_with(&mut self, info: &TrackInfo) {
        if !self.buffer.is_empty() && self.failed.take_if(|e| e.fault == Fault::MissingHeader).is_some() {
            self.info = Some(info.clone());
        }
    }

    /// Bytes that are held until a chunk or header is complete.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Takes the next bytes of the stream, any number of them.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            self.buffer = BytesMut::new();
            return;
        }
        let dropped = self.drop_from(bytes.len());
        self.buffer.extend_from_slice(&bytes[dropped..]);
    }

    /// The next header or chunk that is complete; `None` until more is pushed.
    ///
    /// # Errors
    /// The stream's first fault, with its offset and box; it stays. [`Fault::MissingHeader`] where a
    /// fragment came and no header before it, until [`go_on_with`](Self::go_on_with) mends it.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        loop {
            match self.step() {
                Ok(Progress::Box) => {}
                Ok(Progress::Event(event)) => return Ok(Some(event)),
                Ok(Progress::Starved) => return Ok(None),
                Err(error) => {
                    if error.fault != Fault::MissingHeader {
                        self.buffer = BytesMut::new();
                    }
                    self.failed = Some(error.clone());
                    return Err(error);
                }
            }
        }
    }

    /// Says that the stream has ended. To be called when [`next_event`](Self::next_event) has
    /// nothing more.
    ///
    /// # Errors
    /// The fault met before, or [`Fault::Truncated`] where a box is left unfinished, or a moof without
    /// its mdat, or an ftyp without its moov.
    pub fn finish(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if let Some(Dropping { offset, header, left }) = &self.dropping
            && let Some(need) = header.size
        {
            let fault = Fault::Truncated { need, left: need - left };
            return Err(Error::new(*offset, header.kind, fault));
        }
        let rest = &self.buffer[self.gathered..];
        if !rest.is_empty() {
            Mp4Box::parse(rest, self.pos)?;
        }
        match &self.group {
            Group::Lead => Ok(()),
            Group::Header(offset) => Err(missing_moov(*offset)),
            Group::Fragment(offset, _) => Err(missing_mdat(*offset)),
        }
    }

    /// Looks at the next box, if it is there.
    fn step(&mut self) -> Result<Progress> {
        if self.dropping.is_some() {
            return Ok(Progress::Starved);
        }
        let rest = &self.buffer[self.gathered..];
        let Some(header) = self.box_header(rest)? else { return Ok(Progress::Starved) };
        if !self.keeps(&header)? {
            self.start_dropping(header);
            return Ok(Progress::Box);
        }
        let size = self.bounded_size(&header)?;
        if rest.len() < size {
            return Ok(Progress::Starved);
        }
        let event = self.take(&header, size)?;
        Ok(event.map_or(Progress::Box, Progress::Event))
    }

    fn box_header(&self, rest: &[u8]) -> Result<Option<BoxHeader>> {
        let not_iso_bmff = Error::new(0, FourCc::FTYP, Fault::NotIsoBmff);
        let header = match BoxHeader::parse(rest, self.pos) {
            Err(_) if self.pos == 0 => return Err(not_iso_bmff),
            other => other?,
        };
        match header {
            Some(BoxHeader { kind, .. }) if self.pos == 0 && !kind.can_begin() => Err(not_iso_bmff),
            Some(BoxHeader { kind, .. }) if !kind.is_plausible() => {
                Err(Error::invalid(self.pos, kind, "no box begins here"))
            }
            header => Ok(header),
        }
    }

    /// Whether the box belongs to a header or a chunk, rather than to a whole file.
    fn keeps(&self, header: &BoxHeader) -> Result<bool> {
        let (kind, pos) = (header.kind, self.pos);
        match (&self.group, kind) {
            (
                Group::Header(ftyp),
                FourCc::FTYP | FourCc::STYP | FourCc::PRFT | FourCc::EMSG | FourCc::MOOF,
            ) => Err(missing_moov(*ftyp)),
            (Group::Fragment(moof, fragment), FourCc::MDAT) => {
                fragment.check_data(*moof, pos, header).map(|()| true)
            }
            (
                Group::Fragment(moof, _),
                FourCc::FTYP | FourCc::MOOV | FourCc::STYP | FourCc::PRFT | FourCc::MOOF,
            ) => Err(missing_mdat(*moof)),
            // The moof counts the distance to its samples over what stands between.
            (Group::Fragment(..), _) => Ok(true),
            (Group::Lead, FourCc::MOOV) => Err(Error::invalid(pos, kind, header::NO_FTYP)),
            (Group::Lead, FourCc::MOOF) if self.info.is_none() => {
                Err(Error::new(pos, kind, Fault::MissingHeader))
            }
            (_, FourCc::MDAT) if header.size == Some(u64::from(header.header_size)) => Ok(false),
            (_, FourCc::MDAT) => Err(Error::invalid(pos, kind, "media that no moof describes")),
            (_, kind) => Ok(matches!(
                kind,
                FourCc::FTYP | FourCc::MOOV | FourCc::STYP | FourCc::PRFT | FourCc::EMSG | FourCc::MOOF
            )),
        }
    }

    /// Bytes of a box that is kept, once they are known to be within the limits.
    fn bounded_size(&self, header: &BoxHeader) -> Result<usize> {
        let Some(size) = header.size else {
            let what = "size 0, to the end of the stream, which cannot be told before it ends";
            return Err(Error::invalid(self.pos, header.kind, what));
        };
        let (limit, max, found) = match header.kind {
            FourCc::MOOV => ("MOOV_BYTES_MAX", MOOV_BYTES_MAX, size),
            FourCc::MOOF => ("MOOF_BYTES_MAX", MOOF_BYTES_MAX, size),
            _ => ("CHUNK_BYTES_MAX", CHUNK_BYTES_MAX, size.saturating_add(self.gathered as u64)),
        };
        if found > max {
            return Err(Error::new(self.pos, header.kind, Fault::OverLimit { limit, max, found }));
        }
        Ok(usize::try_from(size).expect("below a limit of some MiB"))
    }

    /// Takes a whole box into the group, and gives the group if the box ends it.
    fn take(&mut self, header: &BoxHeader, size: usize) -> Result<Option<Event>> {
        if header.kind == FourCc::FTYP {
            // What came before a header leads no fragment.
            self.buffer.advance(self.gathered);
            self.gathered = 0;
            self.lead = Lead::default();
        }
        let whole = Mp4Box::parse(&self.buffer[self.gathered..][..size], self.pos)?;
        match (header.kind, &mut self.group) {
            (FourCc::FTYP, group) => *group = Group::Header(self.pos),
            (FourCc::STYP, _) => self.lead.styp = Some(brands(&whole)?),
            (FourCc::PRFT, _) => self.lead.prft = Some(Prft::parse(&whole)?),
            (FourCc::MOOF, group) => {
                let Some(info) = &self.info else { return Err(whole.fault(Fault::MissingHeader)) };
                *group = Group::Fragment(self.pos, cmaf_fragment(&whole, info)?);
            }
            (FourCc::MOOV, _) => {
                let info = header::parse_moov(&whole)?;
                let repeated = self.info.replace(info.clone()).is_some();
                let bytes = self.give(size);
                return Ok(Some(Event::Header(Header { bytes, info, repeated })));
            }
            (FourCc::MDAT, group) => {
                let Group::Fragment(_, fragment) = std::mem::take(group) else {
                    unreachable!("an mdat is kept after a moof alone")
                };
                let Lead { offset, prft, styp } = std::mem::take(&mut self.lead);
                let offset = offset.unwrap_or(self.pos);
                let bytes = self.give(size);
                return Ok(Some(Event::Chunk(Chunk { bytes, offset, fragment, prft, styp })));
            }
            _ => {}
        }
        if !matches!(self.group, Group::Header(_)) {
            self.lead.offset.get_or_insert(self.pos);
        }
        self.gathered += size;
        self.pos += size as u64;
        Ok(None)
    }

    /// Ends the group with a last box of `size` bytes.
    fn give(&mut self, size: usize) -> Bytes {
        let bytes = self.buffer.split_to(self.gathered + size).freeze();
        self.gathered = 0;
        self.pos += size as u64;
        self.group = Group::Lead;
        bytes
    }

    fn start_dropping(&mut self, header: BoxHeader) {
        let size = header.size.unwrap_or(u64::MAX);
        self.dropping = Some(Dropping { offset: self.pos, header, left: size });
        let dropped = self.drop_from(self.buffer.len() - self.gathered);
        // The boxes gathered move up over what is left out; they are few bytes.
        self.buffer.copy_within(..self.gathered, dropped);
        self.buffer.advance(dropped);
    }

    /// How many of the next `available` bytes belong to the box that is left out.
    fn drop_from(&mut self, available: usize) -> usize {
        let Some(dropping) = &mut self.dropping else { return 0 };
        let dropped = usize::try_from(dropping.left).unwrap_or(usize::MAX).min(available);
        if dropping.header.size.is_some() {
            dropping.left -= dropped as u64;
        }
        self.pos += dropped as u64;
        if dropping.left == 0 {
            self.dropping = None;
        }
        dropped
    }
}

enum Progress {
    /// A box was dealt with.
    Box,
    Event(Event),
    /// More bytes are needed.
    Starved,
}

fn missing_moov(ftyp: u64) -> Error {
    Error::new(ftyp, FourCc::FTYP, Fault::Missing(FourCc::MOOV))
}

fn missing_mdat(moof: u64) -> Error {
    Error::invalid(moof, FourCc::MOOF, "no mdat follows it")
}

/// The brands of an styp, the major one first (§4.3).
fn brands(styp: &Mp4Box<'_>) -> Result<Vec<FourCc>> {
    let mut r = styp.reader();
    let mut brands = vec![r.fourcc()?];
    r.skip(4)?;
    brands.extend(r.rest().as_chunks::<4>().0.iter().map(|brand| FourCc(*brand)));
    Ok(brands)
}

/// A fragment that can be served as it came: its offsets count from its moof.
fn cmaf_fragment(moof: &Mp4Box<'_>, info: &TrackInfo) -> Result<Fragment> {
    let fragment = Fragment::parse(moof.bytes, moof.offset, info)?;
    if fragment.has_base_data_offset {
        let what = "its tfhd has a base_data_offset, which CMAF forbids: with ffmpeg, add \
                    -movflags +default_base_moof";
        return Err(moof.invalid(what));
    }
    Ok(fragment)
}
