//! Responses of edges: of the one in this process, and of others by the stream of their admin address.
//!
//! **Invariant:** each response of an edge that was followed once is recorded once or counted as lost, whoever is killed: its numbers
//! tell, and the spool has them with the records. How far an edge had come that was killed, or that ended while nobody heard it, its
//! next start tells, which has that in its state directory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thalweg_edge::{Ended, Follower, Records};
use thalweg_record::{Heard, ResponseRecord, Stage};
use thalweg_telemetry::collect::Intake;
use tokio::sync::broadcast::error::RecvError;

use crate::stream::{END, ENDED, Event, Next, PAUSE_MAX, PAUSE_MIN, Stream, connect};

/// What an edge in this process is called in the spool.
pub(super) const OWN: &str = "own";

/// Between two tries to hand on what an edge that has ended told last.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

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
    /// The epoch whose end was told last.
    ended: Option<u64>,
    /// Whether it was said that a record cannot be read, since the edge was connected to.
    is_unreadable: bool,
}

/// What is told of a number.
#[derive(Debug, Clone)]
enum Told {
    /// The response.
    Response(Arc<ResponseRecord>),
    /// That the edge has ended before it.
    End,
    /// That an earlier start of the edge had ended before it: what is missing of that it told nobody.
    Ended,
}

impl Ear {
    /// What an edge tells goes into `intake`, after what was heard of it before.
    pub(super) fn new(edge: Arc<str>, intake: Intake, heard: Option<Heard>) -> Self {
        Self { edge, intake, heard, lost_there: 0, told: 0, ended: None, is_unreadable: false }
    }

    /// Takes what is told of a number, with the count of those that the edge has lost itself. Whether there was room: if not,
    /// it is counted as lost with what comes next.
    fn take(&mut self, epoch: u64, number: u64, told: Told, lost_there: u64) -> bool {
        if number == 0 && !matches!(told, Told::Response(_)) {
            return true; // it began nothing, and does not keep that it was there
        }
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
            // It has begun anew since.
            Some(old) => {
                if self.ended != Some(old.epoch) {
                    tracing::warn!(
                        edge = &*self.edge,
                        "how far an earlier start of the edge went is not known: what is missing of it is not counted"
                    );
                }
                begin(0)
            }
            None => begin(number), // what was before it was followed is not ours: somebody else may have it
        };
        let heard = self.heard.insert(heard);
        let is_over = matches!(told, Told::Ended);
        self.told = heard.next.max(number + u64::from(matches!(told, Told::Response(_))));
        let response = match told {
            Told::Response(response) if number >= heard.next => Some(response),
            Told::End | Told::Ended if number > heard.next => None,
            _ => return true, // it is known
        };
        let missing = number - heard.next;
        let there = if is_over { missing } else { missing.min(lost_there.saturating_sub(self.lost_there)) };
        let lost = [(Stage::Edge, there), (Stage::Follow, missing - there)];
        let is_taken = self.intake.hear(heard, &lost, response);
        if is_taken && !is_over {
            self.lost_there += there;
        }
        is_taken
    }

    /// Takes that an edge, or an earlier start of it, has ended before a number, however long that takes.
    async fn take_end(&mut self, epoch: u64, number: u64, told: Told, lost_there: u64) {
        while !self.take(epoch, number, told.clone(), lost_there) {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        // A start that began nothing was not heard, so the one before is still that which was heard last.
        if number > 0 {
            self.ended = Some(epoch);
        }
    }

    /// The id of the event that was heard last, or the epoch alone where that has been none.
    fn last_event(&self) -> Option<String> {
        let Heard { epoch, next, .. } = self.heard.as_ref()?;
        Some(next.checked_sub(1).map_or_else(|| epoch.to_string(), |last| format!("{epoch}-{last}")))
    }
}

/// Hands on what the edge in this process tells to a follower from its first response on, until it has ended; before that, how far
/// those before it went, if one of them was heard.
pub(super) async fn within(records: Records, mut follower: Follower, intake: Intake, heard: Option<Heard>) {
    let (edge, epoch) = (Arc::<str>::from(OWN), records.epoch());
    let heard = heard.unwrap_or_else(|| Heard { edge: edge.clone(), epoch, next: 0 });
    let ended = records.ended_from(heard.epoch);
    let mut ear = Ear::new(edge, intake, Some(heard));
    for Ended { epoch, total } in ended {
        ear.take_end(*epoch, *total, Told::Ended, 0).await;
    }
    loop {
        match follower.recv().await {
            Ok(told) => {
                // Without room it is counted with the next.
                let _ = ear.take(epoch, told.number, Told::Response(told.record), records.lost());
            }
            Err(RecvError::Lagged(_)) => {} // the next number says how many
            Err(RecvError::Closed) => {
                return ear.take_end(epoch, records.total(), Told::End, records.lost()).await;
            }
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
                let (has_read, end) = read(Stream::new(body), edge, &mut ear).await;
                if has_read {
                    pause = PAUSE_MIN;
                }
                end
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

/// Takes a stream to its end. Whether anything came, and why it has ended.
async fn read(mut stream: Stream, edge: SocketAddr, ear: &mut Ear) -> (bool, String) {
    let mut has_read = false;
    loop {
        match stream.next().await {
            Ok(Next::Event(event)) => {
                has_read = true;
                take(&event, edge, ear).await;
            }
            Ok(Next::Pause) => {}
            Ok(Next::End(end)) => return (has_read, end.to_string()),
            Err(error) => return (has_read, format!("{error:#}")),
        }
    }
}

/// Takes one event of a stream.
async fn take(event: &Event, edge: SocketAddr, ear: &mut Ear) {
    match (event.name.as_str(), numbers(&event.data)) {
        ("", _) => take_record(event, edge, ear),
        (END, Some((epoch, number))) => ear.take_end(epoch, number, Told::End, 0).await,
        (ENDED, Some((epoch, number))) => ear.take_end(epoch, number, Told::Ended, 0).await,
        _ => {} // `lost`: the next number says how many
    }
}

/// Takes a record. One of no known version is counted as lost, and told once a connection.
fn take_record(event: &Event, edge: SocketAddr, ear: &mut Ear) {
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
    fn what_earlier_starts_had_begun_is_counted_once() {
        let (mut ear, batcher) = ear(Some(heard(3, 5)));
        // 5 was never heard; after a connection that broke, the edge tells again from the last that was.
        for (epoch, total, last) in [(3, 9, "3-8"), (3, 9, "3-8"), (5, 20, "5-19"), (5, 20, "5-19")] {
            assert!(ear.take(epoch, total, Told::Ended, 0));
            assert_eq!(ear.last_event().unwrap(), last);
        }
        // One that began nothing, and was told to end.
        assert!(ear.take(6, 0, Told::End, 0));
        assert_eq!(ear.last_event().unwrap(), "5-19");
        assert!(ear.take(7, 2, response(), 1));
        let expected = ["3: 4 edge to 9", "5: 20 edge to 20", "7: 1 edge to 1", "7: 1 follow to 2", "7: 2"];
        assert_eq!(out(&ear, batcher), expected);
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
        for (epoch, number) in [(1, taken + 3), (2, 4), (3, 5)] {
            while !ear.take(epoch, number, Told::Ended, 0) {
                assert!(begun.elapsed() < Duration::from_secs(60));
                std::thread::yield_now();
            }
        }
        ear.intake.end();
        assert_eq!(thread.join().unwrap(), (taken, 3 + 4 + 5));
    }
}
