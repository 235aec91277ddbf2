//! `getsockopt(2)` into bytes that the caller owns: the one unsafe call of this crate.

#![expect(unsafe_code, reason = "no safe wrapper reads TCP_INFO, or TCP_CONGESTION without allocating")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads a TCP option of `fd` into `into` and returns the part that the kernel wrote.
///
/// The kernel writes at most `into.len()` bytes: a shorter answer is an older kernel, a full one may be cut.
pub(crate) fn tcp_option<'a>(
    fd: BorrowedFd<'_>,
    option: libc::c_int,
    into: &'a mut [u8],
) -> io::Result<&'a [u8]> {
    let mut len = libc::socklen_t::try_from(into.len()).expect("an option's buffer is a few hundred bytes");
    // SAFETY: `fd` is open for the call because it is borrowed. The pointer and `len` describe `into`, which
    // is initialised, writable, and borrowed mutably for the call; the kernel writes at most `len` bytes of
    // it and stores in `len` how many it wrote. Neither pointer is kept.
    let status = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, option, into.as_mut_ptr().cast(), &raw mut len)
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(&into[..len as usize])
}
