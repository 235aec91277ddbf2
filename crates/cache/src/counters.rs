//! Counters that outlive their process: a page of a file, mapped and shared, so that a kill leaves them with the kernel.
//!
//! ```text
//! 64 bytes   what whoever made the file wrote into it
//! 63 × 64    a counter each, u64, as this machine orders bytes; the rest of its line is empty
//! ```
//!
//! A line of the CPU's cache holds one counter, so that threads with a counter each do not wait for each other.
//!
//! This is the counters' `unsafe`. **Invariant:** the file was as long as the mapping when it was mapped, and nothing here makes it
//! shorter: a page beyond its end would end the process (SIGBUS).
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fd::AsFd;
use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// What a file of counters has.
pub const FILE_BYTES: usize = 4096;
/// What of it is for whoever made the file.
pub const HEADER_BYTES: usize = LINE_BYTES;
/// Counters of a file.
pub const COUNTERS_MAX: usize = FILE_BYTES / LINE_BYTES - 1;
/// A line of the CPU's cache.
const LINE_BYTES: usize = 64;

#[repr(C, align(64))]
struct Line(AtomicU64);

const _: () = assert!(size_of::<Line>() == LINE_BYTES && FILE_BYTES.is_multiple_of(LINE_BYTES));

/// Counters in a file, or in memory alone.
#[derive(Debug)]
pub struct Counters {
    /// [`FILE_BYTES`] of them.
    base: NonNull<Line>,
}

// SAFETY: the mapping lives as long as the value and is not tied to a thread; it is read and written by atomics alone.
unsafe impl Send for Counters {}
// SAFETY: as above.
unsafe impl Sync for Counters {}

impl Counters {
    /// Those of a file, which nobody may shorten while they are used.
    ///
    /// # Errors
    /// When it is too short, or cannot be mapped.
    pub fn in_file(file: impl AsFd) -> io::Result<Self> {
        if u64::try_from(fstat(&file)?.st_size).unwrap_or_default() < FILE_BYTES as u64 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file of counters is too short"));
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(std::ptr::null_mut(), FILE_BYTES, access, MapFlags::SHARED, &file, 0)? };
        Self::at(base)
    }

    /// Those of this process alone.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn in_memory() -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), FILE_BYTES, access, MapFlags::PRIVATE)? };
        Self::at(base)
    }

    fn at(base: *mut std::ffi::c_void) -> io::Result<Self> {
        Ok(Self { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)? })
    }

    /// One of [`COUNTERS_MAX`]; above that they are shared.
    pub fn counter(&self, number: usize) -> &AtomicU64 {
        let line = 1 + number % COUNTERS_MAX;
        // SAFETY: the line lies in the mapping, which lives as long as `self`, and is aligned as a page is. Each content is a
        // valid u64, and other processes that have the file mapped are as other threads to an atomic.
        unsafe { &self.base.add(line).as_ref().0 }
    }

    /// All of them together.
    pub fn sum(&self) -> u64 {
        (0..COUNTERS_MAX).fold(0, |sum, number| sum.wrapping_add(self.counter(number).load(Relaxed)))
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: the mapping made at the beginning, unmapped once; no reference to a counter outlives the value.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), FILE_BYTES) };
    }
}

/// What the counters of a file come to together, from its bytes.
pub fn sum_of(file: &[u8; FILE_BYTES]) -> u64 {
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
    fn the_file_has_what_was_counted_and_its_header_is_left_alone() {
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
    fn a_file_that_is_too_short_is_not_mapped() {
        for bytes in [0, 1, FILE_BYTES - 1] {
            let refused = Counters::in_file(file(bytes)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
