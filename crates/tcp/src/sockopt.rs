//! Wrappers around `getsockopt(2)`, `setsockopt(2)`, and `sendmsg(2)` with an option for one call:
//! the only unsafe calls in this crate.

#![expect(
    unsafe_code,
    reason = "safe wrappers lack these options, or allocate to read TCP_CONGESTION and to send"
)]

use std::io::{self, IoSlice};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::net::SendFlags;

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

/// Room for one control message with a `u32`, with the alignment of the message's header.
#[repr(C)]
struct OneMessage {
    header: libc::cmsghdr,
    value: u32,
}

/// Sends bytes with a socket option that applies to this call only. Returns the number of bytes
/// accepted.
pub(crate) fn send_with(
    fd: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    flags: SendFlags,
    (level, name): SocketOption,
    value: u32,
) -> io::Result<usize> {
    // SAFETY: `cmsghdr` and `msghdr` consist of integers and pointers, for which zero is valid.
    let (mut control, mut message): (OneMessage, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
    control.header.cmsg_len = size_of::<libc::cmsghdr>() + size_of::<u32>();
    (control.header.cmsg_level, control.header.cmsg_type) = (level, name);
    control.value = value;
    // `IoSlice` has the layout of `iovec`. The kernel does not write to it.
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len();
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<OneMessage>();
    let flags = flags.bits().cast_signed();
    // SAFETY: `fd`, `parts` and `control` are borrowed or owned during the call, and `message`
    // describes them. The kernel only reads them and does not retain the pointers.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn length(bytes: &[u8]) -> libc::socklen_t {
    libc::socklen_t::try_from(bytes.len()).expect("an option's buffer is a few hundred bytes")
}
