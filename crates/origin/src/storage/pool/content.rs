//! Content of a response from storage. Once it is read to its end, its connection is kept.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::connection::Connection;
use super::{Failure, FailureKind, Slot, Stats};

/// Response content, read as it arrives.
#[derive(Debug)]
pub(crate) struct Content {
    incoming: Incoming,
    /// The connection and its slot, until the content has been read.
    held: Option<(Connection, Slot)>,
    pause_max: Duration,
    stats: Arc<Stats>,
}

impl Content {
    pub(super) fn wrap(
        response: Response<Incoming>,
        connection: Connection,
        slot: Slot,
        pause_max: Duration,
        stats: Arc<Stats>,
    ) -> Response<Content> {
        response.map(|incoming| {
            let mut content = Content { incoming, held: Some((connection, slot)), pause_max, stats };
            content.release_at_end();
            content
        })
    }

    /// Waits for the next piece. Returns `None` after the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let Ok(frame) = timeout(self.pause_max, self.incoming.frame()).await else {
                let message = format!("storage sent nothing for {:?}", self.pause_max);
                return Err(Failure::new(FailureKind::BetweenBytes, message));
            };
            match frame {
                Some(Ok(frame)) => {
                    self.release_at_end();
                    // Skip trailers.
                    if let Ok(data) = frame.into_data() {
                        self.stats.read_bytes.inc_by(data.len() as u64);
                        return Ok(Some(data));
                    }
                }
                Some(Err(_)) => {
                    let message = "storage closed the connection in the middle of its response";
                    return Err(Failure::new(FailureKind::Closed, message));
                }
                None => {
                    self.release();
                    return Ok(None);
                }
            }
        }
    }

    /// Reads all content, at most `bytes_max`.
    pub(crate) async fn collect(mut self, bytes_max: usize) -> Result<Bytes, Failure> {
        let mut bytes = BytesMut::new();
        while let Some(piece) = self.next().await? {
            if bytes.len() + piece.len() > bytes_max {
                let message = format!("response from storage is longer than {bytes_max} bytes");
                return Err(Failure::new(FailureKind::Protocol, message));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }

    fn release_at_end(&mut self) {
        if self.incoming.is_end_stream() {
            self.release();
        }
    }

    /// Keeps the connection for the next request.
    fn release(&mut self) {
        if let Some((connection, slot)) = self.held.take() {
            slot.host.idle.push(connection);
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if self.held.is_some() {
            self.stats.abandoned.inc();
        }
    }
}
