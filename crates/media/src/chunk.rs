//! Scanner for CMAF chunks in an arbitrarily split byte stream: the entry point of live ingest.
//! [`ChunkScanner::push`] accepts received bytes, and [`ChunkScanner::next_event`] returns the CMAF
//! header and each chunk as soon as it is complete. The events depend only on the bytes, not on how
//! they were split.
//!
//! After a fault, the scanner keeps returning it and drops further bytes, so that an upload can be
//! read to its end before the response. One fault is recoverable: if a fragment arrives without a
//! header, the scanner keeps the fragment's bytes, and [`ChunkScanner::resume_with_header`]
//! supplies a header from elsewhere. No bytes are lost unless more are pushed in between.

use bytes::{Buf, Bytes, BytesMut};

use crate::boxes::{BoxHeader, Mp4Box};
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::fragment::{Fragment, MOOF_BYTES_MAX};
use crate::header::{self, MOOV_BYTES_MAX};
pub use crate::prft::Prft;
use crate::track::TrackInfo;

/// Maximum length of a CMAF chunk, in bytes: half a second at 1 Gbit/s. A scanner buffers at most
/// this many bytes in addition to the last push.
pub const CHUNK_BYTES_MAX: u64 = 64 << 20;

/// An event reported by a scanner.
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
    /// Bytes as received.
    pub bytes: Bytes,
    /// Parsed contents of `bytes`.
    pub info: TrackInfo,
    /// Whether the scanner already had a header. Sources repeat the header, and may change it.
    pub repeated: bool,
}

/// A CMAF chunk: leading boxes, moof and mdat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// styp, prft, emsg, moof and mdat as received. Boxes before the moof that are useful only in
    /// whole files (sidx, ssix, mfra, free) are skipped.
    pub bytes: Bytes,
    /// Position of the chunk's first box in the upload.
    pub offset: u64,
    /// Contents of the chunk's moof.
    pub fragment: Fragment,
    /// Producer reference time; the last one if the chunk has several.
    pub prft: Option<Prft>,
    /// Brands of the chunk's styp, major brand first; `None` without a styp.
    pub styp: Option<Vec<FourCc>>,
}

impl Chunk {
    /// Returns whether the chunk belongs to the last segment of its track (brand `lmsg`).
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.styp.as_ref().is_some_and(|brands| brands.contains(&FourCc::LMSG))
    }
}

/// Finds CMAF headers and chunks in a stream of bytes.
#[derive(Debug, Default)]
pub struct ChunkScanner {
    info: Option<TrackInfo>,
    /// Received bytes of the current group, followed by bytes not yet parsed.
    buffer: BytesMut,
    /// Length of the group's complete boxes at the front of `buffer`, in bytes.
    gathered: usize,
    /// Position in the stream of the first byte after `gathered`.
    pos: u64,
    group: Group,
    /// Contents of the boxes that lead the next moof.
    lead: Lead,
    skipped: Option<SkippedBox>,
    failed: Option<Error>,
}

/// The group of boxes being gathered.
#[derive(Debug, Default)]
enum Group {
    /// Empty, or only boxes that lead a moof.
    #[default]
    Lead,
    /// ftyp at this offset, with moov expected next.
    Header(u64),
    /// moof at this offset, with mdat expected next.
    Fragment(u64, Fragment),
}

/// The contents of the boxes that lead a moof.
#[derive(Debug, Default)]
struct Lead {
    offset: Option<u64>,
    prft: Option<Prft>,
    styp: Option<Vec<FourCc>>,
}

/// A box being skipped that has not arrived completely.
#[derive(Debug)]
struct SkippedBox {
    offset: u64,
    header: BoxHeader,
    left: u64,
}

impl ChunkScanner {
    /// Creates a scanner for a stream that contains its own CMAF header.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a scanner for a stream whose CMAF header is already known, such as a segment
    /// uploaded on its own.
    #[must_use]
    pub fn with_header(info: &TrackInfo) -> Self {
        Self { info: Some(info.clone()), ..Self::default() }
    }

    /// Recovers from [`Fault::MissingHeader`]: scanning continues with this header from the
    /// buffered bytes. Does nothing if the scanner has no fault or a different one, or if bytes
    /// were dropped after the fault.
    pub fn resume_with_header(&mut self, info: &TrackInfo) {
        if !self.buffer.is_empty() && self.failed.take_if(|e| e.fault == Fault::MissingHeader).is_some() {
            self.info = Some(info.clone());
        }
    }

    /// Returns the number of bytes buffered for an incomplete chunk or header.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Appends the next bytes of the stream, however it is split.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            self.buffer = BytesMut::new();
            return;
        }
        let skipped_bytes = self.skip_from(bytes.len());
        self.buffer.extend_from_slice(&bytes[skipped_bytes..]);
    }

    /// Returns the next complete header or chunk; `None` until more bytes are pushed.
    ///
    /// # Errors
    ///
    /// Returns the stream's first fault, with its offset and box; later calls repeat it. Returns
    /// [`Fault::MissingHeader`] if a fragment precedes any header, until
    /// [`resume_with_header`](Self::resume_with_header) recovers from it.
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

    /// Ends the stream. Call it once [`next_event`](Self::next_event) returns `None`.
    ///
    /// # Errors
    ///
    /// Returns an earlier fault, [`Fault::Truncated`] for an incomplete box, or an error for a moof
    /// without its mdat or an ftyp without its moov.
    pub fn finish(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if let Some(SkippedBox { offset, header, left }) = &self.skipped
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

    /// Processes the next box, if it has arrived.
    fn step(&mut self) -> Result<Progress> {
        if self.skipped.is_some() {
            return Ok(Progress::Starved);
        }
        let rest = &self.buffer[self.gathered..];
        let Some(header) = self.box_header(rest)? else { return Ok(Progress::Starved) };
        if !self.belongs_to_chunk(&header)? {
            self.start_skipping(header);
            return Ok(Progress::Box);
        }
        let size = self.bounded_size(&header)?;
        if rest.len() < size {
            return Ok(Progress::Starved);
        }
        let event = self.accept_box(&header, size)?;
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
                Err(Error::invalid(self.pos, kind, "expected a box header"))
            }
            header => Ok(header),
        }
    }

    /// Returns whether the box belongs to a header or a chunk, rather than only to a whole file.
    fn belongs_to_chunk(&self, header: &BoxHeader) -> Result<bool> {
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
            // The moof's data offset spans any boxes before the mdat, so they must be kept.
            (Group::Fragment(..), _) => Ok(true),
            (Group::Lead, FourCc::MOOV) => Err(Error::invalid(pos, kind, header::NO_FTYP)),
            (Group::Lead, FourCc::MOOF) if self.info.is_none() => {
                Err(Error::new(pos, kind, Fault::MissingHeader))
            }
            (_, FourCc::MDAT) if header.size == Some(u64::from(header.header_size)) => Ok(false),
            (_, FourCc::MDAT) => Err(Error::invalid(pos, kind, "media data without a moof")),
            (_, kind) => Ok(matches!(
                kind,
                FourCc::FTYP | FourCc::MOOV | FourCc::STYP | FourCc::PRFT | FourCc::EMSG | FourCc::MOOF
            )),
        }
    }

    /// Returns the size of a box to keep, checked against the limits.
    fn bounded_size(&self, header: &BoxHeader) -> Result<usize> {
        let Some(size) = header.size else {
            let what = "size must not be 0 (box extends to the end) in a stream";
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
        Ok(usize::try_from(size).expect("box size limits fit in a usize"))
    }

    /// Adds a complete box to the group; returns the group's event if the box completes it.
    fn accept_box(&mut self, header: &BoxHeader, size: usize) -> Result<Option<Event>> {
        if header.kind == FourCc::FTYP {
            // Boxes before a header do not belong to a chunk.
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
                let bytes = self.finish_group(size);
                return Ok(Some(Event::Header(Header { bytes, info, repeated })));
            }
            (FourCc::MDAT, group) => {
                let Group::Fragment(_, fragment) = std::mem::take(group) else {
                    unreachable!("an mdat is kept only after a moof")
                };
                let Lead { offset, prft, styp } = std::mem::take(&mut self.lead);
                let offset = offset.unwrap_or(self.pos);
                let bytes = self.finish_group(size);
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

    /// Completes the group with its last box of `size` bytes and returns the group's bytes.
    fn finish_group(&mut self, size: usize) -> Bytes {
        let bytes = self.buffer.split_to(self.gathered + size).freeze();
        self.gathered = 0;
        self.pos += size as u64;
        self.group = Group::Lead;
        bytes
    }

    fn start_skipping(&mut self, header: BoxHeader) {
        let size = header.size.unwrap_or(u64::MAX);
        self.skipped = Some(SkippedBox { offset: self.pos, header, left: size });
        let skipped_bytes = self.skip_from(self.buffer.len() - self.gathered);
        // Move the gathered boxes, which are small, up over the skipped bytes.
        self.buffer.copy_within(..self.gathered, skipped_bytes);
        self.buffer.advance(skipped_bytes);
    }

    /// Returns how many of the next `available` bytes belong to the box being skipped.
    fn skip_from(&mut self, available: usize) -> usize {
        let Some(skipped) = &mut self.skipped else { return 0 };
        let skipped_bytes = usize::try_from(skipped.left).unwrap_or(usize::MAX).min(available);
        if skipped.header.size.is_some() {
            skipped.left -= skipped_bytes as u64;
        }
        self.pos += skipped_bytes as u64;
        if skipped.left == 0 {
            self.skipped = None;
        }
        skipped_bytes
    }
}

enum Progress {
    /// A box was processed.
    Box,
    Event(Event),
    /// More bytes are needed.
    Starved,
}

fn missing_moov(ftyp: u64) -> Error {
    Error::new(ftyp, FourCc::FTYP, Fault::Missing(FourCc::MOOV))
}

fn missing_mdat(moof: u64) -> Error {
    Error::invalid(moof, FourCc::MOOF, "must be followed by an mdat")
}

/// Returns the brands of an styp, major brand first (§4.3).
fn brands(styp: &Mp4Box<'_>) -> Result<Vec<FourCc>> {
    let mut r = styp.reader();
    let mut brands = vec![r.fourcc()?];
    r.skip(4)?;
    brands.extend(r.rest().as_chunks::<4>().0.iter().map(|brand| FourCc(*brand)));
    Ok(brands)
}

/// Parses a fragment. It must be servable as received, so its data offsets must count from its
/// moof.
fn cmaf_fragment(moof: &Mp4Box<'_>, info: &TrackInfo) -> Result<Fragment> {
    let fragment = Fragment::parse(moof.bytes, moof.offset, info)?;
    if fragment.has_base_data_offset {
        let what = "tfhd must not have a base_data_offset (CMAF): with ffmpeg, add \
                    -movflags +default_base_moof";
        return Err(moof.invalid(what));
    }
    Ok(fragment)
}
