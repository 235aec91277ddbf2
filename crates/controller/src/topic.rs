//! Thread that reads records from the Kafka topic, if one is configured.
//!
//! Reading starts at the oldest window that may still be open, so that the controller sees complete
//! windows again after a crash. Windows already decided are not decided again.

use std::thread;
use std::time::Duration;

use thalweg_control::Settings;
use thalweg_kafka::{Error, Followed, Follower};
use thalweg_record::{Batch, Source, is_name};

use crate::access::Access;
use crate::engine::{Message, WeakHandle, held_s_max, now_unix_s};
use crate::intake::{self, Dropped};

/// Pause after a read error.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads the topic until the engine stops.
pub(crate) fn read(mut follower: Follower, settings: &Settings, access: &Access, handle: &WeakHandle) {
    let metrics = &handle.shared.metrics;
    let since_unix_ms = i64::try_from(oldest_open_s(settings, now_unix_s()) * 1000).unwrap_or(i64::MAX);
    let (mut logged, mut read_to) = (None, None);
    while handle.is_open() {
        let read = follower.read(since_unix_ms);
        log_change(&mut logged, &read);
        match read {
            Ok(Followed::Batch(mut batch)) => {
                intake::count(metrics, &filter(access, &mut batch));
                if handle.send(Message::KafkaRecords(batch)).is_none() {
                    return;
                }
            }
            Ok(Followed::Repeated) => {
                metrics.messages_repeated.inc();
            }
            Ok(Followed::Unreadable(_)) => {
                metrics.messages_refused.inc();
            }
            Ok(Followed::Nothing) => {}
            Err(_) => thread::sleep(PAUSE),
        }
        let unix_s = follower.read_to_unix_ms().and_then(|ms| u64::try_from(ms / 1000).ok());
        if unix_s != read_to {
            read_to = unix_s;
            if handle.send(Message::KafkaReadTo(unix_s)).is_none() {
                return;
            }
        }
    }
}

/// Removes the records that are not accepted. Kafka's own access control decides who may write to
/// the topic.
fn filter(access: &Access, batch: &mut Batch) -> Dropped {
    let Source { pop, host, .. } = &batch.source;
    let is_named = (pop.is_empty() || is_name(pop)) && is_name(host);
    if !is_named || !access.has_reporter(pop, host) {
        let dropped = std::mem::take(&mut batch.entries).len();
        let (foreign, invalid) = if is_named { (dropped, 0) } else { (0, dropped) };
        return Dropped { foreign, invalid, over_limit: 0 };
    }
    Dropped { invalid: intake::drop_invalid(batch), ..Dropped::default() }
}

/// Logs an error if it differs from the previous one, and logs the recovery from an error.
fn log_change(logged: &mut Option<String>, read: &Result<Followed, Error>) {
    let now = match read {
        Ok(Followed::Unreadable(why)) => Some(format!("invalid message: {why}")),
        Ok(Followed::Nothing) if logged.is_some() => return,
        Ok(_) => None,
        Err(error) => Some(format!("{error}: {}", error.cause)),
    };
    match &now {
        Some(error) if logged.as_ref() != Some(error) => {
            tracing::warn!(error, "cannot read records from Kafka");
        }
        None if logged.is_some() => tracing::info!("resumed reading records from Kafka"),
        _ => {}
    }
    *logged = now;
}

/// Returns the start of the oldest window that may still accept records at `now_unix_s`.
fn oldest_open_s(settings: &Settings, now_unix_s: u64) -> u64 {
    now_unix_s.saturating_sub(settings.late_s + held_s_max(settings)) / settings.window_s * settings.window_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_starts_at_the_oldest_open_window() {
        let settings = Settings::default();
        assert_eq!(oldest_open_s(&settings, 1_800_000_059), 1_799_998_800);
        assert_eq!(oldest_open_s(&settings, 1_800_000_060), 1_799_999_100);
        // Reading must not go back further than windows are recognised as already decided.
        let short = Settings { window_s: 10, late_s: 5, history_windows: 8, ..Settings::default() };
        assert_eq!(oldest_open_s(&short, 1_800_000_000), 1_800_000_000 - 70);
    }
}
