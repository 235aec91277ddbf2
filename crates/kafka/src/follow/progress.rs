//! Read progress of a partition as a time: once everything before a reported end is read, the time
//! of the broker's report.
//!
//! **Invariant:** only the reader's clock is used, and without broker reports the time does not
//! advance.

/// Read progress of a partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// The offset of the next message.
    next: i64,
    /// The last end that a broker reported and the time of that report, until everything before it
    /// is read.
    end: Option<(i64, i64)>,
    /// Everything before this time is read, in milliseconds since the Unix epoch.
    pub(super) read_to_unix_ms: Option<i64>,
}

impl Progress {
    /// Creates the progress of a partition that is read from `offset` on.
    pub(super) fn from(offset: i64) -> Self {
        Self { next: offset, end: None, read_to_unix_ms: None }
    }

    /// Records that the message at `offset` was read.
    pub(super) fn read(&mut self, offset: i64) {
        self.next = offset + 1;
        self.settle();
    }

    /// Records a reported end and the time of the report.
    pub(super) fn ended(&mut self, end: i64, unix_ms: i64) {
        self.end = Some((end, unix_ms));
        self.settle();
    }

    /// Returns whether everything before the last reported end is read.
    pub(super) fn is_at_end(&self) -> bool {
        self.end.is_none()
    }

    fn settle(&mut self) {
        if let Some((_, unix_ms)) = self.end.take_if(|(end, _)| self.next >= *end) {
            self.read_to_unix_ms = Some(unix_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_advances_to_the_time_of_an_end_once_it_is_reached() {
        let mut progress = Progress::from(10);
        assert_eq!((progress.read_to_unix_ms, progress.is_at_end()), (None, true));
        progress.ended(12, 1_000);
        assert_eq!((progress.read_to_unix_ms, progress.is_at_end()), (None, false));
        progress.read(10);
        assert_eq!(progress.read_to_unix_ms, None);
        progress.read(11);
        assert_eq!((progress.read_to_unix_ms, progress.is_at_end()), (Some(1_000), true));
        // More is read, but no broker reports an end: the time does not advance.
        progress.read(12);
        assert_eq!(progress.read_to_unix_ms, Some(1_000));
        // The report shows that nothing arrived since.
        progress.ended(13, 3_000);
        assert_eq!((progress.read_to_unix_ms, progress.is_at_end()), (Some(3_000), true));
    }
}
