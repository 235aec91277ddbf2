//! The arena's bytes: one memfd, mapped once, read and written by offset.
//!
//! This module contains the memory store's `unsafe` code. [`crate::fill`] and [`crate::arena`]
//! uphold the contract that makes it sound: between two punches of its slab, a byte is written at
//! most once, by the writer that owns its run, and is read only after that write was published
//! under the `FillBuffer`'s lock.
#![allow(unsafe_code)]

/// Size of a slab in bytes: one huge page.
#[cfg(not(loom))]
pub const SLAB_BYTES: usize = 2 << 20;
/// Size of a slab in bytes, small enough for a model checker.
#[cfg(loom)]
pub const SLAB_BYTES: usize = 4;

#[cfg(not(loom))]
pub(crate) use memfd::Memory;
#[cfg(loom)]
pub(crate) use tracked::Memory;

#[cfg(not(loom))]
mod memfd {
    use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
    use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, fallocate, ftruncate, memfd_create, openat};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    };
    use std::io;
    use std::ptr::NonNull;

    use super::SLAB_BYTES;

    /// A shared mapping of a memfd, aligned to slabs so that a slab can be one huge page.
    #[derive(Debug)]
    pub(crate) struct Memory {
        file: OwnedFd,
        reserved: NonNull<u8>,
        reserved_len: usize,
        base: NonNull<u8>,
        len: usize,
    }

    // SAFETY: the mapping lives as long as the value and is not tied to a thread. The contract in
    // the module's documentation defines who may access which byte when.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        /// Maps `slabs` slabs. No page is resident until it is written.
        pub(crate) fn new(slabs: usize) -> io::Result<Self> {
            let len = slabs.checked_mul(SLAB_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
            let file = match huge_file(len) {
                Ok(file) => file,
                Err(_) => memfd_create(c"thalweg-content", MemfdFlags::CLOEXEC)?,
            };
            ftruncate(&file, len as u64)?;
            let reserved_len = len + SLAB_BYTES;
            // SAFETY: a fresh anonymous reservation at an address chosen by the kernel.
            let reserved = unsafe {
                mmap_anonymous(std::ptr::null_mut(), reserved_len, ProtFlags::empty(), MapFlags::PRIVATE)?
            };
            let base = reserved.wrapping_byte_add(reserved.align_offset(SLAB_BYTES));
            // SAFETY: replaces part of the new reservation, to which no other code has access.
            let mapped = unsafe {
                mmap(
                    base,
                    len,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
                    &file,
                    0,
                )
            };
            let (Some(reserved), Ok(Some(base))) =
                (NonNull::new(reserved.cast::<u8>()), mapped.map(|base| NonNull::new(base.cast::<u8>())))
            else {
                // SAFETY: unmaps the new reservation, to which no other code has access.
                let _ = unsafe { munmap(reserved, reserved_len) };
                return Err(mapped.err().map_or(io::ErrorKind::OutOfMemory.into(), Into::into));
            };
            // Huge pages save up to a quarter of the CPU time for 5 MB responses. A failure is
            // ignored, because the advice is only a hint.
            // SAFETY: applies to the new mapping; this advice changes no content.
            let _ = unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage) };
            Ok(Self { file, reserved, reserved_len, base, len })
        }

        pub(crate) fn file(&self) -> BorrowedFd<'_> {
            self.file.as_fd()
        }

        /// # Safety
        ///
        /// The range `at..at + bytes.len()` must belong to the caller's run and must not have been
        /// published.
        pub(crate) unsafe fn write(&self, at: u64, bytes: &[u8]) {
            let at = usize::try_from(at).expect("mapping offsets fit in usize");
            assert!(at <= self.len && bytes.len() <= self.len - at, "write past the end of the arena");
            // SAFETY: in bounds by the assertion; exclusive by this function's contract.
            unsafe { self.base.add(at).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        }

        /// # Safety
        ///
        /// The bytes must have been published, and their run must be kept alive as long as the
        /// slice is used.
        pub(crate) unsafe fn read(&self, at: u64, len: usize) -> &[u8] {
            let at = usize::try_from(at).expect("mapping offsets fit in usize");
            assert!(at <= self.len && len <= self.len - at, "read past the end of the arena");
            // SAFETY: in bounds by the assertion; published bytes do not change while their run is
            // held.
            unsafe { std::slice::from_raw_parts(self.base.add(at).as_ptr(), len) }
        }

        /// Returns a slab's pages to the system. `sendfile` does not copy, so pages that a socket
        /// is still sending survive until the socket releases them; later writes use new pages.
        /// Always punches a whole slab, because the kernel *zeroes in place* a hole in part of a
        /// huge page, even if a socket is still sending it.
        pub(crate) fn punch(&self, slab: usize) -> io::Result<()> {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(fallocate(&self.file, flags, (slab * SLAB_BYTES) as u64, SLAB_BYTES as u64)?)
        }
    }

    /// Creates an unnamed file in a private tmpfs of huge pages, regardless of
    /// `transparent_hugepage/shmem_enabled` (`never` by default). Needs CAP_SYS_ADMIN and Linux
    /// 5.2; the mount lives as long as the file.
    fn huge_file(len: usize) -> io::Result<OwnedFd> {
        let tmpfs = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&tmpfs, c"huge", c"always")?;
        fsconfig_set_string(&tmpfs, c"mode", c"0700")?;
        fsconfig_set_string(&tmpfs, c"size", (len + SLAB_BYTES).to_string())?;
        fsconfig_create(&tmpfs)?;
        let mount = fsmount(&tmpfs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(openat(&mount, c".", flags, Mode::RUSR | Mode::WUSR)?)
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: unmaps the reservation from `new`, once. Every run keeps the arena alive, so
            // no run is left.
            let _ = unsafe { munmap(self.reserved.as_ptr().cast(), self.reserved_len) };
        }
    }
}

#[cfg(loom)]
mod tracked {
    //! The arena's bytes under loom: the same contract, on cells in which loom detects every race.
    use super::SLAB_BYTES;
    use loom::cell::UnsafeCell;
    use std::io;

    pub(crate) struct Memory {
        cells: Vec<UnsafeCell<u8>>,
    }

    // SAFETY: loom reports any access that violates the contract.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl std::fmt::Debug for Memory {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Memory")
        }
    }

    impl Memory {
        pub(crate) fn new(slabs: usize) -> io::Result<Self> {
            Ok(Self { cells: (0..slabs * SLAB_BYTES).map(|_| UnsafeCell::new(0)).collect() })
        }

        pub(crate) unsafe fn write(&self, at: u64, bytes: &[u8]) {
            for (cell, byte) in self.cells[at as usize..].iter().zip(bytes) {
                // SAFETY: loom checks that no other thread accesses the cell.
                cell.with_mut(|cell| unsafe { *cell = *byte });
            }
        }

        pub(crate) fn copy(&self, at: u64, len: usize) -> Vec<u8> {
            let cells = &self.cells[at as usize..at as usize + len];
            // SAFETY: loom checks that no other thread writes the cell.
            cells.iter().map(|cell| cell.with(|cell| unsafe { *cell })).collect()
        }

        pub(crate) fn punch(&self, slab: usize) -> io::Result<()> {
            for cell in &self.cells[slab * SLAB_BYTES..(slab + 1) * SLAB_BYTES] {
                // SAFETY: loom checks that no other thread accesses the cell.
                cell.with_mut(|cell| unsafe { *cell = 0 });
            }
            Ok(())
        }
    }
}
