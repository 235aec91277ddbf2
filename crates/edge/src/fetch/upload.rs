//! Upload: passes request content from the client connection to the fetch. The two are separate
//! tasks, connected by a bounded queue.
//!
//! **Invariant:** no content is read from the client until a backend has received the request head,
//! so no content is uploaded in vain if the backend is unreachable.
//! **Invariant:** content aborted by the client never looks complete: the backend connection closes
//! before the full length or the last chunk is sent.

use std::convert::Infallible;
use std::time::Duration;

use bytes::buf::Chain;
use bytes::{Buf, Bytes};
use thalweg_http::Framing;
use thalweg_http::chunked::{CHUNK_END, LAST_CHUNK, SIZE_LINE_BYTES, encode_size};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::WriteHalf;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Maximum number of queued pieces; each piece is the result of one read.
const PIECES_MAX: usize = 4;

/// The client's end of the queue.
#[derive(Debug)]
pub(crate) struct Source {
    pieces: mpsc::Sender<Piece>,
    wanted: oneshot::Receiver<()>,
    end_mark: EndMark,
}

/// Signals an abort if dropped before the end is sent; passed on in `Piece::End`.
type EndMark = oneshot::Sender<Infallible>;

#[derive(Debug)]
enum Piece {
    Content(Bytes),
    End(EndMark),
}

/// The backend's end of the queue.
#[derive(Debug)]
pub(crate) struct Upload {
    chunked: bool,
    pieces: mpsc::Receiver<Piece>,
    wanted: Option<oneshot::Sender<()>>,
    /// Resolves when the client aborts, even while the backend is not reading.
    aborted: oneshot::Receiver<Infallible>,
    /// Unsent part of a framed piece.
    out: Chain<Chain<Bytes, Bytes>, Bytes>,
    end: Option<EndMark>,
}

/// The side that aborted the content.
#[derive(Debug)]
pub(crate) enum AbortedBy {
    Client,
    /// The backend stopped reading; it may still have responded.
    Backend,
}

/// Error returned once the content's receiver is gone.
#[derive(Debug)]
pub(crate) struct NotWanted;

/// Creates both ends of a queue for request content with this framing; `None` if there is no
/// content.
pub(crate) fn channel(framing: Framing) -> Option<(Source, Upload)> {
    let chunked = match framing {
        Framing::None | Framing::Length(0) => return None,
        Framing::Length(_) => false,
        Framing::Chunked | Framing::UntilClose => true,
    };
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let (wanted_sender, wanted) = oneshot::channel();
    let (end_mark, aborted) = oneshot::channel();
    let out = plain(Bytes::new());
    let upload = Upload { chunked, pieces: receiver, wanted: Some(wanted_sender), aborted, out, end: None };
    Some((Source { pieces: sender, wanted, end_mark }, upload))
}

impl Source {
    /// Waits until a backend has received the request head.
    pub(crate) async fn is_wanted(&mut self) -> Result<(), NotWanted> {
        (&mut self.wanted).await.map_err(|_| NotWanted)
    }

    /// Queues the next piece, waiting for room.
    pub(crate) async fn put(&self, piece: Bytes) -> Result<(), NotWanted> {
        self.pieces.send(Piece::Content(piece)).await.map_err(|_| NotWanted)
    }

    /// Queues the end of the content. Dropping the source without calling this aborts the content.
    pub(crate) async fn end(self) -> Result<(), NotWanted> {
        self.pieces.send(Piece::End(self.end_mark)).await.map_err(|_| NotWanted)
    }

    /// Waits until the receiver is dropped.
    pub(crate) async fn refused(&self) {
        self.pieces.closed().await;
    }
}

impl Upload {
    /// Sends the next part of the content. Returns true once all content is sent. The backend must
    /// accept bytes within `patience`. Cancel safe.
    pub(crate) async fn send(
        &mut self,
        writer: &mut WriteHalf<'_>,
        patience: Duration,
    ) -> Result<bool, AbortedBy> {
        if let Some(wanted) = self.wanted.take() {
            // If the source is gone, receiving from the queue fails below.
            let _ = wanted.send(());
        }
        if !self.out.has_remaining() {
            self.out = match self.pieces.recv().await.ok_or(AbortedBy::Client)? {
                Piece::Content(piece) if self.chunked => chunk(piece),
                Piece::Content(piece) => plain(piece),
                Piece::End(end_mark) => {
                    self.end = Some(end_mark);
                    plain(Bytes::from_static(if self.chunked { LAST_CHUNK } else { b"" }))
                }
            };
        }
        if self.out.has_remaining() {
            tokio::select! {
                biased;
                written = timeout(patience, writer.write_buf(&mut self.out)) => match written {
                    Ok(Ok(sent)) if sent > 0 => {}
                    _ => return Err(AbortedBy::Backend),
                },
                _ = &mut self.aborted => return Err(AbortedBy::Client),
            }
        }
        Ok(self.end.is_some() && !self.out.has_remaining())
    }
}

fn plain(piece: Bytes) -> Chain<Chain<Bytes, Bytes>, Bytes> {
    Bytes::new().chain(piece).chain(Bytes::new())
}

fn chunk(piece: Bytes) -> Chain<Chain<Bytes, Bytes>, Bytes> {
    let mut buffer = [0; SIZE_LINE_BYTES];
    let size = Bytes::copy_from_slice(encode_size(piece.len() as u64, &mut buffer));
    size.chain(piece).chain(Bytes::from_static(CHUNK_END))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Maximum wait for an expected event before the test fails.
    const PATIENCE: Duration = Duration::from_secs(20);
    /// How long a queue must have no room before it counts as full rather than slowly read.
    const FULL: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn client_abort_is_detected_while_backend_reads_nothing() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let _backend = listener.accept().await.unwrap();
        let (reader, mut writer) = stream.split();
        let (source, mut upload) = channel(Framing::Length(u64::MAX)).unwrap();
        let sending = async {
            loop {
                if let Err(side) = upload.send(&mut writer, 2 * PATIENCE).await {
                    return side;
                }
            }
        };
        let filling = async move {
            let piece = Bytes::from_static(&[0; 1 << 20]);
            loop {
                let is_full = timeout(FULL, source.put(piece.clone())).await.is_err();
                // After a write that found the socket buffer full, `writable` is pending until the
                // buffer drains.
                let is_pending = timeout(Duration::ZERO, reader.as_ref().writable()).await.is_err();
                if is_full && is_pending {
                    break;
                }
            }
            drop(source);
        };
        let both = async { tokio::join!(sending, filling).0 };
        assert!(matches!(timeout(PATIENCE, both).await, Ok(AbortedBy::Client)));
    }
}
