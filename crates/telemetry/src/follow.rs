//! Edge follower: forwards an edge's response records to the intake, either from the edge's record
//! stream or within the same process.
//!
//! **Invariant:** once an edge is followed, each of its responses is recorded exactly once or
//! counted as lost, even if either side crashes. Gaps in the record numbers reveal losses, and the
//! spool stores the position together with the records. If an edge crashes, or stops while no
//! follower is connected, its next start reads from its state directory how many records it had
//! numbered and reports that count.

pub mod stream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thalweg_record::{EdgePosition, ResponseRecord, Stage};

use crate::collect::Intake;
use stream::{END, ENDED, EdgeStream, Event, Next, PAUSE_MAX, PAUSE_MIN, connect};

/// Pause between attempts to forward the end of an epoch while the intake is full.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Follows one edge's response records and forwards them to the intake.
#[derive(Debug)]
pub struct EdgeFollower {
    edge: Arc<str>,
    intake: Intake,
    /// Position after the last forwarded record.
    position: Option<EdgePosition>,
    /// Losses reported by the edge and already counted.
    edge_losses_counted: u64,
    /// Next expected record number in this epoch, whether or not the intake had room for the
    /// previous record.
    next_number: u64,
    /// Epoch whose end was forwarded most recently.
    ended_epoch: Option<u64>,
    /// Whether an unreadable record has been logged on this connection.
    has_logged_unreadable: bool,
}

/// An item in an edge's record stream. Its number is passed separately.
#[derive(Debug, Clone)]
pub enum StreamItem {
    /// A response record.
    Record(Arc<ResponseRecord>),
    /// The edge's current epoch ended. All its records have lower numbers than the item.
    End,
    /// An earlier epoch of the edge ended. All its records have lower numbers than the item; those
    /// not yet received are lost.
    EarlierEnd,
}

impl EdgeFollower {
    /// Creates a follower that continues at `position`, or else starts at the first record it
    /// receives.
    pub fn new(edge: Arc<str>, intake: Intake, position: Option<EdgePosition>) -> Self {
        Self {
            edge,
            intake,
            position,
            edge_losses_counted: 0,
            next_number: 0,
            ended_epoch: None,
            has_logged_unreadable: false,
        }
    }

    /// Forwards an item. `edge_losses` is the total number of records reported lost by the edge so
    /// far. Returns whether the intake had room. If not, the record is counted as lost when the
    /// next item is forwarded.
    pub fn forward(&mut self, epoch: u64, number: u64, item: StreamItem, edge_losses: u64) -> bool {
        if number == 0 && !matches!(item, StreamItem::Record(_)) {
            return true; // an epoch without responses
        }
        // Count records as lost if they belong to an earlier epoch and did not fit in the intake.
        if let Some(old) =
            self.position.as_mut().filter(|old| old.epoch != epoch && old.next < self.next_number)
        {
            let lost = [(Stage::Follow, self.next_number - old.next)];
            if !self.intake.push_edge_items(old, &lost, None) {
                return false;
            }
        }
        let start_at = |next| EdgePosition { edge: self.edge.clone(), epoch, next };
        let position = match self.position.take() {
            Some(position) if position.epoch == epoch => position,
            Some(old) => {
                if self.ended_epoch != Some(old.epoch) {
                    tracing::warn!(
                        edge = &*self.edge,
                        "end of an earlier edge epoch unknown, its losses are not counted"
                    );
                }
                start_at(0)
            }
            None => start_at(number), // another agent may have followed earlier records
        };
        let position = self.position.insert(position);
        let is_earlier = matches!(item, StreamItem::EarlierEnd);
        self.next_number = position.next.max(number + u64::from(matches!(item, StreamItem::Record(_))));
        let response = match item {
            StreamItem::Record(response) if number >= position.next => Some(response),
            StreamItem::End | StreamItem::EarlierEnd if number > position.next => None,
            _ => return true, // already forwarded
        };
        let missing = number - position.next;
        let reported = edge_losses.saturating_sub(self.edge_losses_counted);
        let by_edge = if is_earlier { missing } else { missing.min(reported) };
        let lost = [(Stage::Edge, by_edge), (Stage::Follow, missing - by_edge)];
        let had_room = self.intake.push_edge_items(position, &lost, response);
        if had_room && !is_earlier {
            self.edge_losses_counted += by_edge;
        }
        had_room
    }

    /// Forwards the end of an epoch, waiting until the intake has room.
    pub async fn forward_end(&mut self, epoch: u64, number: u64, item: StreamItem, edge_losses: u64) {
        while !self.forward(epoch, number, item.clone(), edge_losses) {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        // Ignore an epoch without responses: the previous epoch remains the last epoch that ended.
        if number > 0 {
            self.ended_epoch = Some(epoch);
        }
    }

    /// Returns the ID of the last forwarded event, or only the epoch if none of its records was
    /// forwarded.
    fn last_event(&self) -> Option<String> {
        let EdgePosition { epoch, next, .. } = self.position.as_ref()?;
        Some(next.checked_sub(1).map_or_else(|| epoch.to_string(), |last| format!("{epoch}-{last}")))
    }

    /// Follows an edge's record stream from its admin address, reconnecting whenever the stream
    /// ends.
    pub async fn run(mut self, addr: SocketAddr) {
        let (mut pause, mut is_logged) = (PAUSE_MIN, false);
        loop {
            let why = match connect(addr, self.last_event().as_deref()).await {
                Ok(Ok(stream)) => {
                    tracing::info!(edge = %addr, "following edge records");
                    (is_logged, self.has_logged_unreadable) = (false, false);
                    let (has_read, end) = self.read_to_end(stream, addr).await;
                    if has_read {
                        pause = PAUSE_MIN;
                    }
                    end
                }
                Ok(Err(error)) | Err(error) => error.chain(),
            };
            if !is_logged {
                tracing::warn!(edge = %addr, why, "cannot follow edge records, retrying");
                is_logged = true;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Forwards events until the stream ends. Returns whether any event arrived, and why the stream
    /// ended.
    async fn read_to_end(&mut self, mut stream: EdgeStream, addr: SocketAddr) -> (bool, String) {
        let mut has_read = false;
        loop {
            match stream.next().await {
                Ok(Next::Event(event)) => {
                    has_read = true;
                    self.forward_event(&event, addr).await;
                }
                Ok(Next::Pause) => {}
                Ok(Next::End(end)) => return (has_read, end.to_string()),
                Err(error) => return (has_read, error.chain()),
            }
        }
    }

    async fn forward_event(&mut self, event: &Event, addr: SocketAddr) {
        let end = match event.name.as_str() {
            "" => return self.forward_record(event, addr),
            END => StreamItem::End,
            ENDED => StreamItem::EarlierEnd,
            _ => return, // `lost` is redundant: the gap in record numbers gives the count
        };
        if let Some((epoch, number)) = epoch_and_number(&event.data) {
            self.forward_end(epoch, number, end, 0).await;
        }
    }

    /// Forwards a record. An unreadable record, such as one of an unknown version, counts as lost
    /// and is logged once per connection.
    fn forward_record(&mut self, event: &Event, addr: SocketAddr) {
        match (epoch_and_number(&event.id), ResponseRecord::from_json(&event.data)) {
            (Some((epoch, number)), Ok(record)) => {
                let _ = self.forward(epoch, number, StreamItem::Record(Arc::new(record)), 0);
            }
            (None, _) => tracing::warn!(edge = %addr, id = event.id, "record without a number"),
            (Some((epoch, number)), Err(error)) => {
                if !std::mem::replace(&mut self.has_logged_unreadable, true) {
                    tracing::warn!(edge = %addr, %error, "unreadable edge records, counted as lost");
                }
                let _ = self.forward(epoch, number + 1, StreamItem::End, 0);
            }
        }
    }
}

/// Parses `EPOCH-NUMBER`.
fn epoch_and_number(text: &str) -> Option<(u64, u64)> {
    let (epoch, number) = text.split_once('-')?;
    Some((epoch.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use thalweg_record::Record;

    use super::*;
    use crate::collect::{Batcher, intake};
    use crate::enrich::Networks;

    fn follower(position: Option<EdgePosition>) -> (EdgeFollower, Batcher) {
        let (intake, batcher) = intake(Networks::open(&[], None).unwrap());
        (EdgeFollower::new("e".into(), intake, position), batcher)
    }

    fn position(epoch: u64, next: u64) -> EdgePosition {
        EdgePosition { edge: "e".into(), epoch, next }
    }

    fn record() -> StreamItem {
        let line = r#"{"v":2,"time":"2026-11-20T23:00:00.123Z","client":"127.0.0.1:50000","method":"GET","host":"a",
            "path":"/","status":200,"bytes":1,"written_us":1,"cache":"hit","protocol":"HTTP/1.1","complete":true}"#;
        StreamItem::Record(Arc::new(ResponseRecord::from_json(line).unwrap()))
    }

    /// Drains the intake and formats its items: responses by record number, losses by count, stage
    /// and the position after them.
    fn out(follower: &EdgeFollower, batcher: Batcher) -> Vec<String> {
        follower.intake.end();
        let mut all = Vec::new();
        batcher.run(|arrivals, _| {
            all.extend(arrivals.iter().map(|arrival| {
                let EdgePosition { epoch, next, .. } = arrival.heard.as_ref().unwrap();
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
    fn gaps_in_numbers_are_counted_as_losses() {
        let (mut follower, batcher) = follower(None);
        assert_eq!(follower.last_event(), None);
        for (epoch, number, edge_losses) in [(1, 40, 0), (1, 41, 0), (1, 41, 0), (1, 45, 1), (2, 2, 1)] {
            assert!(follower.forward(epoch, number, record(), edge_losses));
        }
        assert_eq!(follower.last_event().unwrap(), "2-2");
        assert!([3, 5, 5].into_iter().all(|number| follower.forward(2, number, StreamItem::End, 1)));
        // Records before 40 precede the follower's start, and 41 arrived twice.
        let expected =
            ["1: 40", "1: 41", "1: 1 edge to 43", "1: 2 follow to 45", "1: 45", "2: 2 follow to 2", "2: 2"];
        assert_eq!(out(&follower, batcher), [&expected[..], &["2: 2 follow to 5"]].concat());
    }

    #[test]
    fn restarted_agent_continues_at_its_position() {
        let (mut follower, batcher) = follower(Some(position(1, 7)));
        assert_eq!(follower.last_event().unwrap(), "1-6");
        assert!([6, 7, 9].into_iter().all(|number| follower.forward(1, number, record(), 0)));
        assert_eq!(out(&follower, batcher), ["1: 7", "1: 1 follow to 9", "1: 9"]);
    }

    #[test]
    fn losses_of_earlier_starts_are_counted_once() {
        let (mut follower, batcher) = follower(Some(position(3, 5)));
        // Records of epoch 5 never arrived. After a reconnect, the edge repeats the epoch ends that
        // follow the last event.
        for (epoch, total, last) in [(3, 9, "3-8"), (3, 9, "3-8"), (5, 20, "5-19"), (5, 20, "5-19")] {
            assert!(follower.forward(epoch, total, StreamItem::EarlierEnd, 0));
            assert_eq!(follower.last_event().unwrap(), last);
        }
        // An epoch that ended without a response.
        assert!(follower.forward(6, 0, StreamItem::End, 0));
        assert_eq!(follower.last_event().unwrap(), "5-19");
        assert!(follower.forward(7, 2, record(), 1));
        let expected = ["3: 4 edge to 9", "5: 20 edge to 20", "7: 1 edge to 1", "7: 1 follow to 2", "7: 2"];
        assert_eq!(out(&follower, batcher), expected);
    }

    #[test]
    fn records_dropped_by_a_full_intake_are_counted_as_lost_later() {
        let (mut follower, batcher) = follower(Some(position(1, 0)));
        let mut taken = 0;
        while follower.forward(1, taken, record(), 0) {
            taken += 1;
        }
        let thread = std::thread::spawn(move || {
            let mut counts = (0, 0);
            batcher.run(|arrivals, _| {
                for arrival in arrivals {
                    match arrival.record {
                        Record::Loss(loss) => counts.1 += loss.records,
                        _ => counts.0 += 1,
                    }
                }
            });
            counts
        });
        let started = Instant::now();
        for (epoch, number) in [(1, taken + 3), (2, 4), (3, 5)] {
            while !follower.forward(epoch, number, StreamItem::EarlierEnd, 0) {
                assert!(started.elapsed() < Duration::from_secs(60));
                std::thread::yield_now();
            }
        }
        follower.intake.end();
        assert_eq!(thread.join().unwrap(), (taken, 3 + 4 + 5));
    }
}
