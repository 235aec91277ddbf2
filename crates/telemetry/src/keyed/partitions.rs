//! Which partitions of a topic are read, and which of these to what was their end. Pure.
//!
//! **Invariant:** a failure on the way to a broker changes nothing: what is read of the other partitions, and of that one before, holds.
//! Only what shows that the topic is gone, or is another one, begins anew.

use std::collections::BTreeSet;

use rdkafka::types::RDKafkaErrorCode;
use twox_hash::XxHash3_64;

/// How far a reader is.
#[derive(Debug, Default)]
pub struct Partitions {
    /// How many the topic has; 0 as long as that is not known, or it is gone.
    count: i32,
    /// Those whose end was not reached since they were begun.
    unread: BTreeSet<i32>,
}

impl Partitions {
    /// The topic has so many. Those of them that are to be read from their beginnings, of all or of one group, if they are to be now.
    pub fn found(&mut self, count: i32, group: Option<&str>) -> Option<&BTreeSet<i32>> {
        if count == self.count {
            return None;
        }
        self.count = count;
        self.unread = match group {
            Some(group) => self.of(group).into_iter().collect(),
            None => (0..count).collect(),
        };
        Some(&self.unread)
    }

    /// What there is of a partition was given. Whether it was not before.
    pub fn ended(&mut self, partition: i32) -> bool {
        self.unread.remove(&partition)
    }

    /// The topic could not be read, or not be asked for.
    pub(super) fn failed(&mut self, cause: Option<RDKafkaErrorCode>) {
        if cause.is_some_and(is_of_another) {
            *self = Self::default();
        }
    }

    /// The partition of a group's keys, while the topic is there.
    pub fn of(&self, group: &str) -> Option<i32> {
        (self.count > 0).then(|| partition_of(group, self.count))
    }

    /// Whether the topic is there, as far as is known.
    pub fn are_there(&self) -> bool {
        self.count > 0
    }

    /// Whether all that a partition had as the reader began was given.
    pub fn has_read(&self, partition: i32) -> bool {
        (0..self.count).contains(&partition) && !self.unread.contains(&partition)
    }

    /// The same of the partition of a group's keys.
    pub fn has_read_of(&self, group: &str) -> bool {
        self.of(group).is_some_and(|partition| self.has_read(partition))
    }
}

/// Whether it says that there is no such topic or partition any more, or that what is there was never read: an offset that is not in it.
fn is_of_another(cause: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        cause,
        Code::UnknownTopicOrPartition
            | Code::UnknownTopic
            | Code::UnknownTopicId
            | Code::UnknownPartition
            | Code::OffsetOutOfRange
            | Code::AutoOffsetReset
            | Code::LogTruncation
    )
}

/// The partition of a group's keys.
pub(super) fn partition_of(group: &str, partitions: i32) -> i32 {
    let place = XxHash3_64::oneshot(group.as_bytes()) % u64::from(partitions.unsigned_abs());
    i32::try_from(place).expect("it is below a number of partitions")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_one_partition_for_good() {
        assert!((1..50).all(|partitions| (0..partitions).contains(&partition_of("fra1", partitions))));
        // Another place would be another topic to who reads and who writes in different versions.
        assert_eq!(["", "fra1", "lhr2"].map(|group| partition_of(group, 12)), [10, 0, 6]);
    }

    #[test]
    fn a_partition_that_is_away_holds_no_other_up() {
        let mut partitions = Partitions::default();
        assert!(!partitions.has_read_of("fra1"));
        assert_eq!(partitions.found(12, None).unwrap().len(), 12);
        let ended: Vec<_> =
            (0..13).filter(|partition| *partition != 6 && partitions.ended(*partition)).collect();
        assert_eq!(ended.len(), 11);
        for cause in [
            Some(RDKafkaErrorCode::BrokerTransportFailure),
            Some(RDKafkaErrorCode::AllBrokersDown),
            Some(RDKafkaErrorCode::OperationTimedOut),
            Some(RDKafkaErrorCode::LeaderNotAvailable),
            None,
        ] {
            partitions.failed(cause);
            assert_eq!(
                (partitions.has_read_of("fra1"), partitions.has_read_of("lhr2")),
                (true, false),
                "{cause:?}"
            );
            assert_eq!(partitions.found(12, None), None, "{cause:?}: what is read is read on");
        }
        assert!(partitions.ended(6) && !partitions.ended(6));
        assert!(partitions.has_read_of("lhr2") && !partitions.has_read(12) && !partitions.has_read(-1));
    }

    #[test]
    fn a_topic_that_is_another_one_is_read_from_its_beginning() {
        for cause in [
            RDKafkaErrorCode::UnknownTopicOrPartition,
            RDKafkaErrorCode::UnknownTopic,
            RDKafkaErrorCode::UnknownPartition,
            RDKafkaErrorCode::AutoOffsetReset,
        ] {
            let mut partitions = Partitions::default();
            assert_eq!(partitions.found(12, Some("lhr2")), Some(&BTreeSet::from([6])));
            assert!(partitions.ended(6) && partitions.has_read_of("lhr2"));
            partitions.failed(Some(cause));
            assert!(!partitions.are_there() && !partitions.has_read_of("lhr2"), "{cause}");
            assert_eq!(partitions.found(12, Some("lhr2")), Some(&BTreeSet::from([6])), "{cause}");
        }
        // So is one that has another number of partitions: keys are in others.
        let mut partitions = Partitions::default();
        partitions.found(1, None);
        assert!(partitions.ended(0));
        assert_eq!(partitions.found(2, None), Some(&BTreeSet::from([0, 1])));
    }
}
