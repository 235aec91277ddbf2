//! How far a partition is read, told as a time: that at which a broker has said where the partition ends, once it is read so far.
//!
//! **Invariant:** no clock but the reader's has a part in it, and where no broker says anything the time stands still.

/// How far a partition is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// The offset of the next message.
    next: i64,
    /// Where the partition ended, and when that was, as long as it is not read so far.
    end: Option<(i64, i64)>,
    /// Everything before this is read, milliseconds since the Unix epoch.
    pub(super) read_to_unix_ms: Option<i64>,
}

impl Progress {
    /// Of a partition that is read from an offset on.
    pub(super) fn from(offset: i64) -> Self {
        Self { next: offset, end: None, read_to_unix_ms: None }
    }

    /// A message was read.
    pub(super) fn read(&mut self, offset: i64) {
        self.next = offset + 1;
        self.settle();
    }

    /// The partition ended here at a time.
    pub(super) fn ended(&mut self, end: i64, unix_ms: i64) {
        self.end = Some((end, unix_ms));
        self.settle();
    }

    /// Whether all is read of which it is known.
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
    fn a_partition_is_read_to_when_it_ended_where_it_is_read_to() {
        let mut progress = Progress::from(10);
        assert_eq!((progress.read_to_unix_ms, progress.is_at_end()), (None, true));
        progress.ended(12, 1_000);
        assert_eq!((progress.read_to_unix_ms, progress.is_at_end()), (None, false));
        progress.read(10);
        assert_eq!(progress.read_to_unix_ms, None);
        progress.read(11);
        assert_eq!((progress.read_to_unix_ms, progress.is_at_end()), (Some(1_000), true));
        // More comes, and nobody says how much: the time stands still.
        progress.read(12);
        assert_eq!(progress.read_to_unix_ms, Some(1_000));
        // Nothing has come since.
        progress.ended(13, 3_000);
        assert_eq!((progress.read_to_unix_ms, progress.is_at_end()), (Some(3_000), true));
    }
}
