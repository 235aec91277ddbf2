//! Responses of edges: of the one in this process, and of others by the stream of their admin address.
//!
//! **Invariant:** each response of an edge that was followed once is recorded once or counted as lost, over restarts of the agent
//! and of the edge: its numbers tell, and the spool has them with the records. Of an edge that was killed, what it had told
//! nobody is not known; nor is, of one that ended, what the agent missed because it was away until the next start.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thalweg_edge::{Follower, Records};
use thalweg_record::{Heard, ResponseRecord, Stage};
use thalweg_telemetry::collect::Intake;
use tokio::sync::broadcast::error::RecvError;

use crate::stream::{END, Event, PAUSE_MAX, PAUSE_MIN, connect, read};

/// What an edge in this process is called in the spool.
const OWN: &str = "own";

/// Between two tries to hand on what an edge that has ended told last.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// The id of an event of no edge: from after that on is from the first that there is.
const FROM_THE_FIRST: &str = "0-0";

/// An edge's responses on their way into the intake.
#[derive(Debug)]
pub(super) struct Ear {
    edge: Arc<str>,
    intake: Intake,
    heard: Option<Heard>,
    /// Responses of which the edge said itself that it lost them, as far as they are counted.
    lost_there: u64,
    /// The number after the last one that was told of that epoch, though there was no room for it.
    told: u64,
    /// Whether it was said that a record cannot be read, since the edge was connected to.
    is_unreadable: bool,
}

/// What is told of a number.
#[derive(Debug)]
enum Told {
    /// The response.
    Response(Arc<ResponseRecord>),
    /// That the edge has ended before it.
    End,
}

impl Ear {
    /// What an edge tells goes into `intake`, after what was heard of it before.
    pub(super) fn new(edge: Arc<str>, intake: Intake, heard: Option<Heard>) -> Self {
        Self { edge, intake, heard, lost_there: 0, told: 0, is_unreadable: false }
    }

    /// Takes what is told of a number, with the count of those that the edge has lost itself. Whether there was room: if not,
    /// it is counted as lost with what comes next.
    fn take(&mut self, epoch: u64, number: u64, told: Told, lost_there: u64) -> bool {
        // What there was no room for, of an edge that has begun anew since.
        if let Some(old) = self.heard.as_mut().filter(|old| old.epoch != epoch && old.next < self.told) {
            let lost = [(Stage::Follow, self.told - old.next)];
            if !self.intake.hear(old, &lost, None) {
                return false;
            }
        }
        let begin = |next| Heard { edge: self.edge.clone(), epoch, next };
        let heard = match self.heard.take() {
            Some(heard) if heard.epoch == epoch => heard,
            Some(_) => begin(0),   // it has begun anew since
            None => begin(number), // what was before it was followed is not ours: somebody else may have it
        };
        let heard = self.heard.insert(heard);
        self.told = heard.next.max(number + u64::from(matches!(told, Told::Response(_))));
        let response = match told {
            Told::Response(response) if number >= heard.next => Some(response),
            Told::End if number > heard.next => None,
            _ => return true, // it is known
        };
        let missing = number - heard.next;
        let there = missing.min(lost_there.saturating_sub(self.lost_there));
        let lost = [(Stage::Edge, there), (Stage::Follow, missing - there)];
        let is_taken = self.intake.hear(heard, &lost, response);
        if is_taken {
            self.lost_there += there;
        }
        is_taken
    }

    /// Takes that an edge has ended before a number, however long that takes.
    async fn take_end(&mut self, epoch: u64, number: u64, lost_there: u64) {
        while !self.take(epoch, number, Told::End, lost_there) {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// The id of the event that was heard last.
    fn last_event(&self) -> Option<String> {
        let Heard { epoch, next, .. } = self.heard.as_ref()?;
        Some(next.checked_sub(1).map_or(FROM_THE_FIRST.to_owned(), |last| format!("{epoch}-{last}")))
    }
}

/// Hands on what the edge in this process tells to a follower from its first response on, until it has ended.
pub(super) async fn within(records: Records, mut follower: Follower, intake: Intake) {
    let (edge, epoch) = (Arc::<str>::from(OWN), records.epoch());
    let mut ear = Ear::new(edge.clone(), intake, Some(Heard { edge, epoch, next: 0 }));
    loop {
        match follower.recv().await {
            Ok(told) => {
                // Without room it is counted with the next.
                let _ = ear.take(epoch, told.number, Told::Response(told.record), records.lost());
            }
            Err(RecvError::Lagged(_)) => {} // the next number says how many
            Err(RecvError::Closed) => return ear.take_end(epoch, records.total(), records.lost()).await,
        }
    }
}

/// Hands on what an edge elsewhere tells, over its restarts.
pub(super) async fn over_http(edge: SocketAddr, mut ear: Ear) {
    let (mut pause, mut is_told) = (PAUSE_MIN, false);
    loop {
        let why = match connect(edge, ear.last_event().as_deref()).await {
            Ok(Ok(body)) => {
                tracing::info!(%edge, "following the responses of an edge");
                (is_told, ear.is_unreadable) = (false, false);
                let mut end = None;
                let ended = read(body, |event| {
                    match event {
                        Some(event) if event.name == END => end = numbers(&event.data),
                        Some(event) => take(event, edge, &mut ear),
                        None => {}
                    }
                    Ok(())
                });
                let ended = ended.await;
                if let Some((epoch, number)) = end {
                    ear.take_end(epoch, number, 0).await;
                }
                match ended {
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

/// Takes one event of a stream. One that is no record of a known version is counted as lost, and told once a connection.
fn take(event: &Event, edge: SocketAddr, ear: &mut Ear) {
    if !event.name.is_empty() {
        return; // `lost`: the next number says how many
    }
    match (numbers(&event.id), ResponseRecord::from_json(&event.data)) {
        (Some((epoch, number)), Ok(record)) => {
            let _ = ear.take(epoch, number, Told::Response(Arc::new(record)), 0);
        }
        (None, _) => tracing::warn!(%edge, id = event.id, "a record of an edge has no number"),
        (Some((epoch, number)), Err(error)) => {
            if !std::mem::replace(&mut ear.is_unreadable, true) {
                tracing::warn!(%edge, %error, "records of an edge cannot be read, and count as lost");
            }
            let _ = ear.take(epoch, number + 1, Told::End, 0);
        }
    }
}

/// An epoch and a number in it.
fn numbers(text: &str) -> Option<(u64, u64)> {
    let (epoch, number) = text.split_once('-')?;
    Some((epoch.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use thalweg_record::Record;
    use thalweg_telemetry::collect::{Batcher, intake};
    use thalweg_telemetry::enrich::Networks;

    use super::*;

    fn ear(heard: Option<Heard>) -> (Ear, Batcher) {
        let (intake, batcher) = intake(Networks::open(&[], None).unwrap());
        (Ear::new("e".into(), intake, heard), batcher)
    }

    fn heard(epoch: u64, next: u64) -> Heard {
        Heard { edge: "e".into(), epoch, next }
    }

    fn response() -> Told {
        let line = r#"{"v":1,"time":"2026-11-20T23:00:00.123Z","client":"127.0.0.1:50000","method":"GET","host":"a",
            "path":"/","status":200,"bytes":1,"duration_us":1,"cache":"hit","protocol":"HTTP/1.1","complete":true}"#;
        Told::Response(Arc::new(ResponseRecord::from_json(line).unwrap()))
    }

    /// What came out of the intake: a response by its number, losses by their count and stage, each with what is heard by then.
    fn out(ear: &Ear, batcher: Batcher) -> Vec<String> {
        ear.intake.end();
        let mut all = Vec::new();
        batcher.run(|arrivals, _| {
            all.extend(arrivals.iter().map(|arrival| {
                let Heard { epoch, next, .. } = arrival.heard.as_ref().unwrap();
                match &arrival.record {
                    Record::Response(_) => format!("{epoch}: {}", next - 1),
                    Record::Loss(loss) => format!("{epoch}: {} {} to {next}", loss.records, loss.stage),
                    Record::Socket(_) => unreachable!(),
                }
            }));
        });
        all
    }

    #[test]
    fn numbers_tell_what_is_missing() {
        let (mut ear, batcher) = ear(None);
        assert_eq!(ear.last_event(), None);
        for (epoch, number, lost_there) in [(1, 40, 0), (1, 41, 0), (1, 41, 0), (1, 45, 1), (2, 2, 1)] {
            assert!(ear.take(epoch, number, response(), lost_there));
        }
        assert_eq!(ear.last_event().unwrap(), "2-2");
        assert!([3, 5, 5].into_iter().all(|number| ear.take(2, number, Told::End, 1)));
        // What was before 40 is not ours, and 41 came twice.
        let expected =
            ["1: 40", "1: 41", "1: 1 edge to 43", "1: 2 follow to 45", "1: 45", "2: 2 follow to 2", "2: 2"];
        assert_eq!(out(&ear, batcher), [&expected[..], &["2: 2 follow to 5"]].concat());
    }

    #[test]
    fn an_agent_that_begins_again_goes_on_where_it_was() {
        let (mut ear, batcher) = ear(Some(heard(1, 7)));
        assert_eq!(ear.last_event().unwrap(), "1-6");
        assert!(
            ear.take(1, 6, response(), 0) && ear.take(1, 7, response(), 0) && ear.take(1, 9, response(), 0)
        );
        assert_eq!(out(&ear, batcher), ["1: 7", "1: 1 follow to 9", "1: 9"]);
    }

    #[test]
    fn what_finds_no_room_is_lost_with_what_comes_next() {
        let (mut ear, batcher) = ear(Some(heard(1, 0)));
        let mut taken = 0;
        while ear.take(1, taken, response(), 0) {
            taken += 1;
        }
        let thread = std::thread::spawn(move || {
            let mut told = (0, 0);
            batcher.run(|arrivals, _| {
                for arrival in arrivals {
                    match arrival.record {
                        Record::Loss(loss) => told.1 += loss.records,
                        _ => told.0 += 1,
                    }
                }
            });
            told
        });
        let begun = Instant::now();
        while !ear.take(1, taken + 3, Told::End, 0) {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        ear.intake.end();
        assert_eq!(thread.join().unwrap(), (taken, 3));
    }
}
