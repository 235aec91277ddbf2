//! Counters that survive their process: one page of a file, mapped shared, so the kernel keeps the
//! counts after a crash.
//!
//! ```text
//! 64 bytes   header, written by the file's creator
//! 63 × 64    one counter each: u64 in native byte order; the rest of its cache line is empty
//! ```
//!
//! Each counter has its own cache line, so counting threads do not contend.
//!
//! **Invariant:** the file was at least as long as the mapping when it was mapped, and this module
//! never shortens it: an access past the end of the file would kill the process (SIGBUS). This is
//! the edge's only `unsafe` code.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fd::AsFd;
use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Size of a counter file in bytes.
pub(crate) const FILE_BYTES: usize = 4096;
/// Size of a counter file's header in bytes.
pub(super) const HEADER_BYTES: usize = LINE_BYTES;
/// Number of counters in a file.
pub(super) const COUNTERS_MAX: usize = FILE_BYTES / LINE_BYTES - 1;
/// Size of a cache line in bytes.
const LINE_BYTES: usize = 64;

#[repr(C, align(64))]
struct Line(AtomicU64);

const _: () = assert!(size_of::<Line>() == LINE_BYTES && FILE_BYTES.is_multiple_of(LINE_BYTES));

/// Counters in a file or in anonymous memory.
#[derive(Debug)]
pub(super) struct Counters {
    /// The mapping, [`FILE_BYTES`] long.
    base: NonNull<Line>,
}

// SAFETY: the mapping lives as long as the value, is not tied to a thread, and is accessed only
// through atomics.
unsafe impl Send for Counters {}
// SAFETY: as above.
unsafe impl Sync for Counters {}

impl Counters {
    /// Maps the counters in `file`, which must not be shortened while they are in use.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is too short or cannot be mapped.
    pub(super) fn in_file(file: impl AsFd) -> io::Result<Self> {
        if u64::try_from(fstat(&file)?.st_size).unwrap_or_default() < FILE_BYTES as u64 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "counter file is too short"));
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel.
        let base = unsafe { mmap(std::ptr::null_mut(), FILE_BYTES, access, MapFlags::SHARED, &file, 0)? };
        Self::at(base)
    }

    /// Creates counters in anonymous memory, which is lost with the process.
    ///
    /// # Errors
    ///
    /// Returns an error if memory cannot be mapped.
    pub(super) fn in_memory() -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), FILE_BYTES, access, MapFlags::PRIVATE)? };
        Self::at(base)
    }

    fn at(base: *mut std::ffi::c_void) -> io::Result<Self> {
        Ok(Self { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)? })
    }

    /// Returns counter `number`, modulo [`COUNTERS_MAX`].
    pub(super) fn counter(&self, number: usize) -> &AtomicU64 {
        let line = 1 + number % COUNTERS_MAX;
        // SAFETY: the line is inside the mapping, which lives as long as `self` and is
        // page-aligned. Any bytes are a valid u64. Atomics synchronise processes that share a
        // mapping just as they do threads.
        unsafe { &self.base.add(line).as_ref().0 }
    }

    /// Returns the sum of all counters.
    pub(super) fn sum(&self) -> u64 {
        (0..COUNTERS_MAX).fold(0, |sum, number| sum.wrapping_add(self.counter(number).load(Relaxed)))
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: this is the only unmapping, and no reference to a counter outlives the value.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), FILE_BYTES) };
    }
}

/// Adds up the counters in the bytes of a counter file.
pub(super) fn sum_of(file: &[u8; FILE_BYTES]) -> u64 {
    let (lines, _) = file.as_chunks::<LINE_BYTES>();
    let counters = lines.iter().skip(1).filter_map(|line| line.first_chunk());
    counters.fold(0, |sum, counter| sum.wrapping_add(u64::from_ne_bytes(*counter)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    fn file(bytes: usize) -> File {
        let mut file = File::from(memfd_create(c"counters", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(&vec![0; bytes]).unwrap();
        file
    }

    #[test]
    fn file_keeps_counts_and_header_is_untouched() {
        let mut file = file(FILE_BYTES);
        let counters = Counters::in_file(&file).unwrap();
        for number in 0..2 * COUNTERS_MAX {
            counters.counter(number).fetch_add(number as u64, Relaxed);
        }
        let expected = (0..2 * COUNTERS_MAX as u64).sum::<u64>();
        assert_eq!(counters.sum(), expected);
        let mut bytes = Vec::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let bytes: [u8; FILE_BYTES] = bytes.try_into().unwrap();
        assert_eq!((sum_of(&bytes), &bytes[..HEADER_BYTES]), (expected, &[0; HEADER_BYTES][..]));

        drop(counters);
        assert_eq!(Counters::in_file(&file).unwrap().sum(), expected);
        assert_eq!(Counters::in_memory().unwrap().sum(), 0);
    }

    #[test]
    fn short_file_is_refused() {
        for bytes in [0, 1, FILE_BYTES - 1] {
            let refused = Counters::in_file(file(bytes)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
