//! Wrappers around `getsockopt(2)` and `setsockopt(2)`, the only unsafe calls in this crate.

#![expect(
    unsafe_code,
    reason = "safe wrappers lack these options, or allocate a string to read TCP_CONGESTION"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A socket option: its level and its number at that level.
pub(crate) type SocketOption = (libc::c_int, libc::c_int);

/// Reads a socket option of `fd` into `into` and returns the part written by the kernel.
///
/// A result shorter than `into` comes from an older kernel. A result that fills `into` may be
/// truncated.
pub(crate) fn get<'a>(
    fd: BorrowedFd<'_>,
    (level, name): SocketOption,
    into: &'a mut [u8],
) -> io::Result<&'a [u8]> {
    let mut len = length(into);
    // SAFETY: `fd` is borrowed, so it stays open during the call. The pointer and `len` describe
    // `into`, which is initialised, writable, and mutably borrowed during the call. The kernel
    // writes at most `len` bytes, stores their number in `len`, and retains neither pointer.
    let status =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, into.as_mut_ptr().cast(), &raw mut len) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(&into[..len as usize])
}

/// Sets a socket option of `fd` to `value`.
pub(crate) fn set(fd: BorrowedFd<'_>, (level, name): SocketOption, value: &[u8]) -> io::Result<()> {
    // SAFETY: `fd` is borrowed, so it stays open during the call. The pointer and the length
    // describe `value`, which is initialised and borrowed during the call. The kernel only reads
    // `value` and does not retain the pointer.
    let status =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), length(value)) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn length(bytes: &[u8]) -> libc::socklen_t {
    libc::socklen_t::try_from(bytes.len()).expect("an option's buffer is a few hundred bytes")
}
