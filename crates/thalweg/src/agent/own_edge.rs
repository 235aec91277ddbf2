//! Follower of the in-process edge: passes its response records to the agent's intake without a
//! connection.

use std::sync::Arc;

use thalweg_edge::{EndedRun, FollowError, Follower, KEEP_ALIVE, Records};
use thalweg_record::EdgePosition;
use thalweg_telemetry::collect::Intake;
use thalweg_telemetry::follow::stream::SILENCE_MAX;
use thalweg_telemetry::follow::{EdgeFollower, StreamItem};

const _: () = assert!(
    3 * KEEP_ALIVE.as_secs() <= SILENCE_MAX.as_secs(),
    "keep-alives must be frequent enough that an idle edge never times out"
);

/// Name of the in-process edge in the spool.
pub(super) const OWN: &str = "own";

/// Forwards all response records until the edge stops. First reports the totals of the epochs that
/// have ended since `position`, so that the records missed in them are counted.
pub(super) async fn follow(
    records: Records,
    mut responses: Follower,
    intake: Intake,
    position: Option<EdgePosition>,
) {
    let (edge, epoch) = (Arc::<str>::from(OWN), records.epoch());
    let position = position.unwrap_or_else(|| EdgePosition { edge: edge.clone(), epoch, next: 0 });
    let ended = records.ended_from(position.epoch);
    let mut follower = EdgeFollower::new(edge, intake, Some(position));
    for EndedRun { epoch, total } in ended {
        follower.forward_end(*epoch, *total, StreamItem::EarlierEnd, 0).await;
    }
    loop {
        match responses.recv().await {
            Ok(response) => {
                // If the intake is full, the record is dropped, and counted as lost when the next
                // record arrives.
                let item = StreamItem::Record(response.record);
                let _ = follower.forward(epoch, response.number, item, records.lost());
            }
            Err(FollowError::Lagged(_)) => {} // the next record number shows how many were missed
            Err(FollowError::Closed) => {
                return follower.forward_end(epoch, records.total(), StreamItem::End, records.lost()).await;
            }
        }
    }
}
