//! Checks which bytes of a file are in the page cache.
//!
//! The check loads no pages. `preadv2` with `RWF_NOWAIT` is unsuitable: it starts to read missing
//! bytes, and returns them if the disk is fast enough. Instead, mincore(2) reports the resident
//! pages of a mapping that exists only for this purpose.
//!
//! This module contains the disk tier's `unsafe` code. **Invariant:** nothing is read or written
//! through the mapping, so truncating the file is harmless. For another user's file that this
//! process may not write, the kernel reports every page as resident.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use rustix::fd::AsFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Smallest page size of any supported machine.
const PAGE_BYTES_MIN: usize = 4096;
/// Maximum number of pages checked per system call.
const PAGES_MAX: usize = 64;

/// A mapping of a file, used to check which pages are resident.
#[derive(Debug)]
pub(super) struct Residency {
    base: NonNull<u8>,
    length: usize,
    page_bytes: usize,
}

// SAFETY: the mapping lives as long as the value, is not tied to a thread, and is never read or
// written through.
unsafe impl Send for Residency {}
// SAFETY: as above.
unsafe impl Sync for Residency {}

impl Residency {
    /// Maps the first `length` bytes of a file; `length` must be at least one.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be mapped, usually because the process has too many
    /// mappings (`vm.max_map_count`).
    pub(super) fn of(file: impl AsFd, length: u64) -> io::Result<Self> {
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
        // SAFETY: a new mapping at an address chosen by the kernel, which allows no access.
        let base =
            unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::empty(), MapFlags::SHARED, file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: sysconf only reads a system constant.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page_bytes = usize::try_from(page_bytes).unwrap_or(PAGE_BYTES_MIN).max(PAGE_BYTES_MIN);
        Ok(Self { base, length, page_bytes })
    }

    /// Returns whether all bytes of a range are resident; bytes past the end of the file are
    /// ignored.
    pub(super) fn has(&self, range: Range<u64>) -> bool {
        let within = |offset| usize::try_from(offset).map_or(self.length, |offset| offset.min(self.length));
        let (mut from, end) = (within(range.start) / self.page_bytes * self.page_bytes, within(range.end));
        let mut pages = [0; PAGES_MAX];
        while from < end {
            let length = (end - from).min(PAGES_MAX * self.page_bytes);
            // SAFETY: the range starts at a page of the mapping and ends within it, and `pages` has
            // a byte for each of its pages.
            let result =
                unsafe { libc::mincore(self.base.as_ptr().add(from).cast(), length, pages.as_mut_ptr()) };
            if result != 0 || pages[..length.div_ceil(self.page_bytes)].iter().any(|page| page & 1 == 0) {
                return false;
            }
            from += length;
        }
        true
    }
}

impl Drop for Residency {
    fn drop(&mut self) {
        // SAFETY: unmaps the mapping from `of`, once.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{Advice, fadvise};

    use super::*;
    use crate::disk::tests::Place;

    const LENGTH: u64 = 1_000_003;

    #[test]
    fn check_reports_resident_pages_and_loads_none() {
        let place = Place::new();
        std::fs::create_dir_all(place.path()).unwrap();
        let path = place.path().join("file");
        std::fs::write(&path, vec![7; LENGTH as usize]).unwrap();
        let file = File::open(&path).unwrap();
        let residency = Residency::of(&file, LENGTH).unwrap();
        assert!(residency.has(0..LENGTH) && residency.has(5..5) && residency.has(LENGTH - 1..LENGTH + 1));
        // Repeat the check, because a fast disk might hide a load.
        for _ in 0..200 {
            file.sync_all().unwrap();
            fadvise(&file, 0, None, Advice::Random).unwrap();
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            for range in [0..1, 0..LENGTH, 600_000..600_001, LENGTH - 1..LENGTH] {
                assert!(!residency.has(range.clone()), "{range:?}");
            }
        }
        file.read_exact_at(&mut [0; 10], 600_000).unwrap();
        assert!(residency.has(600_000..600_010));
        assert!(!residency.has(0..600_010) && !residency.has(600_000..LENGTH));
    }
}
