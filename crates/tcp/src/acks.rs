//! Acknowledgement timestamps: when a client's kernel acknowledged a byte of a TCP connection.
//!
//! A successful write only means that the kernel has queued the bytes. To learn when they arrived,
//! a sender [`enable`]s timestamps once, [`send`]s the last bytes of a response with a timestamp,
//! and [`collect`]s it from the socket's error queue. The kernel stamps the last byte of the call
//! when the cumulative acknowledgement covers it. `sendfile` cannot request a timestamp for one
//! call, so a sender leaves the last byte of a file to [`send`].
//!
//! A timestamp in the error queue makes the socket report `EPOLLERR` until it is collected.
//!
//! Source: the kernel's `Documentation/networking/timestamping.rst` and `net/ipv4/tcp_input.c`
//! (`tcp_ack_tstamp`).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use rustix::net::SendFlags;

use crate::sockopt::{self, SocketOption};

const TIMESTAMPING: SocketOption = (libc::SOL_SOCKET, libc::SO_TIMESTAMPING);

/// Reports software timestamps without the packet, and numbers bytes from the next byte written.
/// Byte numbers that start at the next byte need Linux 6.2 (`OPT_ID_TCP`); older kernels refuse the
/// unknown flag.
const REPORT: u32 = libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_ID
    | libc::SOF_TIMESTAMPING_OPT_TSONLY
    | OPT_ID_TCP;
/// `SOF_TIMESTAMPING_OPT_ID_TCP`, which libc lacks.
const OPT_ID_TCP: u32 = 1 << 16;
/// `SCM_TSTAMP_ACK` of linux/errqueue.h: the timestamp belongs to an acknowledgement.
const SCM_TSTAMP_ACK: u32 = 2;
/// Requests a timestamp of the acknowledgement.
const TX_ACK: u32 = libc::SOF_TIMESTAMPING_TX_ACK;
/// Size of the control messages of one timestamp: `scm_timestamping` (48 bytes) and
/// `sock_extended_err` with an IPv6 address (44 bytes), each with its header, and some room.
const CONTROL_BYTES: usize = 256;

/// Control messages, with the alignment of their headers.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// The acknowledgement of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Number of the byte: how many bytes were written between [`enable`] and this byte, modulo
    /// 2³².
    pub byte: u32,
    /// When the acknowledgement arrived, by the system's clock.
    pub at: SystemTime,
}

/// Prepares a socket for timestamps, and numbers its bytes: byte 0 is the next byte written.
///
/// # Errors
///
/// Returns the system call's error: `EINVAL` on kernels before 6.2 and on unconnected sockets.
pub fn enable(fd: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set(fd, TIMESTAMPING, &REPORT.to_ne_bytes())
}

/// Sends bytes like `sendmsg(2)`, with a timestamp for the last byte that the socket accepts.
/// Returns the number of bytes accepted. [`enable`] must have succeeded before.
///
/// # Errors
///
/// Returns the system call's error.
pub fn send(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
    sockopt::send_with(fd, parts, flags, TIMESTAMPING, TX_ACK)
}

/// Removes the oldest timestamp from the socket's error queue; `None` if the queue is empty.
///
/// # Errors
///
/// Returns the system call's error.
pub fn collect(fd: BorrowedFd<'_>) -> io::Result<Option<Acknowledgement>> {
    let mut control = Control([0; CONTROL_BYTES]);
    loop {
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let mut no_bytes: [IoSliceMut<'_>; 0] = [];
        let message = match recvmsg::<()>(fd.as_raw_fd(), &mut no_bytes, Some(&mut control.0), flags) {
            Ok(message) => message,
            Err(nix::Error::EAGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (mut byte, mut at) = (None, None);
        for part in message.cmsgs()? {
            match part {
                ControlMessageOwned::ScmTimestampsns(stamps) => at = unix_time(stamps.system),
                ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _)
                    if error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING
                        && error.ee_info == SCM_TSTAMP_ACK =>
                {
                    byte = Some(error.ee_data);
                }
                _ => {}
            }
        }
        // Any other message, such as an ICMP error, is discarded.
        if let (Some(byte), Some(at)) = (byte, at) {
            return Ok(Some(Acknowledgement { byte, at }));
        }
    }
}

fn unix_time(stamp: nix::sys::time::TimeSpec) -> Option<SystemTime> {
    let (seconds, nanoseconds) = (stamp.tv_sec().try_into().ok()?, stamp.tv_nsec().try_into().ok()?);
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::thread;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn connected(listen: &str, to: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(listen).unwrap();
        let client = TcpStream::connect((to, listener.local_addr().unwrap().port())).unwrap();
        (listener.accept().unwrap().0, client)
    }

    /// Waits for `EPOLLERR`, then collects one timestamp.
    fn next(socket: &TcpStream) -> Acknowledgement {
        loop {
            if let Some(acknowledgement) = collect(socket.as_fd()).unwrap() {
                return acknowledgement;
            }
            poll(&mut [PollFd::new(socket, PollFlags::ERR)], None).unwrap();
        }
    }

    #[test]
    fn last_byte_of_a_requested_write_is_stamped_for_both_families() {
        for (listen, to) in [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::]:0", "::1")] {
            let (mut socket, mut client) = connected(listen, to);
            socket.write_all(b"before").unwrap();
            enable(socket.as_fd()).unwrap();
            socket.write_all(&[1; 1000]).unwrap();
            let before = SystemTime::now();
            let parts = [IoSlice::new(&[2; 300]), IoSlice::new(&[2; 200])];
            assert_eq!(send(socket.as_fd(), &parts, SendFlags::NOSIGNAL).unwrap(), 500);
            client.read_exact(&mut [0; 1506]).unwrap();
            let stamp = next(&socket);
            assert_eq!(stamp.byte, 1499, "{listen} {to}");
            assert!(before <= stamp.at && stamp.at <= SystemTime::now());
            socket.write_all(&[3; 10]).unwrap();
            client.read_exact(&mut [0; 10]).unwrap();
            assert_eq!(collect(socket.as_fd()).unwrap(), None);
        }
    }

    /// The client reads late, so the acknowledgement is late although the write returned at once.
    #[test]
    fn timestamp_is_of_the_arrival_and_not_of_the_write() {
        const BYTES: usize = 300_000;
        let (mut socket, mut client) = connected("127.0.0.1:0", "127.0.0.1");
        rustix::net::sockopt::set_socket_recv_buffer_size(&client, 16 << 10).unwrap();
        enable(socket.as_fd()).unwrap();
        socket.write_all(&[0; BYTES - 1]).unwrap();
        assert_eq!(send(socket.as_fd(), &[IoSlice::new(&[0])], SendFlags::NOSIGNAL).unwrap(), 1);
        let written = SystemTime::now();
        let reader = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            client.read_exact(&mut vec![0; BYTES]).unwrap();
            client
        });
        let last = next(&socket);
        assert_eq!(last.byte as usize, BYTES - 1);
        assert!(last.at > written + Duration::from_millis(40), "{last:?}, written at {written:?}");
        drop(reader.join().unwrap());
    }

    #[test]
    fn unconnected_socket_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(enable(listener.as_fd()).is_err());
    }
}
