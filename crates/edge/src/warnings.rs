//! Rate limit for warnings that any request can trigger. The first is logged immediately, then at
//! most one every ten seconds, with the number suppressed in between.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Minimum time between two log lines of one kind.
const INTERVAL_MS: u64 = 10_000;

/// Rate limit for one kind of warning.
#[derive(Debug, Default)]
pub(crate) struct WarningLimit {
    /// When the next line may be logged, in Unix milliseconds.
    next_ms: AtomicU64,
    /// Warnings suppressed since the last line.
    repeated: AtomicU64,
}

/// Permission to log one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Warnings suppressed since the last line, if any.
    pub(crate) repeated: Option<u64>,
}

impl WarningLimit {
    pub(crate) const fn new() -> Self {
        Self { next_ms: AtomicU64::new(0), repeated: AtomicU64::new(0) }
    }

    /// Returns `Some` if a warning may be logged at `now_ms`; otherwise, counts the warning as
    /// suppressed.
    pub(crate) fn admit(&self, now_ms: u64) -> Option<Admitted> {
        let next_ms = self.next_ms.load(Relaxed);
        let is_due = now_ms >= next_ms;
        // If several threads find that a line is due, only one logs it.
        if is_due && self.next_ms.compare_exchange(next_ms, now_ms + INTERVAL_MS, Relaxed, Relaxed).is_ok() {
            let repeated = self.repeated.swap(0, Relaxed);
            return Some(Admitted { repeated: (repeated > 0).then_some(repeated) });
        }
        self.repeated.fetch_add(1, Relaxed);
        None
    }
}

/// Logs with `tracing::warn!`, limited by the [`WarningLimit`] in the first argument.
macro_rules! warn_limited {
    ($limit:expr, $($line:tt)+) => {
        if let Some($crate::warnings::Admitted { repeated }) = $limit.admit($crate::clock::now_ms()) {
            tracing::warn!(repeated, $($line)+);
        }
    };
}

pub(crate) use warn_limited;

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::{Event, Metadata, Subscriber, span};

    use super::*;

    /// Collects the `repeated` value of each line.
    #[derive(Default)]
    struct Lines(Mutex<Vec<Option<u64>>>);

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut repeated = Repeated(None);
            event.record(&mut repeated);
            self.0.lock().unwrap().push(repeated.0);
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    struct Repeated(Option<u64>);

    impl Visit for Repeated {
        fn record_u64(&mut self, field: &Field, value: u64) {
            if field.name() == "repeated" {
                self.0 = Some(value);
            }
        }

        fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
    }

    #[test]
    fn line_reports_number_of_suppressed_warnings() {
        let (limit, lines) = (WarningLimit::new(), Arc::new(Lines::default()));
        tracing::subscriber::with_default(lines.clone(), || {
            for repeats in [40, 1, 3] {
                // Pretend that the interval has passed.
                limit.next_ms.store(0, Relaxed);
                for _ in 0..repeats {
                    warn_limited!(limit, "too many connections");
                }
            }
        });
        assert_eq!(*lines.0.lock().unwrap(), [None, Some(39), None]);
    }

    #[test]
    fn repeated_warnings_become_one_line_per_interval() {
        let limit = WarningLimit::new();
        let start_ms = 1_000_000;
        let lines = |from_ms: u64, count: u64| {
            let admitted = (from_ms..from_ms + count).filter_map(|now_ms| limit.admit(now_ms));
            admitted.map(|admitted| admitted.repeated).collect::<Vec<_>>()
        };
        assert_eq!(lines(start_ms, 40), [None], "only the first warning is logged, immediately");
        assert_eq!(lines(start_ms + INTERVAL_MS - 1, 1), []);
        assert_eq!(lines(start_ms + INTERVAL_MS, 2), [Some(40)]);
        assert_eq!(lines(start_ms + 3 * INTERVAL_MS, 1), [Some(1)]);
        assert_eq!(lines(start_ms + 4 * INTERVAL_MS, 1), [None], "no warning was suppressed in between");
    }

    #[test]
    fn clock_set_back_delays_lines_at_most_by_its_step() {
        let limit = WarningLimit::new();
        assert!(limit.admit(50_000).is_some());
        assert!(limit.admit(10_000).is_none());
        assert!(limit.admit(50_000 + INTERVAL_MS).is_some());
    }
}
