//! A client's TCP socket: reads and writes without blocking, and reports when the client's kernel
//! acknowledged the bytes written.
//!
//! An acknowledgement timestamp in the socket's error queue makes epoll report an error. mio and
//! tokio then consider the socket permanently closed for writing, so that a wait for room would
//! return immediately. [`Socket`] therefore registers with the runtime again when a write finds no
//! room after such a report.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant, SystemTime};

use bytes::BufMut;
use thalweg_tcp::{TcpInfo, acks};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Maximum content bytes of a packet whose acknowledgement a client may delay: a jumbo frame.
/// Loopback has larger ones.
const PACKET_BYTES_MAX: usize = 9_000;

/// A client's socket.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Never held across an await.
    state: Mutex<State>,
    /// Number of bytes written so far.
    written: AtomicU64,
    /// Content bytes of a full packet when timestamps were enabled; 0 before, or if larger than
    /// [`PACKET_BYTES_MAX`].
    packet_bytes: AtomicUsize,
}

#[derive(Debug)]
struct State {
    /// `None` only after a failed attempt to register the stream again.
    stream: Option<TcpStream>,
    /// Value of `written` when timestamps were enabled; `None` before.
    numbered_from: Option<u64>,
    /// Acknowledgements collected before a caller requested them, oldest first.
    collected: Vec<Acked>,
    /// Whether the socket was registered again, which made a concurrent reader's wait ineffective.
    was_registered_again: bool,
}

/// Acknowledgement by the client's kernel of all bytes before a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acked {
    /// The position, as the number of bytes written to the socket before it.
    pub(crate) position: u64,
    /// When the acknowledgement arrived.
    pub(crate) at: SystemTime,
}

/// What the kernel knew of a connection's path at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathState {
    /// Congestion window in bytes.
    pub(crate) window_bytes: u64,
    /// Time for which the client's receive window has held the connection back; `None` if the
    /// kernel does not count it.
    pub(crate) rwnd_limited: Option<Duration>,
}

impl PathState {
    pub(crate) fn of(info: &TcpInfo) -> Self {
        Self {
            window_bytes: u64::from(info.snd_cwnd) * u64::from(info.snd_mss_bytes),
            rwnd_limited: info.rwnd_limited_us.map(Duration::from_micros),
        }
    }
}

/// The bytes of a response that was written to a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// Positions of the first byte and of the end, counted in bytes written to the socket.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Position after the last byte with a timestamp; `end` if there is none.
    pub(crate) stamped: u64,
    /// When the first byte was written.
    pub(crate) first_byte: Instant,
    /// The connection at the first byte; `None` if it was as at the previous response's end, or is
    /// unknown.
    pub(crate) at_start: Option<PathState>,
    /// For a response that waited for content: the connection's busy time at its first byte.
    pub(crate) busy_before: Option<Duration>,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        let state = State {
            stream: Some(stream),
            numbered_from: None,
            collected: Vec::new(),
            was_registered_again: false,
        };
        Self { state: Mutex::new(state), written: AtomicU64::new(0), packet_bytes: AtomicUsize::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes the socket's descriptor to `act`, for socket options.
    ///
    /// # Errors
    ///
    /// Returns `NotConnected` if the socket was lost, otherwise the error of `act`.
    pub(crate) fn with_fd<R>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<R>) -> io::Result<R> {
        act(self.state().stream()?.as_fd())
    }

    /// Returns the connection's local address.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.state().stream()?.local_addr()
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Returns the content bytes of a full packet; 0 if unknown, or too large to matter.
    pub(crate) fn packet_bytes(&self) -> usize {
        self.packet_bytes.load(Relaxed)
    }

    /// Reads into `buffer` once it can; 0 means that the client sends no more.
    pub(crate) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut impl BufMut,
    ) -> Poll<io::Result<usize>> {
        let state = self.state();
        let stream = state.stream()?;
        loop {
            ready!(stream.poll_read_ready(context))?;
            match stream.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }

    /// Calls `write` once; returns `None` if the socket has no room.
    pub(crate) fn try_write(
        &self,
        write: impl FnOnce(&TcpStream) -> io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        let mut state = self.state();
        let stream = state.stream()?;
        match stream.try_io(Interest::WRITABLE, || write(stream)) {
            Ok(bytes) => {
                self.written.fetch_add(bytes as u64, Relaxed);
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if state.seems_closed()? {
                    // With a timestamp in the queue, epoll would report an error again.
                    while let Some(ack) = state.collect(self.written()) {
                        state.collected.push(ack);
                    }
                    state.register_again()?;
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until the socket may have room for a write.
    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state();
        if std::mem::take(&mut state.was_registered_again) {
            // A reader in the same task still waits on the old registration: poll it again.
            context.waker().wake_by_ref();
        }
        state.stream()?.poll_write_ready(context)
    }

    /// Enables acknowledgement timestamps, which [`acks::send`] requests.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error if it does not support such timestamps.
    pub(crate) fn enable_acks(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.numbered_from.is_none() {
            let fd = state.stream()?.as_fd();
            acks::enable(fd)?;
            let bytes = TcpInfo::read(fd)?.snd_mss_bytes as usize;
            self.packet_bytes.store(if bytes > PACKET_BYTES_MAX { 0 } else { bytes }, Relaxed);
            state.numbered_from = Some(self.written());
        }
        Ok(())
    }

    /// Removes the oldest acknowledgement timestamp; `None` if none has arrived.
    pub(crate) fn next_ack(&self) -> Option<Acked> {
        let mut state = self.state();
        if state.collected.is_empty() {
            state.collect(self.written())
        } else {
            Some(state.collected.remove(0))
        }
    }
}

impl State {
    fn stream(&self) -> io::Result<&TcpStream> {
        self.stream.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Collects a timestamp from the kernel.
    fn collect(&self, written: u64) -> Option<Acked> {
        let first = self.numbered_from?;
        let ack = acks::collect(self.stream.as_ref()?.as_fd()).ok()??;
        // Byte numbers wrap at 4 GiB: of the bytes written with this number, the newest is meant.
        let newest = written.checked_sub(first)?.checked_sub(1)?;
        let newer = u64::from((newest as u32).wrapping_sub(ack.byte));
        Some(Acked { position: first + newest.checked_sub(newer)? + 1, at: ack.at })
    }

    /// Returns whether tokio considers the socket closed for writing, after a write that found no
    /// room. On a socket that really is closed, the write would have failed.
    fn seems_closed(&self) -> io::Result<bool> {
        let no_wait = &mut Context::from_waker(Waker::noop());
        Ok(self.stream()?.poll_write_ready(no_wait).is_ready())
    }

    fn register_again(&mut self) -> io::Result<()> {
        if let Some(stream) = self.stream.take() {
            self.stream = Some(TcpStream::from_std(stream.into_std()?)?);
            self.was_registered_again = true;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests {
    use std::future::poll_fn;
    use std::io::{IoSlice, Read};
    use std::time::Duration;

    use rustix::net::SendFlags;

    use super::*;

    async fn connected() -> (Socket, std::net::TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        (Socket::new(stream), client)
    }

    fn send(socket: &Socket, bytes: &[u8]) -> Option<usize> {
        socket.try_write(|stream| Ok(rustix::net::send(stream, bytes, SendFlags::NOSIGNAL)?)).unwrap()
    }

    fn send_stamped(socket: &Socket, bytes: &[u8]) -> Option<usize> {
        let parts = [IoSlice::new(bytes)];
        socket.try_write(|stream| acks::send(stream.as_fd(), &parts, SendFlags::NOSIGNAL)).unwrap()
    }

    async fn acked(socket: &Socket) -> Acked {
        loop {
            if let Some(ack) = socket.next_ack() {
                return ack;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn positions_count_all_bytes_written() {
        let (socket, mut client) = connected().await;
        send(&socket, b"before").unwrap();
        socket.enable_acks().unwrap();
        send_stamped(&socket, b"stamped").unwrap();
        client.read_exact(&mut [0; 13]).unwrap();
        assert_eq!(acked(&socket).await.position, 13);
        send(&socket, b"between").unwrap();
        socket.enable_acks().unwrap();
        send_stamped(&socket, b"again").unwrap();
        client.read_exact(&mut [0; 12]).unwrap();
        assert_eq!(acked(&socket).await.position, 25);
    }

    /// A reported timestamp must not make a full socket look writable: the wait for room would
    /// spin.
    #[tokio::test]
    async fn full_socket_waits_for_room_after_a_timestamp() {
        let (socket, mut client) = connected().await;
        socket.enable_acks().unwrap();
        send_stamped(&socket, b"stamped").unwrap();
        client.read_exact(&mut [0; 7]).unwrap();
        // The runtime sees the error report.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let (mut bytes, chunk) = (0, [0; 64 * 1024]);
        while let Some(sent) = send(&socket, &chunk) {
            bytes += sent;
        }
        let writable = poll_fn(|context| socket.poll_writable(context));
        let wait = tokio::time::timeout(Duration::from_millis(50), async {
            writable.await.unwrap();
            // An event from before the last write may have ended the wait early. The next wait is
            // a real one.
            while send(&socket, &chunk).is_none() {
                poll_fn(|context| socket.poll_writable(context)).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        assert!(wait.await.is_err(), "wrote although the client read nothing");
        let reader = std::thread::spawn(move || client.read_exact(&mut vec![0; bytes]).map(|()| client));
        while send(&socket, &chunk).is_none() {
            poll_fn(|context| socket.poll_writable(context)).await.unwrap();
        }
        assert_eq!(acked(&socket).await.position, 7);
        drop(reader.join().unwrap().unwrap());
    }
}
