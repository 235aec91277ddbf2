//! The thread that reads Kafka's topic, where records come that way.
//!
//! Reading begins with the oldest window that may still be open: a controller that was killed has its windows whole again. What it had
//! decided it is not asked to decide again.

use std::thread;
use std::time::Duration;

use thalweg_control::Settings;
use thalweg_telemetry::Error;
use thalweg_telemetry::tail::{Read, Tail};

use crate::engine::{Message, WeakHandle, held_s_max, now_unix_s};

/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads until nobody takes what is read.
pub(crate) fn read(mut tail: Tail, settings: &Settings, handle: &WeakHandle) {
    let figures = &handle.shared.figures;
    let since_unix_ms = i64::try_from(oldest_open_s(settings, now_unix_s()) * 1000).unwrap_or(i64::MAX);
    let (mut told, mut read_to) = (None, None);
    while handle.is_open() {
        let read = tail.read(since_unix_ms);
        tell(&mut told, &read);
        match read {
            Ok(Read::Batch(batch)) => {
                if handle.send(Message::Read(batch)).is_none() {
                    return;
                }
            }
            Ok(Read::Repeated) => {
                figures.messages_repeated.inc();
            }
            Ok(Read::Unreadable(_)) => {
                figures.messages_refused.inc();
            }
            Ok(Read::Nothing) => {}
            Err(_) => thread::sleep(PAUSE),
        }
        let unix_s = tail.read_to_unix_ms().and_then(|ms| u64::try_from(ms / 1000).ok());
        if unix_s != read_to {
            read_to = unix_s;
            if handle.send(Message::ReadTo(unix_s)).is_none() {
                return;
            }
        }
    }
}

/// Logs a failure that is another than before, and the end of one.
fn tell(told: &mut Option<String>, read: &Result<Read, Error>) {
    let cause = |error: &Error| {
        std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default()
    };
    let now = match read {
        Ok(Read::Unreadable(why)) => Some(format!("a message holds no records: {why}")),
        Ok(Read::Nothing) if told.is_some() => return,
        Ok(_) => None,
        Err(error) => Some(format!("{error}{}", cause(error))),
    };
    match &now {
        Some(error) if told.as_ref() != Some(error) => {
            tracing::warn!(error, "cannot read records from Kafka");
        }
        None if told.is_some() => tracing::info!("records are read from Kafka again"),
        _ => {}
    }
    *told = now;
}

/// The start of the oldest window that may take records at a time.
fn oldest_open_s(settings: &Settings, now_unix_s: u64) -> u64 {
    now_unix_s.saturating_sub(settings.late_s + held_s_max(settings)) / settings.window_s * settings.window_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_begins_with_the_oldest_open_window() {
        let settings = Settings::default();
        assert_eq!(oldest_open_s(&settings, 1_800_000_059), 1_799_998_800);
        assert_eq!(oldest_open_s(&settings, 1_800_000_060), 1_799_999_100);
        // No window is read again that is not known to have been decided.
        let short = Settings { window_s: 10, late_s: 5, history_windows: 8, ..Settings::default() };
        assert_eq!(oldest_open_s(&short, 1_800_000_000), 1_800_000_000 - 70);
    }
}
