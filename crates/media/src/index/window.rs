//! The part of a file that an indexer has in memory: one run of bytes, replaced by the next.

use crate::boxes::{BOX_HEADER_BYTES_MAX, BoxHeader};
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::index::Want;

/// First read: header, sidx and first fragment's boxes at once, in most files.
const FIRST_READ_BYTES: u64 = 16 << 10;
/// Each further read: styp, prft, moof and the header of mdat, of most fragments.
const READ_BYTES_MIN: u64 = 4 << 10;
/// What it grows to where moofs are longer.
const READ_BYTES_MAX: u64 = 64 << 10;

/// The type of a box of which too little is there.
const UNKNOWN: FourCc = FourCc(*b"????");

/// Why a step of indexing cannot go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// These bytes are needed first.
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
    /// As it was said, or as it turned out where a read fell short.
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

    /// `len` bytes at `offset`, which belong to the box of type `kind` there.
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

    /// Replaces what is held by the bytes found for `want`.
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

    /// Says that a fragment's boxes before its media took `len` bytes, so that the next read holds as
    /// many at once.
    pub(crate) fn learn(&mut self, len: u64) {
        let roomy = len.saturating_add(BOX_HEADER_BYTES_MAX as u64).next_power_of_two();
        self.learnt_bytes = self.learnt_bytes.max(roomy).min(READ_BYTES_MAX);
        self.read_bytes = self.learnt_bytes;
    }

    /// Whether the file ends at `offset`. One that fell short of its size never ends well.
    pub(crate) fn ends_at(&self, offset: u64) -> Result<bool> {
        match self.short_of {
            Some(said) if offset >= self.file_size => {
                let fault = Fault::Truncated { need: said.saturating_sub(offset), left: 0 };
                Err(Error::new(offset, UNKNOWN, fault))
            }
            _ => Ok(offset == self.file_size),
        }
    }

    /// The box header at `offset`.
    pub(crate) fn header(&self, offset: u64) -> Result<BoxHeader, Stop> {
        let left = self.file_size.saturating_sub(offset);
        let bytes = self.view(offset, left.clamp(8, BOX_HEADER_BYTES_MAX as u64), UNKNOWN)?;
        let Some(header) = BoxHeader::parse(bytes, offset)? else {
            let fault = Fault::Truncated { need: BOX_HEADER_BYTES_MAX as u64, left };
            return Err(Error::new(offset, UNKNOWN, fault).into());
        };
        if !header.kind.is_plausible() {
            return Err(Error::invalid(offset, header.kind, "no box begins here").into());
        }
        Ok(header)
    }

    /// The whole box at `offset`, which may not be longer than `max`.
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
