//! Box headers and zero-copy iteration over boxes (ISO/IEC 14496-12 §4.2).
//!
//! **Invariant:** a returned box lies entirely within the given bytes, and its size is at least its
//! header's, so every walk terminates. Offsets count from the start of the file or upload.

use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::reader::Reader;

/// Maximum length of a box header, in bytes: 32-bit size, type, 64-bit size and UUID.
pub const BOX_HEADER_BYTES_MAX: usize = 32;

/// Maximum nesting depth of a dump. Parsers descend fixed paths instead.
pub const BOX_DEPTH_MAX: usize = 16;

/// A box header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoxHeader {
    /// The box's type.
    pub kind: FourCc,
    /// Size of the header itself in bytes: 8, 16, 24 or 32.
    pub header_size: u8,
    /// Size of the whole box in bytes, or `None` if it extends to the end of the file (size 0).
    pub size: Option<u64>,
}

impl BoxHeader {
    /// Reads the header at the start of `bytes`; returns `None` if `bytes` is too short. `offset`
    /// is the position of `bytes` in the file.
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
            return Err(Error::invalid(offset, kind, "size is smaller than the header"));
        }
        Ok(Some(Self { kind, header_size, size }))
    }

    /// Returns the size of the box at `offset` in a file of `file_size` bytes.
    ///
    /// # Errors
    ///
    /// Returns [`Fault::Truncated`] if the box extends past the end of the file.
    pub fn size_in(&self, offset: u64, file_size: u64) -> Result<u64> {
        let left = file_size.saturating_sub(offset);
        match self.size {
            None => Ok(left),
            Some(size) if size <= left => Ok(size),
            Some(need) => Err(Error::new(offset, self.kind, Fault::Truncated { need, left })),
        }
    }
}

/// A complete box in memory.
#[derive(Debug, Clone, Copy)]
pub struct Mp4Box<'a> {
    /// The box's type.
    pub kind: FourCc,
    /// Position of the box in the file.
    pub offset: u64,
    /// Size of the box's header in bytes.
    pub header_size: usize,
    /// The complete box: header and body.
    pub bytes: &'a [u8],
}

impl<'a> Mp4Box<'a> {
    /// Reads the box at the start of `bytes`. `offset` is the position of `bytes` in the file, and
    /// `bytes` must extend at least to the end of the box.
    ///
    /// # Errors
    ///
    /// Returns [`Fault::Truncated`] if `bytes` do not contain the whole box.
    pub fn parse(bytes: &'a [u8], offset: u64) -> Result<Self> {
        let left = bytes.len() as u64;
        let Some(header) = BoxHeader::parse(bytes, offset)? else {
            let kind = bytes.get(4..8).map_or(FourCc(*b"????"), |k| FourCc([k[0], k[1], k[2], k[3]]));
            let need = if bytes.len() < 8 { 8 } else { BOX_HEADER_BYTES_MAX as u64 };
            return Err(Error::new(offset, kind, Fault::Truncated { need, left }));
        };
        let size = usize::try_from(header.size_in(offset, offset.saturating_add(left))?)
            .expect("a box is no longer than its slice");
        let header_size = usize::from(header.header_size);
        Ok(Self { kind: header.kind, offset, header_size, bytes: &bytes[..size] })
    }

    /// Returns the bytes after the header.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[self.header_size..]
    }

    /// Returns the position of the body in the file.
    #[must_use]
    pub fn body_offset(&self) -> u64 {
        self.offset + self.header_size as u64
    }

    /// Iterates over the child boxes of a container box, which has no fields of its own.
    #[must_use]
    pub fn children(&self) -> Boxes<'a> {
        Boxes { rest: self.body(), offset: self.body_offset() }
    }

    /// Iterates over the child boxes that follow `skip` bytes of fields.
    ///
    /// # Errors
    ///
    /// Returns [`Fault::Truncated`] if the body is shorter than `skip`.
    pub fn children_after(&self, skip: usize) -> Result<Boxes<'a>> {
        match self.body().get(skip..) {
            Some(rest) => Ok(Boxes { rest, offset: self.body_offset() + skip as u64 }),
            None => {
                let (need, left) = ((self.header_size + skip) as u64, self.bytes.len() as u64);
                Err(Error::new(self.offset, self.kind, Fault::Truncated { need, left }))
            }
        }
    }

    /// Returns the first child box of type `kind`, if any.
    ///
    /// # Errors
    ///
    /// Returns an error if an earlier child box is malformed.
    pub fn find(&self, kind: FourCc) -> Result<Option<Mp4Box<'a>>> {
        for child in self.children() {
            let child = child?;
            if child.kind == kind {
                return Ok(Some(child));
            }
        }
        Ok(None)
    }

    /// Returns the first child box of type `kind`.
    ///
    /// # Errors
    ///
    /// Returns [`Fault::Missing`] if the box has no such child, or another error if an earlier
    /// child box is malformed.
    pub fn require(&self, kind: FourCc) -> Result<Mp4Box<'a>> {
        self.find(kind)?.ok_or_else(|| self.fault(Fault::Missing(kind)))
    }

    /// Returns a reader over the box's fields.
    #[must_use]
    pub fn reader(&self) -> Reader<'a> {
        Reader::new(self)
    }

    /// Returns the version and flags of a full box (§4.2), and a reader over its other fields.
    ///
    /// # Errors
    ///
    /// Returns [`Fault::Truncated`] if the body is too short for version and flags.
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

/// An iterator over consecutive boxes; ends after the first fault.
#[derive(Debug, Clone)]
pub struct Boxes<'a> {
    rest: &'a [u8],
    offset: u64,
}

impl<'a> Boxes<'a> {
    /// Iterates over the boxes in `bytes`, whose position in the file is `offset`.
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
