//! In-memory part of a file being indexed: one contiguous byte range, replaced by each read.

use crate::boxes::{BOX_HEADER_BYTES_MAX, BoxHeader};
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;

/// Size of the first read, in bytes: covers the header, sidx and first fragment's boxes of most
/// files.
const FIRST_READ_BYTES: u64 = 16 << 10;
/// Minimum size of further reads, in bytes: covers the styp, prft, moof and mdat header of most
/// fragments.
const READ_BYTES_MIN: u64 = 4 << 10;
/// Maximum size of further reads, in bytes. Reads grow up to it if the moofs are longer.
const READ_BYTES_MAX: u64 = 64 << 10;

/// Placeholder type of a box whose header is incomplete.
const UNKNOWN: FourCc = FourCc(*b"????");

/// A byte range requested by the indexer, within the file's declared size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// Offset from the start of the file.
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub len: u64,
}

/// Reasons for an indexing step to stop.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The step needs these bytes first.
    Want(Want),
    Fault(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Fault(error)
    }
}

#[derive(Debug)]
pub(crate) struct Window {
    /// Declared file size; after a short read, the actual size.
    pub(crate) file_size: u64,
    short_of: Option<u64>,
    start: u64,
    bytes: Vec<u8>,
    read_bytes: u64,
    learnt_bytes: u64,
}

impl Window {
    pub(crate) fn new(file_size: u64) -> Self {
        Self {
            file_size,
            short_of: None,
            start: 0,
            bytes: Vec::new(),
            read_bytes: FIRST_READ_BYTES,
            learnt_bytes: READ_BYTES_MIN,
        }
    }

    /// Returns `len` bytes at `offset`, which belong to a box of type `kind`.
    pub(crate) fn view(&self, offset: u64, len: u64, kind: FourCc) -> Result<&[u8], Stop> {
        let left = self.file_size.saturating_sub(offset);
        if len > left {
            return Err(Error::new(offset, kind, Fault::Truncated { need: len, left }).into());
        }
        let held = offset.checked_sub(self.start).and_then(|from| {
            let from = usize::try_from(from).ok()?;
            self.bytes.get(from..from.checked_add(usize::try_from(len).ok()?)?)
        });
        held.ok_or(Stop::Want(Want { offset, len: len.max(self.read_bytes).min(left) }))
    }

    /// Replaces the window's bytes with those read for `want`.
    pub(crate) fn feed(&mut self, want: Want, bytes: &[u8]) {
        let wanted = usize::try_from(want.len).unwrap_or(usize::MAX).min(bytes.len());
        if (wanted as u64) < want.len {
            self.short_of.get_or_insert(self.file_size);
            self.file_size = want.offset + wanted as u64;
        }
        self.start = want.offset;
        self.bytes.clear();
        self.bytes.extend_from_slice(&bytes[..wanted]);
        self.read_bytes = self.learnt_bytes;
    }

    /// Releases the window's memory once no more bytes are needed.
    pub(crate) fn clear(&mut self) {
        self.bytes = Vec::new();
    }

    /// Records that a fragment's boxes before its media took `len` bytes, so that the next read
    /// fetches that many bytes at once.
    pub(crate) fn learn(&mut self, len: u64) {
        let roomy = len.saturating_add(BOX_HEADER_BYTES_MAX as u64).next_power_of_two();
        self.learnt_bytes = self.learnt_bytes.max(roomy).min(READ_BYTES_MAX);
        self.read_bytes = self.learnt_bytes;
    }

    /// Returns whether the file ends at `offset`. A file shorter than its declared size is always a
    /// fault.
    pub(crate) fn ends_at(&self, offset: u64) -> Result<bool> {
        match self.short_of {
            Some(declared) if offset >= self.file_size => {
                let fault = Fault::Truncated { need: declared.saturating_sub(offset), left: 0 };
                Err(Error::new(offset, UNKNOWN, fault))
            }
            _ => Ok(offset == self.file_size),
        }
    }

    /// Returns the box header at `offset`.
    pub(crate) fn header(&self, offset: u64) -> Result<BoxHeader, Stop> {
        let left = self.file_size.saturating_sub(offset);
        let bytes = self.view(offset, left.clamp(8, BOX_HEADER_BYTES_MAX as u64), UNKNOWN)?;
        let Some(header) = BoxHeader::parse(bytes, offset)? else {
            let fault = Fault::Truncated { need: BOX_HEADER_BYTES_MAX as u64, left };
            return Err(Error::new(offset, UNKNOWN, fault).into());
        };
        if !header.kind.is_plausible() {
            return Err(Error::invalid(offset, header.kind, "expected a box header").into());
        }
        Ok(header)
    }

    /// Returns the complete box at `offset`, which must not be longer than `max` bytes.
    pub(crate) fn whole(
        &self,
        offset: u64,
        header: &BoxHeader,
        (limit, max): (&'static str, u64),
    ) -> Result<&[u8], Stop> {
        let found = header.size_in(offset, self.file_size)?;
        if found > max {
            return Err(Error::new(offset, header.kind, Fault::OverLimit { limit, max, found }).into());
        }
        self.view(offset, found, header.kind)
    }
}
