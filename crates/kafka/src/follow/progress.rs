//! Read progress of a partition, expressed as a time. Once every message before a reported
//! partition end has been read, the progress is the time of that report.
//!
//! **Invariant:** times are from the reader's clock only, and advance only with broker reports.

/// Read progress of a partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// Offset of the next message.
    next: i64,
    /// The last reported end and the time of that report (Unix milliseconds), until every message
    /// before that end has been read.
    end: Option<(i64, i64)>,
    /// Time up to which all messages have been read, in milliseconds since the Unix epoch.
    pub(super) read_to_unix_ms: Option<i64>,
}

impl Progress {
    /// Creates the progress of a partition read from `offset`.
    pub(super) fn from(offset: i64) -> Self {
        Self { next: offset, end: None, read_to_unix_ms: None }
    }

    /// Records that the message at `offset` was read.
    pub(super) fn read(&mut self, offset: i64) {
        self.next = offset + 1;
        self.settle();
    }

    /// Records a reported end and the time of that report.
    pub(super) fn ended(&mut self, end: i64, unix_ms: i64) {
        self.end = Some((end, unix_ms));
        self.settle();
    }

    /// Returns whether every message before the last reported end has been read.
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
        // Another message has been read, but no broker has reported an end, so the time does not
        // advance.
        progress.read(12);
        assert_eq!(progress.read_to_unix_ms, Some(1_000));
        // This report shows that no further message has arrived.
        progress.ended(13, 3_000);
        assert_eq!((progress.read_to_unix_ms, progress.is_at_end()), (Some(3_000), true));
    }
}
