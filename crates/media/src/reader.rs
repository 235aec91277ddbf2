//! Field reader: reads the big-endian fields of one box in order. A missing field is a fault that
//! names the box.

use crate::boxes::Mp4Box;
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;

/// Reads the body of a box from start to end.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
    // Offset and type of the box, for error messages.
    offset: u64,
    kind: FourCc,
    size: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(whole: &Mp4Box<'a>) -> Self {
        Self { rest: whole.body(), offset: whole.offset, kind: whole.kind, size: whole.bytes.len() }
    }

    /// Reads the next `N` bytes.
    ///
    /// # Errors
    ///
    /// Returns [`Fault::Truncated`] if the box ends first, as do all methods below.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.rest.split_first_chunk::<N>() {
            Some((front, rest)) => {
                self.rest = rest;
                Ok(*front)
            }
            None => Err(self.truncated(N)),
        }
    }

    /// Reads the next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(len) {
            Some((front, rest)) => {
                self.rest = rest;
                Ok(front)
            }
            None => Err(self.truncated(len)),
        }
    }

    /// Skips `len` bytes.
    pub fn skip(&mut self, len: usize) -> Result<()> {
        self.bytes(len).map(drop)
    }

    /// Reads 8 bits.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads 16 bits.
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads 32 bits.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads 32 bits, two's complement.
    pub fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// Reads 64 bits.
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads 64 bits if `wide`, otherwise 32, for a field that version 1 of a box widens.
    pub fn u32_or_u64(&mut self, wide: bool) -> Result<u64> {
        if wide { self.u64() } else { self.u32().map(u64::from) }
    }

    /// Reads a four-character code.
    pub fn fourcc(&mut self) -> Result<FourCc> {
        self.array().map(FourCc)
    }

    /// Returns the unread bytes.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn truncated(&self, len: usize) -> Error {
        let read = self.size - self.rest.len();
        let fault = Fault::Truncated { need: (read + len) as u64, left: self.size as u64 };
        Error::new(self.offset, self.kind, fault)
    }
}
