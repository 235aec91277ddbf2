//! Content of a posted batch, received within limits on its size, time and rate.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use futures_util::StreamExt;
use thalweg_surface::Refusal;
use tokio::time::{Instant, timeout_at};

/// Maximum size of a batch in bytes: slightly more than the largest batch in an agent's spool.
const BATCH_BYTES_MAX: usize = 33 << 20;
/// Maximum time to receive a batch.
const BATCH_TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum time by which a batch may lag behind [`BATCH_BYTES_PER_S_MIN`].
const BATCH_GRACE: Duration = Duration::from_secs(5);
/// Minimum rate at which a batch must arrive, so that slow senders cannot keep others waiting.
const BATCH_BYTES_PER_S_MIN: u64 = 64 << 10;

/// Receives a batch.
///
/// # Errors
///
/// Returns a refusal if the batch is too large, arrives too slowly, or is incomplete.
pub(crate) async fn read_batch(content: Body) -> Result<Bytes, Refusal> {
    let started = Instant::now();
    let mut pieces = content.into_data_stream();
    let mut batch = Vec::new();
    loop {
        let expected = BATCH_GRACE + Duration::from_secs(batch.len() as u64 / BATCH_BYTES_PER_S_MIN);
        let Ok(piece) = timeout_at(started + expected.min(BATCH_TIME_MAX), pieces.next()).await else {
            let why = format!("batch too slow: {} bytes in {} s", batch.len(), started.elapsed().as_secs());
            return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, why));
        };
        let Some(piece) = piece.transpose().map_err(Refusal::bad_request)? else { return Ok(batch.into()) };
        if batch.len() + piece.len() > BATCH_BYTES_MAX {
            let why = format!("batch is longer than {BATCH_BYTES_MAX} bytes");
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        batch.extend_from_slice(&piece);
    }
}
