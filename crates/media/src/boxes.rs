//! Box headers and the walk over boxes, without a copy (ISO/IEC 14496-12 §4.2).
//!
//! Invariants: a box that is handed out lies wholly in the bytes given, and its size is at least its
//! header's, so every walk ends. Offsets are absolute, from the start of the file or upload.

use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::reader::Reader;

/// Longest box header: 32-bit size, type, 64-bit size, UUID.
pub const BOX_HEADER_BYTES_MAX: usize = 32;

/// Deepest nesting that a dump follows. The parsers go down fixed paths.
pub const BOX_DEPTH_MAX: usize = 16;

/// A box header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoxHeader {
    /// The box's type.
    pub kind: FourCc,
    /// Bytes of the header itself: 8, 16, 24 or 32.
    pub header_size: u8,
    /// Bytes of the whole box, or `None` where it runs to the end of the file (size 0).
    pub size: Option<u64>,
}

impl BoxHeader {
    /// Reads the header at the front of `bytes`; `None` where too few bytes are there to say.
    /// `offset` is where `bytes` begins in the file.
    pub fn parse(bytes: &[u8], offset: u64) -> Result<Option<Self>> {
        let Some((front, rest)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
        let [s0, s1, s2, s3, k0, k1, k2, k3] = *front;
        let kind = FourCc([k0, k1, k2, k3]);
        let short = u32::from_be_bytes([s0, s1, s2, s3]);
        let mut header_size = 8u8;
        let size = match short {
            0 => None,
            1 => {
                let Some((long, _)) = rest.split_first_chunk::<8>() else { return Ok(None) };
                header_size += 8;
                Some(u64::from_be_bytes(*long))
            }
            size => Some(u64::from(size)),
        };
        if kind == FourCc::UUID {
            header_size += 16;
        }
        if bytes.len() < usize::from(header_size) {
            return Ok(None);
        }
        if size.is_some_and(|size| size < u64::from(header_size)) {
            return Err(Error::invalid(offset, kind, "size smaller than its own header"));
        }
        Ok(Some(Self { kind, header_size, size }))
    }

    /// Bytes of the box that begins at `offset` in a file of `file_size` bytes.
    ///
    /// # Errors
    /// [`Fault::Truncated`] where the box runs past the end of the file.
    pub fn size_in(&self, offset: u64, file_size: u64) -> Result<u64> {
        let left = file_size.saturating_sub(offset);
        match self.size {
            None => Ok(left),
            Some(size) if size <= left => Ok(size),
            Some(need) => Err(Error::new(offset, self.kind, Fault::Truncated { need, left })),
        }
    }
}

/// A whole box in memory.
#[derive(Debug, Clone, Copy)]
pub struct Mp4Box<'a> {
    /// The box's type.
    pub kind: FourCc,
    /// Where the box begins in the file.
    pub offset: u64,
    /// Bytes of its header.
    pub header_size: usize,
    /// The box, header and body.
    pub bytes: &'a [u8],
}

impl<'a> Mp4Box<'a> {
    /// The box at the front of `bytes`, which begin at `offset` in the file and end where the box
    /// or what encloses it ends.
    ///
    /// # Errors
    /// [`Fault::Truncated`] where `bytes` do not hold the whole box.
    pub fn parse(bytes: &'a [u8], offset: u64) -> Result<Self> {
        let left = bytes.len() as u64;
        let Some(header) = BoxHeader::parse(bytes, offset)? else {
            let kind = bytes.get(4..8).map_or(FourCc(*b"????"), |k| FourCc([k[0], k[1], k[2], k[3]]));
            let need = if bytes.len() < 8 { 8 } else { BOX_HEADER_BYTES_MAX as u64 };
            return Err(Error::new(offset, kind, Fault::Truncated { need, left }));
        };
        let size = usize::try_from(header.size_in(offset, offset.saturating_add(left))?)
            .expect("no longer than the slice it lies in");
        let header_size = usize::from(header.header_size);
        Ok(Self { kind: header.kind, offset, header_size, bytes: &bytes[..size] })
    }

    /// What follows the header.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[self.header_size..]
    }

    /// Where the body begins in the file.
    #[must_use]
    pub fn body_offset(&self) -> u64 {
        self.offset + self.header_size as u64
    }

    /// The boxes inside, for a box that holds nothing else.
    #[must_use]
    pub fn children(&self) -> Boxes<'a> {
        Boxes { rest: self.body(), offset: self.body_offset() }
    }

    /// The boxes inside, after `skip` bytes of fields of its own.
    ///
    /// # Errors
    /// [`Fault::Truncated`] where the body is shorter than those fields.
    pub fn children_after(&self, skip: usize) -> Result<Boxes<'a>> {
        match self.body().get(skip..) {
            Some(rest) => Ok(Boxes { rest, offset: self.body_offset() + skip as u64 }),
            None => {
                let (need, left) = ((self.header_size + skip) as u64, self.bytes.len() as u64);
                Err(Error::new(self.offset, self.kind, Fault::Truncated { need, left }))
            }
        }
    }

    /// The first box of type `kind` inside, if there is one.
    ///
    /// # Errors
    /// Those of the walk up to it.
    pub fn find(&self, kind: FourCc) -> Result<Option<Mp4Box<'a>>> {
        for child in self.children() {
            let child = child?;
            if child.kind == kind {
                return Ok(Some(child));
            }
        }
        Ok(None)
    }

    /// The first box of type `kind` inside.
    ///
    /// # Errors
    /// [`Fault::Missing`] where there is none, and those of the walk up to it.
    pub fn require(&self, kind: FourCc) -> Result<Mp4Box<'a>> {
        self.find(kind)?.ok_or_else(|| self.fault(Fault::Missing(kind)))
    }

    /// A reader of its fields.
    #[must_use]
    pub fn reader(&self) -> Reader<'a> {
        Reader::new(self)
    }

    /// Version, flags, and a reader of the fields after them: a full box, §4.2.
    ///
    /// # Errors
    /// [`Fault::Truncated`] where there is no room for them.
    pub fn full(&self) -> Result<(u8, u32, Reader<'a>)> {
        let mut reader = self.reader();
        let word = reader.u32()?;
        Ok(((word >> 24) as u8, word & 0x00ff_ffff, reader))
    }

    pub(crate) fn fault(&self, fault: Fault) -> Error {
        Error::new(self.offset, self.kind, fault)
    }

    pub(crate) fn invalid(&self, what: &'static str) -> Error {
        Error::invalid(self.offset, self.kind, what)
    }
}

/// The boxes of a run of bytes, in order. It ends after the first fault.
#[derive(Debug, Clone)]
pub struct Boxes<'a> {
    rest: &'a [u8],
    offset: u64,
}

impl<'a> Boxes<'a> {
    /// Walks `bytes`, which begin at `offset` in the file.
    #[must_use]
    pub fn new(bytes: &'a [u8], offset: u64) -> Self {
        Self { rest: bytes, offset }
    }
}

impl<'a> Iterator for Boxes<'a> {
    type Item = Result<Mp4Box<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let found = Mp4Box::parse(self.rest, self.offset);
        match &found {
            Ok(found) => {
                self.rest = &self.rest[found.bytes.len()..];
                self.offset += found.bytes.len() as u64;
            }
            Err(_) => self.rest = &[],
        }
        Some(found)
    }
}
