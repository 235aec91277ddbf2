//! `getsockopt(2)` and `setsockopt(2)` with bytes that the caller owns: the two unsafe calls of this crate.

#![expect(
    unsafe_code,
    reason = "no safe wrapper has these options, or reads TCP_CONGESTION without allocating"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// An option of a socket: its level and its number at that level.
pub(crate) type SocketOption = (libc::c_int, libc::c_int);

/// Reads an option of `fd` into `into` and returns the part that the kernel wrote.
///
/// The kernel writes at most `into.len()` bytes: a shorter answer is an older kernel, a full one may be cut.
pub(crate) fn get<'a>(
    fd: BorrowedFd<'_>,
    (level, name): SocketOption,
    into: &'a mut [u8],
) -> io::Result<&'a [u8]> {
    let mut len = length(into);
    // SAFETY: `fd` is open for the call because it is borrowed. The pointer and `len` describe `into`, which
    // is initialised, writable, and borrowed mutably for the call; the kernel writes at most `len` bytes of
    // it and stores in `len` how many it wrote. Neither pointer is kept.
    let status =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, into.as_mut_ptr().cast(), &raw mut len) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(&into[..len as usize])
}

/// Sets an option of `fd` to the bytes of `value`.
pub(crate) fn set(fd: BorrowedFd<'_>, (level, name): SocketOption, value: &[u8]) -> io::Result<()> {
    // SAFETY: `fd` is open for the call because it is borrowed. The pointer and the length describe `value`, which is
    // initialised and borrowed for the call; the kernel only reads it and does not keep the pointer.
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
