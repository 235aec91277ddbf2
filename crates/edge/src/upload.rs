//! The content of a request on its way to a backend: from the client's connection through a bounded queue to the
//! fetch, which are tasks of their own.
//!
//! **Invariant:** no content is read from the client before the backend has the head of the request: one that cannot
//! be reached costs no upload.
//! **Invariant:** content whose client breaks it off never ends as if it were whole: the backend's connection closes
//! before its length or its last chunk.

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

/// Pieces, of one read each, that may wait for the backend.
const PIECES_MAX: usize = 4;

/// The client's end.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) framing: Framing,
    pieces: mpsc::Sender<Piece>,
    wanted: oneshot::Receiver<()>,
    whole: Whole,
}

/// Whoever drops it before all has gone out has broken the content off. It goes with the end of it.
type Whole = oneshot::Sender<Infallible>;

#[derive(Debug)]
enum Piece {
    Content(Bytes),
    End(Whole),
}

/// The backend's end.
#[derive(Debug)]
pub(crate) struct Upload {
    chunked: bool,
    pieces: mpsc::Receiver<Piece>,
    wanted: Option<oneshot::Sender<()>>,
    /// Told when the client breaks off, though a backend that takes nothing has yet to take what came before.
    broken_off: oneshot::Receiver<Infallible>,
    /// A piece in its framing, or what is left of it.
    out: Chain<Chain<Bytes, Bytes>, Bytes>,
    end: Option<Whole>,
}

/// Who broke the content off.
#[derive(Debug)]
pub(crate) enum Broken {
    Client,
    /// It takes no more; it may have answered all the same.
    Backend,
}

/// Nobody takes the content any more.
#[derive(Debug)]
pub(crate) struct NotWanted;

/// Both ends for content that is delimited by `framing`; `None` if there is none.
pub(crate) fn channel(framing: Framing) -> Option<(Source, Upload)> {
    let chunked = match framing {
        Framing::None | Framing::Length(0) => return None,
        Framing::Length(_) => false,
        Framing::Chunked | Framing::UntilClose => true,
    };
    let (tell, told) = mpsc::channel(PIECES_MAX);
    let (want, wanted) = oneshot::channel();
    let (whole, broken_off) = oneshot::channel();
    let out = plain(Bytes::new());
    let upload = Upload { chunked, pieces: told, wanted: Some(want), broken_off, out, end: None };
    Some((Source { framing, pieces: tell, wanted, whole }, upload))
}

impl Source {
    /// Waits until a backend has the head of the request.
    pub(crate) async fn is_wanted(&mut self) -> Result<(), NotWanted> {
        (&mut self.wanted).await.map_err(|_| NotWanted)
    }

    /// Hands on the next piece; waits for room.
    pub(crate) async fn put(&self, piece: Bytes) -> Result<(), NotWanted> {
        self.pieces.send(Piece::Content(piece)).await.map_err(|_| NotWanted)
    }

    /// Hands on the end. Dropped without it, the content is broken off.
    pub(crate) async fn end(self) -> Result<(), NotWanted> {
        self.pieces.send(Piece::End(self.whole)).await.map_err(|_| NotWanted)
    }

    /// Waits until nobody takes the content any more.
    pub(crate) async fn refused(&self) {
        self.pieces.closed().await;
    }
}

impl Upload {
    /// Sends some of it, no part of which the backend may leave for longer than `patience`. True once all has gone out.
    /// May be dropped while it waits, and called again.
    pub(crate) async fn send(
        &mut self,
        writer: &mut WriteHalf<'_>,
        patience: Duration,
    ) -> Result<bool, Broken> {
        if let Some(wanted) = self.wanted.take() {
            // Who has left meanwhile is found by the queue.
            let _ = wanted.send(());
        }
        if !self.out.has_remaining() {
            self.out = match self.pieces.recv().await.ok_or(Broken::Client)? {
                Piece::Content(piece) if self.chunked => chunk(piece),
                Piece::Content(piece) => plain(piece),
                Piece::End(whole) => {
                    self.end = Some(whole);
                    plain(Bytes::from_static(if self.chunked { LAST_CHUNK } else { b"" }))
                }
            };
        }
        if self.out.has_remaining() {
            tokio::select! {
                biased;
                written = timeout(patience, writer.write_buf(&mut self.out)) => match written {
                    Ok(Ok(sent)) if sent > 0 => {}
                    _ => return Err(Broken::Backend),
                },
                _ = &mut self.broken_off => return Err(Broken::Client),
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

    /// A test that waits longer than this has failed.
    const PATIENCE: Duration = Duration::from_secs(20);
    /// A queue that has had no room for so long is full; it may be that nobody came to empty it.
    const FULL: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_client_that_breaks_off_is_heard_of_while_the_backend_takes_nothing() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let _backend = listener.accept().await.unwrap();
        let (reader, mut writer) = stream.split();
        let (source, mut upload) = channel(Framing::Length(u64::MAX)).unwrap();
        let sending = async {
            loop {
                if let Err(broken) = upload.send(&mut writer, 2 * PATIENCE).await {
                    return broken;
                }
            }
        };
        let filling = async move {
            let piece = Bytes::from_static(&[0; 1 << 20]);
            loop {
                let is_full = timeout(FULL, source.put(piece.clone())).await.is_err();
                // Once a write has found no room there, and until there is some.
                let is_pending = timeout(Duration::ZERO, reader.as_ref().writable()).await.is_err();
                if is_full && is_pending {
                    break;
                }
            }
            drop(source);
        };
        let both = async { tokio::join!(sending, filling).0 };
        assert!(matches!(timeout(PATIENCE, both).await, Ok(Broken::Client)));
    }
}
