//! TCP stream from which the kernel can discard content.
//!
//! Discarding uses `recv(MSG_TRUNC)` (tcp(7)): the kernel frees the content without copying it. The
//! buffer passed to it is virtual memory that is never touched.

use std::io;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A connection without TLS.
#[derive(Debug)]
pub(super) struct Plain(pub(super) TcpStream);

impl Plain {
    /// Passes bytes to the kernel and returns the number of bytes accepted.
    pub(super) fn poll_send(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.0.poll_write_ready(context))?;
                }
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// Receives available bytes. With `MSG_TRUNC`, the bytes are discarded and only the buffer's
    /// length matters.
    pub(super) fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
        flags: RecvFlags,
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(taken) = self.try_receive(buffer, flags) {
                return Poll::Ready(taken);
            }
            ready!(self.0.poll_read_ready(context))?;
        }
    }

    /// Calls `recv` once. Returns `None` if it would block.
    fn try_receive(&self, buffer: &mut [u8], flags: RecvFlags) -> Option<io::Result<usize>> {
        let capacity = buffer.len();
        let mut taken = None;
        let done = self.0.try_io(Interest::READABLE, || {
            let length = recv(&self.0, &mut *buffer, flags)?.1;
            taken = Some(length);
            // Fewer bytes than requested mean that the socket is empty, so mark the socket as not
            // readable (epoll(7), question 9).
            if length > 0 && length < capacity { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match (taken, done) {
            (Some(length), _) => Some(Ok(length)),
            (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => None,
            (None, Err(error)) => Some(Err(error)),
            (None, Ok(())) => None,
        }
    }
}
