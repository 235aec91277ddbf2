//! Socket writes: small content is sent together with the head, large or on-disk content by
//! `sendfile`.
//!
//! A write waits only for the client to accept bytes, and at most for the stall limit, so a stalled
//! client ties up a connection but never a thread.
//!
//! If the response's delivery is measured, the byte before its last full packet is stamped: a
//! client may delay the acknowledgement of the last packet, by 40 ms on Linux. It acknowledges the
//! packet before it as soon as the last one arrives.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fd::BorrowedFd;
use rustix::net::SendFlags;
use thalweg_cache::Piece;
use thalweg_http::Fields;
use thalweg_http::chunked::{CHUNK_END, CONTENT_END, SIZE_LINE_BYTES, encode_size};
use thalweg_tcp::{TcpInfo, acks};
use tokio::net::TcpStream;

use crate::transport::socket::{PathState, Socket, Span};

/// Minimum content size for `sendfile`, in bytes. For smaller content, one `writev` together with
/// the head costs less than a second system call.
pub(super) const SENDFILE_BYTES_MIN: usize = 32 * 1024;
/// Minimum size, in bytes, of a piece to send corked. Without a cork, if an acknowledgement arrives
/// while the kernel is still reading the file's pages, the kernel sends a short tail as a separate
/// packet, which increases the number of packets by half.
const CORK_BYTES_MIN: usize = 64 * 1024;
/// Maximum total size, in bytes, of head and content joined in a buffer. Compared with `writev`, a
/// single `send` saves 4 % of the cost of a 1 KB request.
const JOINED_BYTES_MAX: usize = 4096;
/// Bytes of a file that are sent with a timestamp, because `sendfile` cannot request one.
const STAMPED_BYTES: usize = 1;
/// Minimum length, in packets, of a response whose last packet is left out of the measurement.
const PACKETS_MIN: u64 = 4;

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

/// Reads the byte to stamp, which is at `at` in the piece and at `offset` in the file, from memory
/// if it is there. Returns `None` if the file is truncated or cannot be read.
fn read_stamped(piece: &Piece, at: usize, file: BorrowedFd<'_>, offset: u64) -> Option<[u8; STAMPED_BYTES]> {
    if let Some(bytes) = piece.as_slice() {
        return bytes.get(at..)?.first_chunk().copied();
    }
    let mut byte = [0; STAMPED_BYTES];
    rustix::io::pread(file, &mut byte[..], offset).is_ok_and(|read| read == STAMPED_BYTES).then_some(byte)
}

/// Splits consecutive slices at `at` bytes.
fn split<const N: usize>(parts: [&[u8]; N], mut at: usize) -> ([&[u8]; N], [&[u8]; N]) {
    let (mut before, mut after) = ([&[][..]; N], [&[][..]; N]);
    for (index, part) in parts.into_iter().enumerate() {
        (before[index], after[index]) = part.split_at(at.min(part.len()));
        at -= before[index].len();
    }
    (before, after)
}

/// Returns the flags of a write. With `more`, the kernel holds the bytes back for others.
fn flags(more: bool) -> SendFlags {
    SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() }
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
    socket: &'a Socket,
    stall: Duration,
    first_byte: Option<Instant>,
    /// Whether the socket is corked, so that the kernel sends full packets only.
    corked: bool,
    /// Whether the connection has waited for the client since the piece was last verified.
    has_waited: bool,
    /// Set if the response's delivery is measured. Boxed to keep an idle connection's future small.
    measuring: Option<Box<Measuring>>,
}

/// State of a response whose delivery is measured.
#[derive(Debug)]
struct Measuring {
    /// Number of bytes written to the socket before the response.
    start: u64,
    /// Whether the path's state is to be read once the first byte is written, because it is unknown
    /// or the kernel may have reduced the congestion window after an idle period.
    needs_state: bool,
    at_start: Option<PathState>,
    /// The connection's busy time at the first byte, once the response has waited for content.
    busy_before: Option<Duration>,
    /// Whether the kernel supports acknowledgement timestamps.
    can_stamp: bool,
    /// Position after the last byte that the kernel stamps; `None` before any.
    stamped: Option<u64>,
}

impl<'a> Sender<'a> {
    pub(super) fn new(socket: &'a Socket, stall: Duration) -> Self {
        Self { socket, stall, first_byte: None, corked: false, has_waited: false, measuring: None }
    }

    /// Measures the delivery of everything sent from now on. If `needs_state`, also reads the
    /// path's state at the first byte.
    pub(super) fn measure(&mut self, needs_state: bool) {
        self.measuring = Some(Box::new(Measuring {
            start: self.socket.written(),
            needs_state,
            at_start: None,
            busy_before: None,
            can_stamp: self.socket.enable_acks().is_ok(),
            stamped: None,
        }));
    }

    /// Returns the bytes written since [`measure`](Self::measure); `None` if nothing is measured.
    pub(super) fn span(&self) -> Option<Span> {
        let measuring = self.measuring.as_ref()?;
        Some(Span {
            start: measuring.start,
            end: self.socket.written(),
            stamped: measuring.stamped.unwrap_or_else(|| self.socket.written()),
            first_byte: self.first_byte?,
            at_start: measuring.at_start,
            busy_before: measuring.busy_before,
        })
    }

    /// Returns whether an acknowledgement timestamp was requested.
    pub(super) fn has_stamped(&self) -> bool {
        self.measuring.as_ref().is_some_and(|measuring| measuring.stamped.is_some())
    }

    /// Records that the response waits for content, so that the wait is not attributed to the
    /// network.
    pub(super) fn wait_for_content(&mut self) {
        if let Some(measuring) = &mut self.measuring
            && measuring.busy_before.is_none()
        {
            // The connection has been busy since the first byte was written.
            let since = self.first_byte.map_or(Duration::ZERO, |at| at.elapsed());
            let busy = self.socket.with_fd(TcpInfo::read).ok().and_then(|info| info.busy_time_us);
            measuring.busy_before = busy.map(|us| Duration::from_micros(us).saturating_sub(since));
        }
    }

    /// Returns whether the end of the response is to be stamped.
    fn stamps(&self) -> bool {
        self.measuring.as_ref().is_some_and(|measuring| measuring.can_stamp)
    }

    /// Returns the length of the end of the response that follows the stamped byte, if `left` bytes
    /// are left to send: a full packet, unless that leaves too little to measure.
    fn unstamped_bytes(&self, left: usize) -> usize {
        let start = self.measuring.as_ref().map_or(0, |measuring| measuring.start);
        let (all, packet) = (self.socket.written() - start + left as u64, self.socket.packet_bytes());
        if packet < left && packet as u64 * PACKETS_MIN <= all { packet } else { 0 }
    }

    /// Returns when the kernel accepted the first byte.
    pub(super) fn first_byte(&self) -> Option<Instant> {
        self.first_byte
    }

    /// Sends a head together with the first piece of content of known length.
    pub(super) async fn head_and_piece(
        &mut self,
        head: &[u8],
        piece: &Piece,
        is_last: bool,
    ) -> io::Result<()> {
        if let SendFrom::Bytes(bytes) = source_of(piece) {
            let sent = self.try_joined(head, bytes)?;
            let of_head = sent.min(head.len());
            return self.parts([&head[of_head..], &bytes[sent - of_head..]], is_last).await;
        }
        self.cork_for(piece);
        // The kernel holds the head back until the content follows.
        self.bytes(head, true, false).await?;
        self.piece(piece, is_last).await
    }

    /// Removes the cork. Must be called before waiting for content and at the end of the response.
    pub(super) fn flush(&mut self) {
        if self.corked {
            self.corked = false;
            self.set_cork(false);
        }
    }

    fn cork_for(&mut self, piece: &Piece) {
        // The stamped tail of a file must not become a packet of its own.
        let is_split = self.measuring.is_some() && matches!(source_of(piece), SendFrom::File(..));
        if !self.corked && (is_split || piece.len() >= CORK_BYTES_MIN && piece.in_file().is_some()) {
            self.corked = true;
            self.set_cork(true);
        }
    }

    /// Sets or clears the cork. Corking only saves packets, so failures are ignored; on a broken
    /// socket, the next write fails.
    fn set_cork(&self, on: bool) {
        let _ = self.socket.with_fd(|fd| Ok(rustix::net::sockopt::set_tcp_cork(fd, on)?));
    }

    /// Sends content of known length. If `is_last`, nothing may follow.
    pub(super) async fn piece(&mut self, piece: &Piece, is_last: bool) -> io::Result<()> {
        self.cork_for(piece);
        match source_of(piece) {
            SendFrom::File(file, offset) => self.file(piece, file, offset, is_last).await,
            SendFrom::Bytes(bytes) => self.bytes(bytes, false, is_last).await,
        }
    }

    /// Sends content as one chunk, preceded by `head`, which is empty for all but the first chunk.
    /// If `last`, appends the last chunk.
    pub(super) async fn chunk(&mut self, head: &[u8], piece: &Piece, last: bool) -> io::Result<()> {
        let end = if last { CONTENT_END } else { CHUNK_END };
        let mut buffer = [0; SIZE_LINE_BYTES];
        let size = encode_size(piece.len() as u64, &mut buffer);
        self.cork_for(piece);
        match source_of(piece) {
            SendFrom::File(file, offset) => {
                self.bytes(head, true, false).await?;
                self.bytes(size, true, false).await?;
                self.file(piece, file, offset, false).await?;
                self.bytes(end, false, last).await
            }
            SendFrom::Bytes(bytes) => self.parts([head, size, bytes, end], last).await,
        }
    }

    /// Sends the last chunk and the trailer section.
    pub(super) async fn trailer(&mut self, trailer: &Fields) -> io::Result<()> {
        self.parts([b"0\r\n", trailer.text(), CHUNK_END], true).await
    }

    /// Sends bytes. With `more`, the kernel holds them back for bytes that follow immediately. If
    /// `is_last`, the response must end with these bytes.
    pub(super) async fn bytes(&mut self, bytes: &[u8], more: bool, is_last: bool) -> io::Result<()> {
        if is_last && self.stamps() {
            return Box::pin(self.end([bytes])).await;
        }
        self.write(&mut [IoSlice::new(bytes)], flags(more), false).await
    }

    /// Sends the end of the response, and stamps it. Callers box the future: an idle connection
    /// must not have room for it.
    async fn end<const N: usize>(&mut self, parts: [&[u8]; N]) -> io::Result<()> {
        let all = parts.iter().map(|part| part.len()).sum();
        let unstamped = self.unstamped_bytes(all);
        let (stamped, rest) = split(parts, all - unstamped);
        self.stamp(&mut stamped.map(IoSlice::new), unstamped > 0).await?;
        self.write(&mut rest.map(IoSlice::new), flags(false), false).await
    }

    /// Sends slices, and stamps the last byte. With `more`, other bytes follow immediately.
    async fn stamp(&mut self, parts: &mut [IoSlice<'_>], more: bool) -> io::Result<()> {
        self.write(parts, flags(more), true).await?;
        let written = self.socket.written();
        if let Some(measuring) = &mut self.measuring {
            measuring.stamped = Some(written);
        }
        Ok(())
    }

    /// Sends slices, and stamps the last byte if `is_stamped`.
    async fn write(
        &mut self,
        mut left: &mut [IoSlice<'_>],
        flags: SendFlags,
        is_stamped: bool,
    ) -> io::Result<()> {
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            let sent = self.attempt(|stream| match left {
                _ if is_stamped => acks::send(stream.as_fd(), left, flags),
                [one] => Ok(rustix::net::send(stream, one, flags)?),
                _ => Ok(rustix::io::writev(stream, left)?),
            })?;
            match sent {
                Some(0) => return Err(io::ErrorKind::WriteZero.into()),
                Some(sent) => IoSlice::advance_slices(&mut left, sent),
                None => self.writable().await?,
            }
        }
        Ok(())
    }

    /// Sends head and content in one call if they are short. Returns the number of bytes accepted
    /// by the socket.
    fn try_joined(&mut self, head: &[u8], bytes: &[u8]) -> io::Result<usize> {
        // This path requests no timestamp, which a measured response needs.
        if head.len() + bytes.len() > JOINED_BYTES_MAX || self.measuring.is_some() {
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

    async fn parts<const N: usize>(&mut self, parts: [&[u8]; N], is_last: bool) -> io::Result<()> {
        if is_last && self.stamps() {
            return Box::pin(self.end(parts)).await;
        }
        self.write(&mut parts.map(IoSlice::new), flags(false), false).await
    }

    async fn file(
        &mut self,
        piece: &Piece,
        file: BorrowedFd<'_>,
        mut offset: u64,
        is_last: bool,
    ) -> io::Result<()> {
        let unreadable = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let (mut sent, mut ready) = (0, piece.len());
        let mut end = piece.len();
        if is_last && self.stamps() {
            end = end.saturating_sub(self.unstamped_bytes(end) + STAMPED_BYTES);
        }
        while sent < piece.len() {
            // Pages may have left the page cache during a wait, and this thread must not block on
            // the disk.
            if std::mem::take(&mut self.has_waited) || sent == ready {
                ready = sent + piece.ready(sent).await.map_err(|_| unreadable())?;
            }
            if sent == end {
                let Some(byte) = read_stamped(piece, sent, file, offset) else {
                    piece.doubt();
                    return Err(unreadable());
                };
                sent += STAMPED_BYTES;
                offset += STAMPED_BYTES as u64;
                end = piece.len();
                self.stamp(&mut [IoSlice::new(&byte)], sent < end).await?;
                continue;
            }
            let most = ready.min(end);
            let attempt =
                |stream: &TcpStream| Ok(rustix::fs::sendfile(stream, file, Some(&mut offset), most - sent)?);
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

    /// Calls `attempt` once. Returns `None` if the socket buffer is full.
    fn attempt(
        &mut self,
        attempt: impl FnOnce(&TcpStream) -> io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        // Take the time before the attempt, because the client may receive the byte before this
        // thread runs again.
        let begun = self.first_byte.is_none().then(Instant::now);
        let sent = self.socket.try_write(attempt)?;
        if sent.is_some_and(|sent| sent > 0) && self.first_byte.is_none() {
            self.first_byte = begun;
            self.read_state();
        }
        Ok(sent)
    }

    /// Reads the path's state that the response starts with, if it must be read.
    fn read_state(&mut self) {
        if let Some(measuring) = &mut self.measuring
            && measuring.needs_state
        {
            measuring.at_start = self.socket.with_fd(TcpInfo::read).ok().map(|info| PathState::of(&info));
        }
    }

    /// Waits until the socket is writable again.
    async fn writable(&mut self) -> io::Result<()> {
        self.has_waited = true;
        let stalled = |_| io::Error::from(io::ErrorKind::TimedOut);
        let writable = poll_fn(|context| self.socket.poll_writable(context));
        tokio::time::timeout(self.stall, writable).await.map_err(stalled)?
    }
}

#[cfg(test)]
mod tests;
