//! Onto the socket: small content with its head in one `writev`, large content, and what lies on disk, by `sendfile`.
//!
//! Every wait is for the client to take something and ends after the stall limit: a client that takes nothing
//! costs a connection, never a thread.

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

/// From this size on content goes by `sendfile`. Below, copying it beside its head into one `writev` costs less
/// than a second system call.
pub(crate) const SENDFILE_BYTES_MIN: usize = 32 * 1024;
/// From this size on a piece is sent corked. An acknowledgement that comes while the kernel still takes pages from
/// the file would else send the tail, however short, as a packet of its own: half as many packets again.
const CORK_BYTES_MIN: usize = 64 * 1024;
/// A head and content of so many bytes together are joined in a buffer: one `send` of it costs less than the `writev` of
/// both, by 4 % of a request for 1 KB.
const JOINED_BYTES_MAX: usize = 4096;
/// The most content of one chunk of the chunked coding.
pub(crate) const CHUNK_BYTES_MAX: usize = 1 << 20;

thread_local! {
    /// Where a head and small content are joined.
    static JOINED: RefCell<Vec<u8>> = RefCell::default();
}

/// How a piece goes out.
enum Way<'a> {
    Bytes(&'a [u8]),
    /// From this offset of a file.
    File(BorrowedFd<'a>, u64),
}

fn way(piece: &Piece) -> Way<'_> {
    match (piece.as_slice(), piece.in_file()) {
        (Some(bytes), None) => Way::Bytes(bytes),
        (Some(bytes), Some(_)) if piece.len() < SENDFILE_BYTES_MIN => Way::Bytes(bytes),
        (_, Some((file, offset))) => Way::File(file, offset),
        (None, None) => unreachable!("a piece lies in memory or in a file"),
    }
}

/// The sending half of a client's connection.
#[derive(Debug)]
pub(crate) struct Sender<'a> {
    stream: &'a TcpStream,
    stall: Duration,
    first_byte: Option<Instant>,
    /// Only whole packets leave.
    corked: bool,
    /// There was a wait since a piece was last looked at.
    has_waited: bool,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(stream: &'a TcpStream, stall: Duration) -> Self {
        Self { stream, stall, first_byte: None, corked: false, has_waited: false }
    }

    /// When the first byte was given to the kernel.
    pub(crate) fn first_byte(&self) -> Option<Instant> {
        self.first_byte
    }

    /// A head alone. With `more` it waits in the kernel for the content that follows at once.
    pub(crate) async fn head(&mut self, head: &[u8], more: bool) -> io::Result<()> {
        self.bytes(head, more).await
    }

    /// A head with the first of its content, of a known length.
    pub(crate) async fn head_and_piece(&mut self, head: &[u8], piece: &Piece) -> io::Result<()> {
        if let Way::Bytes(bytes) = way(piece) {
            let sent = self.try_joined(head, bytes)?;
            let of_head = sent.min(head.len());
            return self.parts([&head[of_head..], &bytes[sent - of_head..]]).await;
        }
        self.cork_for(piece);
        self.head(head, true).await?;
        self.piece(piece).await
    }

    /// Lets go of what waits for a packet to be full. To be called before a wait for content, and at its end.
    pub(crate) fn flush(&mut self) {
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

    /// Worth some packets, no more: what the socket refuses is found when it is written to.
    fn set_cork(&self, on: bool) {
        let _ = rustix::net::sockopt::set_tcp_cork(self.stream, on);
    }

    /// Content of a known length.
    pub(crate) async fn piece(&mut self, piece: &Piece) -> io::Result<()> {
        self.cork_for(piece);
        match way(piece) {
            Way::File(file, offset) => self.file(piece, file, offset).await,
            Way::Bytes(bytes) => self.bytes(bytes, false).await,
        }
    }

    /// Content as one chunk, after `head`, which is empty for all but the first. If it is the `last`, so it says.
    pub(crate) async fn chunk(&mut self, head: &[u8], piece: &Piece, last: bool) -> io::Result<()> {
        let end = if last { CONTENT_END } else { CHUNK_END };
        let mut buffer = [0; SIZE_LINE_BYTES];
        let size = encode_size(piece.len() as u64, &mut buffer);
        self.cork_for(piece);
        match way(piece) {
            Way::File(file, offset) => {
                self.bytes(head, true).await?;
                self.bytes(size, true).await?;
                self.file(piece, file, offset).await?;
                self.bytes(end, false).await
            }
            Way::Bytes(bytes) => self.parts([head, size, bytes, end]).await,
        }
    }

    /// The last chunk, and what comes after it.
    pub(crate) async fn trailer(&mut self, trailer: &Fields) -> io::Result<()> {
        self.parts([b"0\r\n", trailer.text(), CHUNK_END]).await
    }

    pub(crate) async fn bytes(&mut self, mut bytes: &[u8], more: bool) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
        while !bytes.is_empty() {
            let sent = self.io(|stream| Ok(rustix::net::send(stream, bytes, flags)?)).await?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// As much of both as the socket takes at once, if they are short; how much that was.
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
            // What the client was waited for may have left the page cache: this thread is not to wait for the disk.
            if std::mem::take(&mut self.has_waited) || sent == ready {
                ready = sent + piece.ready(sent).await.map_err(|_| unreadable())?;
            }
            let attempt =
                |stream: &TcpStream| Ok(rustix::fs::sendfile(stream, file, Some(&mut offset), ready - sent)?);
            match self.attempt(attempt) {
                Ok(None) => self.writable().await?,
                // The disk's fault: the file is shorter than it was, or cannot be read.
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

    /// Tries, and waits for the client only where the socket is full.
    async fn io(&mut self, mut attempt: impl FnMut(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match self.attempt(&mut attempt)? {
                Some(sent) => return Ok(sent),
                None => self.writable().await?,
            }
        }
    }

    /// Tries once; `None` where the socket is full.
    fn attempt(
        &mut self,
        attempt: impl FnOnce(&TcpStream) -> io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        // Before the attempt: after it the client may have the byte before this thread gets on.
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

    /// Waits until the client has taken something.
    async fn writable(&mut self) -> io::Result<()> {
        self.has_waited = true;
        let stalled = |_| io::Error::from(io::ErrorKind::TimedOut);
        tokio::time::timeout(self.stall, self.stream.writable()).await.map_err(stalled)?
    }
}

#[cfg(test)]
mod tests;
