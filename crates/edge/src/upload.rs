//! The content of a request on its way to a backend: from the client's connection through a bounded queue to the
//! fetch, which are tasks of their own.
//!
//! **Invariant:** no content is read from the client before the backend has the head of the request: one that cannot
//! be reached costs no upload.
//! **Invariant:** content whose client breaks it off never ends as if it were whole: the backend's connection closes
//! before its length or its last chunk.

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
    /// `None` is the end.
    pieces: mpsc::Sender<Option<Bytes>>,
    wanted: oneshot::Receiver<()>,
}

/// The backend's end.
#[derive(Debug)]
pub(crate) struct Upload {
    chunked: bool,
    pieces: mpsc::Receiver<Option<Bytes>>,
    wanted: Option<oneshot::Sender<()>>,
    /// A piece in its framing, or what is left of it.
    out: Chain<Chain<Bytes, Bytes>, Bytes>,
    ended: bool,
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
    let out = plain(Bytes::new());
    let upload = Upload { chunked, pieces: told, wanted: Some(want), out, ended: false };
    Some((Source { framing, pieces: tell, wanted }, upload))
}

impl Source {
    /// Waits until a backend has the head of the request.
    pub(crate) async fn is_wanted(&mut self) -> Result<(), NotWanted> {
        (&mut self.wanted).await.map_err(|_| NotWanted)
    }

    /// Hands on the next piece, or the end; waits for room.
    pub(crate) async fn put(&self, piece: Option<Bytes>) -> Result<(), NotWanted> {
        self.pieces.send(piece).await.map_err(|_| NotWanted)
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
            let piece = self.pieces.recv().await.ok_or(Broken::Client)?;
            self.ended = piece.is_none();
            self.out = match piece {
                Some(piece) if self.chunked => chunk(piece),
                None if self.chunked => plain(Bytes::from_static(LAST_CHUNK)),
                piece => plain(piece.unwrap_or_default()),
            };
        }
        if self.out.has_remaining() {
            match timeout(patience, writer.write_buf(&mut self.out)).await {
                Ok(Ok(sent)) if sent > 0 => {}
                _ => return Err(Broken::Backend),
            }
        }
        Ok(self.ended && !self.out.has_remaining())
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
