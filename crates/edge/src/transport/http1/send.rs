//! Socket writes: small content is sent together with the head, large or on-disk content by
//! `sendfile`.
//!
//! A write waits only for the client to accept bytes, and at most for the stall limit, so a stalled
//! client ties up a connection but never a thread.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use rustix::fd::BorrowedFd;
use rustix::net::SendFlags;
use thalweg_cache::Piece;
use thalweg_http::Fields;
use thalweg_http::chunked::{CHUNK_END, CONTENT_END, SIZE_LINE_BYTES, encode_size};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Minimum content size for `sendfile`, in bytes. For smaller content, one `writev` together with
/// the head costs less than a second system call.
pub(super) const SENDFILE_BYTES_MIN: usize = 32 * 1024;
/// Minimum size in bytes of a piece to send corked. Without a cork, an acknowledgement that arrives
/// while the kernel is still reading the file's pages makes it send a short tail as a separate
/// packet, which increases the number of packets by half.
const CORK_BYTES_MIN: usize = 64 * 1024;
/// Maximum total size, in bytes, of head and content joined in a buffer. Compared with `writev`, a
/// single `send` saves 4 % of the cost of a 1 KB request.
const JOINED_BYTES_MAX: usize = 4096;

thread_local! {
    /// Buffer for joining a head and small content.
    static JOINED: RefCell<Vec<u8>> = RefCell::default();
}

/// Source of a piece's bytes.
enum SendFrom<'a> {
    Bytes(&'a [u8]),
    /// A file, and the offset to read from.
    File(BorrowedFd<'a>, u64),
}

fn source_of(piece: &Piece) -> SendFrom<'_> {
    match (piece.as_slice(), piece.in_file()) {
        (Some(bytes), None) => SendFrom::Bytes(bytes),
        (Some(bytes), Some(_)) if piece.len() < SENDFILE_BYTES_MIN => SendFrom::Bytes(bytes),
        (_, Some((file, offset))) => SendFrom::File(file, offset),
        (None, None) => unreachable!("a piece is in memory or in a file"),
    }
}

/// Sending half of a client connection.
#[derive(Debug)]
pub(super) struct Sender<'a> {
    stream: &'a TcpStream,
    stall: Duration,
    first_byte: Option<Instant>,
    /// Whether the socket is corked, so that the kernel sends full packets only.
    corked: bool,
    /// Whether the connection has waited for the client since the piece was last verified.
    has_waited: bool,
}

impl<'a> Sender<'a> {
    pub(super) fn new(stream: &'a TcpStream, stall: Duration) -> Self {
        Self { stream, stall, first_byte: None, corked: false, has_waited: false }
    }

    /// Returns when the kernel accepted the first byte.
    pub(super) fn first_byte(&self) -> Option<Instant> {
        self.first_byte
    }

    /// Sends a head together with the first piece of content of known length.
    pub(super) async fn head_and_piece(&mut self, head: &[u8], piece: &Piece) -> io::Result<()> {
        if let SendFrom::Bytes(bytes) = source_of(piece) {
            let sent = self.try_joined(head, bytes)?;
            let of_head = sent.min(head.len());
            return self.parts([&head[of_head..], &bytes[sent - of_head..]]).await;
        }
        self.cork_for(piece);
        // The kernel holds the head back until the content follows.
        self.bytes(head, true).await?;
        self.piece(piece).await
    }

    /// Removes the cork. Must be called before waiting for content and at the end of the response.
    pub(super) fn flush(&mut self) {
        if self.corked {
            self.corked = false;
            self.set_cork(false);
        }
    }

    fn cork_for(&mut self, piece: &Piece) {
        if !self.corked && piece.len() >= CORK_BYTES_MIN && piece.in_file().is_some() {
            self.corked = true;
            self.set_cork(true);
        }
    }

    /// Sets or clears the cork. Corking only saves packets, so failures are ignored; a broken
    /// socket fails at the next write.
    fn set_cork(&self, on: bool) {
        let _ = rustix::net::sockopt::set_tcp_cork(self.stream, on);
    }

    /// Sends content of known length.
    pub(super) async fn piece(&mut self, piece: &Piece) -> io::Result<()> {
        self.cork_for(piece);
        match source_of(piece) {
            SendFrom::File(file, offset) => self.file(piece, file, offset).await,
            SendFrom::Bytes(bytes) => self.bytes(bytes, false).await,
        }
    }

    /// Sends content as one chunk, preceded by `head`, which is empty for all but the first chunk.
    /// If `last`, appends the terminating chunk.
    pub(super) async fn chunk(&mut self, head: &[u8], piece: &Piece, last: bool) -> io::Result<()> {
        let end = if last { CONTENT_END } else { CHUNK_END };
        let mut buffer = [0; SIZE_LINE_BYTES];
        let size = encode_size(piece.len() as u64, &mut buffer);
        self.cork_for(piece);
        match source_of(piece) {
            SendFrom::File(file, offset) => {
                self.bytes(head, true).await?;
                self.bytes(size, true).await?;
                self.file(piece, file, offset).await?;
                self.bytes(end, false).await
            }
            SendFrom::Bytes(bytes) => self.parts([head, size, bytes, end]).await,
        }
    }

    /// Sends the last chunk and the trailer section.
    pub(super) async fn trailer(&mut self, trailer: &Fields) -> io::Result<()> {
        self.parts([b"0\r\n", trailer.text(), CHUNK_END]).await
    }

    pub(super) async fn bytes(&mut self, mut bytes: &[u8], more: bool) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
        while !bytes.is_empty() {
            let sent = self.io(|stream| Ok(rustix::net::send(stream, bytes, flags)?)).await?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Sends head and content in one call if they are short. Returns the number of bytes accepted
    /// by the socket.
    fn try_joined(&mut self, head: &[u8], bytes: &[u8]) -> io::Result<usize> {
        if head.len() + bytes.len() > JOINED_BYTES_MAX {
            return Ok(0);
        }
        let sent = JOINED.with_borrow_mut(|joined| {
            joined.clear();
            joined.extend_from_slice(head);
            joined.extend_from_slice(bytes);
            self.attempt(|stream| Ok(rustix::net::send(stream, joined, SendFlags::NOSIGNAL)?))
        })?;
        Ok(sent.unwrap_or(0))
    }

    async fn parts<const N: usize>(&mut self, parts: [&[u8]; N]) -> io::Result<()> {
        let mut slices = parts.map(IoSlice::new);
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            let sent = self.io(|stream| stream.try_write_vectored(left)).await?;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut left, sent);
        }
        Ok(())
    }

    async fn file(&mut self, piece: &Piece, file: BorrowedFd<'_>, mut offset: u64) -> io::Result<()> {
        let unreadable = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let (mut sent, mut ready) = (0, piece.len());
        while sent < piece.len() {
            // Pages may have left the page cache during a wait, and this thread must not block on
            // the disk.
            if std::mem::take(&mut self.has_waited) || sent == ready {
                ready = sent + piece.ready(sent).await.map_err(|_| unreadable())?;
            }
            let attempt =
                |stream: &TcpStream| Ok(rustix::fs::sendfile(stream, file, Some(&mut offset), ready - sent)?);
            match self.attempt(attempt) {
                Ok(None) => self.writable().await?,
                // Disk fault: the file is truncated or cannot be read.
                Ok(Some(0)) => {
                    piece.doubt();
                    return Err(unreadable());
                }
                Ok(Some(more)) => sent += more,
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                    piece.doubt();
                    return Err(unreadable());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Retries `attempt`, waiting for the client whenever the socket buffer is full.
    async fn io(&mut self, mut attempt: impl FnMut(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match self.attempt(&mut attempt)? {
                Some(sent) => return Ok(sent),
                None => self.writable().await?,
            }
        }
    }

    /// Calls `attempt` once. Returns `None` if the socket buffer is full.
    fn attempt(
        &mut self,
        attempt: impl FnOnce(&TcpStream) -> io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        // Take the time before the attempt, because the client may receive the byte before this
        // thread runs again.
        let begun = self.first_byte.is_none().then(Instant::now);
        match self.stream.try_io(Interest::WRITABLE, || attempt(self.stream)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Ok(sent) => {
                if sent > 0 {
                    self.first_byte = self.first_byte.or(begun);
                }
                Ok(Some(sent))
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until the socket is writable again.
    async fn writable(&mut self) -> io::Result<()> {
        self.has_waited = true;
        let stalled = |_| io::Error::from(io::ErrorKind::TimedOut);
        tokio::time::timeout(self.stall, self.stream.writable()).await.map_err(stalled)?
    }
}

#[cfg(test)]
mod tests;
