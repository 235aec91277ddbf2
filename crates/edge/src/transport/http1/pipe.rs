//! Pipe: copies bytes between a client and a backend after `return (pipe)`, without parsing them.
//!
//! A pipe ends when both sides have ended, one side fails, or no byte has passed for
//! [`IDLE_TIME_MAX`].

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use thalweg_record::Cut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use crate::transport::Piped;
use crate::transport::socket::Socket;

/// Maximum time without a byte in either direction (Varnish's `pipe_timeout`).
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum number of bytes buffered in each direction.
const BUFFER_BYTES: usize = 16 * 1024;

/// Sends `first` to `backend`, then copies bytes both ways until the pipe ends.
pub(super) async fn run(client: &Socket, backend: &mut TcpStream, first: &[u8]) -> Piped {
    let progress = Progress::new();
    let ended = progress.copy_both_ways((Half(client), Half(client)), backend.split(), first).await;
    let cut = ended.err();
    if cut.is_some() {
        // A cut stream must not look complete.
        let _ = client.with_fd(|fd| socket2::SockRef::from(&fd).set_linger(Some(Duration::ZERO)));
    }
    Piped { bytes: progress.from_backend.load(Relaxed), cut }
}

/// One half of a shared connection, like those of `TcpStream::split` but without a mutable borrow.
struct Half<'a>(&'a Socket);

impl AsyncRead for Half<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read(cx, buf).map_ok(|_| ())
    }
}

impl AsyncWrite for Half<'_> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            if let Some(written) = self.0.try_write(|stream| stream.try_write(bytes))? {
                return Poll::Ready(Ok(written));
            }
            ready!(self.0.poll_writable(cx))?;
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.with_fd(|fd| socket2::SockRef::from(&fd).shutdown(Shutdown::Write)))
    }
}

/// Progress of a pipe.
struct Progress {
    started: Instant,
    /// When either side last accepted a byte, in milliseconds since `started`.
    moved_ms: AtomicU64,
    /// Number of bytes accepted by the client.
    from_backend: AtomicU64,
    /// Whether the backend has ended and the client has received everything.
    is_complete: AtomicBool,
}

impl Progress {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            moved_ms: AtomicU64::new(0),
            from_backend: AtomicU64::new(0),
            is_complete: AtomicBool::new(false),
        }
    }

    /// Sends `first`, then copies from each side to the other until both have ended.
    ///
    /// # Errors
    ///
    /// Returns an error if, before the client has received everything, one side fails or the pipe
    /// is idle for too long.
    async fn copy_both_ways(
        &self,
        (mut from_client, mut to_client): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
        (mut from_backend, mut to_backend): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
        first: &[u8],
    ) -> Result<(), Cut> {
        let not_counted = AtomicU64::new(0);
        let there = async {
            let written = self.write(&mut to_backend, first, &not_counted).await;
            written.map_err(|_| Cut::BackendFailed)?;
            let breaks = (Cut::ClientClosed, Cut::BackendFailed);
            self.copy(&mut from_client, &mut to_backend, &not_counted, breaks).await
        };
        let back = async {
            let breaks = (Cut::BackendFailed, Cut::ClientClosed);
            self.copy(&mut from_backend, &mut to_client, &self.from_backend, breaks).await?;
            self.is_complete.store(true, Relaxed);
            Ok(())
        };
        let ended = tokio::select! {
            ended = async { tokio::try_join!(there, back) } => ended.map(|_| ()),
            () = self.idle() => Err(Cut::ClientStalled),
        };
        if self.is_complete.load(Relaxed) { Ok(()) } else { ended }
    }

    /// Copies until `from` ends, then shuts down `to`. Returns `reading` if reading fails,
    /// `writing` if writing fails.
    async fn copy(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        bytes: &AtomicU64,
        (reading, writing): (Cut, Cut),
    ) -> Result<(), Cut> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match from.read(&mut buffer).await.map_err(|_| reading)? {
                0 => return to.shutdown().await.map_err(|_| writing),
                length => self.write(to, &buffer[..length], bytes).await.map_err(|_| writing)?,
            }
        }
    }

    async fn write(
        &self,
        to: &mut (impl AsyncWrite + Unpin),
        mut rest: &[u8],
        bytes: &AtomicU64,
    ) -> io::Result<()> {
        while !rest.is_empty() {
            let taken = to.write(rest).await?;
            if taken == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            rest = &rest[taken..];
            bytes.fetch_add(taken as u64, Relaxed);
            let moved_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.moved_ms.store(moved_ms, Relaxed);
        }
        Ok(())
    }

    /// Resolves once no byte has been accepted for [`IDLE_TIME_MAX`].
    async fn idle(&self) {
        loop {
            let moved = self.started + Duration::from_millis(self.moved_ms.load(Relaxed));
            if moved.elapsed() >= IDLE_TIME_MAX {
                return;
            }
            sleep_until(moved + IDLE_TIME_MAX).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::{duplex, split};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pipe_lasts_while_bytes_pass_and_ends_once_idle() {
        let ((mut client, near), (far, mut backend)) = (duplex(64), duplex(64));
        let progress = Progress::new();
        let talk = async {
            let mut head = [0; 4];
            backend.read_exact(&mut head).await.unwrap();
            for _ in 0..3 {
                tokio::time::sleep(IDLE_TIME_MAX * 2 / 3).await;
                backend.write_all(b"b").await.unwrap();
                assert_eq!(client.read_u8().await.unwrap(), b'b');
            }
            (head, Instant::now())
        };
        let ((head, last), ended) =
            tokio::join!(talk, progress.copy_both_ways(split(near), split(far), b"head"));
        assert_eq!(&head, b"head");
        assert_eq!(ended, Err(Cut::ClientStalled));
        assert_eq!((last.elapsed().as_secs(), progress.from_backend.load(Relaxed)), (60, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn pipe_ends_when_one_side_stops_accepting() {
        let ((_client, near), (far, mut backend)) = (duplex(64), duplex(64));
        let progress = Progress::new();
        let flood = async { while backend.write_all(&[0; 64]).await.is_ok() {} };
        let copied = progress.copy_both_ways(split(near), split(far), b"");
        tokio::select! {
            () = flood => panic!("the pipe accepted every byte"),
            ended = copied => assert_eq!(ended, Err(Cut::ClientStalled)),
        }
        assert_eq!(progress.started.elapsed().as_secs(), 60);
    }
}
