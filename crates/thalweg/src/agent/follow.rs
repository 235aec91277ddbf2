//! Responses of edges: of the one in this process, and of others by the stream of their admin address.
//!
//! **Invariant:** a response of an edge that was followed once is recorded or counted as lost, as long as that edge runs: its
//! numbers tell. Of an edge that was killed, what it had not told is not known.

use std::net::SocketAddr;
use std::sync::Arc;

use thalweg_edge::Records;
use thalweg_record::{Record, ResponseRecord, Stage};
use thalweg_telemetry::collect::Intake;
use tokio::sync::broadcast::error::RecvError;

use crate::stream::{Event, PAUSE_MAX, PAUSE_MIN, connect, read};

/// What was heard of an edge last.
#[derive(Debug, Default)]
struct Heard {
    epoch: Option<u64>,
    next: u64,
}

impl Heard {
    /// How many records are missing before this one. Those from before it was followed are not: somebody else may have them.
    fn missing_before(&mut self, epoch: u64, number: u64) -> u64 {
        let missing = match self.epoch {
            Some(known) if known == epoch => number.saturating_sub(self.next),
            Some(_) => number, // it has begun anew since
            None => 0,
        };
        (self.epoch, self.next) = (Some(epoch), number + 1);
        missing
    }
}

/// Hands on what the edge in this process tells, until that has ended.
pub(super) async fn within(records: Records, intake: Intake) {
    let (epoch, mut follower, mut heard) = (records.epoch(), records.follow(), Heard::default());
    let mut lost_there = records.lost();
    loop {
        match follower.recv().await {
            Ok(told) => {
                let missing = heard.missing_before(epoch, told.number);
                // What never reached the stream is the edge's loss, the rest is this follower's.
                let there = missing.min(records.lost() - lost_there);
                lost_there += there;
                intake.lost(Stage::Edge, there);
                intake.lost(Stage::Follow, missing - there);
                intake.put(Record::Response(told.record), Stage::Follow);
            }
            Err(RecvError::Lagged(_)) => {} // the next number says how many
            Err(RecvError::Closed) => return,
        }
    }
}

/// Hands on what an edge elsewhere tells, over its restarts.
pub(super) async fn over_http(edge: SocketAddr, intake: Intake) {
    let (mut heard, mut pause, mut is_told) = (Heard::default(), PAUSE_MIN, false);
    loop {
        let why = match connect(edge).await {
            Ok(Ok(body)) => {
                tracing::info!(%edge, "following the responses of an edge");
                is_told = false;
                let ended = read(body, |event| {
                    if let Some(event) = event {
                        take(event, edge, &mut heard, &intake);
                    }
                    Ok(())
                });
                match ended.await {
                    Ok((has_read, end)) => {
                        if has_read {
                            pause = PAUSE_MIN;
                        }
                        end.to_string()
                    }
                    Err(error) => format!("{error:#}"),
                }
            }
            Ok(Err(error)) | Err(error) => format!("{error:#}"),
        };
        if !is_told {
            tracing::warn!(%edge, why, "the responses of an edge are not to be had; trying again");
            is_told = true;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Takes one event of a stream. One that is no record of a known version is told, and counted as lost.
fn take(event: &Event, edge: SocketAddr, heard: &mut Heard, intake: &Intake) {
    if !event.name.is_empty() {
        return; // `lost`: the next number says how many
    }
    let numbers = event
        .id
        .split_once('-')
        .and_then(|(epoch, number)| Some((epoch.parse().ok()?, number.parse().ok()?)));
    if let Some((epoch, number)) = numbers {
        intake.lost(Stage::Follow, heard.missing_before(epoch, number));
    }
    match ResponseRecord::from_json(&event.data) {
        Ok(record) => intake.put(Record::Response(Arc::new(record)), Stage::Follow),
        Err(error) => {
            tracing::warn!(%edge, %error, "a record of an edge cannot be read");
            intake.lost(Stage::Follow, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_what_is_missing() {
        let mut heard = Heard::default();
        assert_eq!(heard.missing_before(1, 40), 0, "what was before is not ours");
        assert_eq!(heard.missing_before(1, 41), 0);
        assert_eq!(heard.missing_before(1, 45), 3);
        assert_eq!(heard.missing_before(2, 2), 2, "another start of the edge");
        assert_eq!(heard.missing_before(2, 3), 0);
    }
}
