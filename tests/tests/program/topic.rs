//! The state of a Kafka topic after all writes.

use std::collections::{BTreeMap, BTreeSet};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::{ClientConfig, Message as _, Offset, TopicPartitionList};

use super::tables::DELIVERY_MAX;

/// Creates a client that names a group, but neither joins it nor commits offsets.
fn client(brokers: &str, group: &str) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("group.id", group);
    config.set("enable.auto.commit", "false").set("enable.partition.eof", "true").create().unwrap()
}

/// Returns all partitions of a topic.
fn partitions(client: &BaseConsumer, topic: &str) -> TopicPartitionList {
    let metadata = client.fetch_metadata(Some(topic), DELIVERY_MAX).unwrap();
    let mut list = TopicPartitionList::new();
    for partition in metadata.topics()[0].partitions() {
        list.add_partition(topic, partition.id());
    }
    list
}

/// Returns whether a group has read and committed all of a topic.
pub fn is_read(brokers: &str, topic: &str, group: &str) -> bool {
    let client = client(brokers, group);
    let committed = client.committed_offsets(partitions(&client, topic), DELIVERY_MAX).unwrap();
    committed.elements().iter().all(|one| {
        let (_, end) = client.fetch_watermarks(topic, one.partition(), DELIVERY_MAX).unwrap();
        end == 0 || one.offset() == Offset::Offset(end)
    })
}

/// Returns the partitions in which each key appears.
pub fn partitions_by_key(brokers: &str, topic: &str) -> BTreeMap<String, BTreeSet<i32>> {
    let client = client(brokers, "reader");
    let mut list = partitions(&client, topic);
    list.set_all_offsets(Offset::Beginning).unwrap();
    client.assign(&list).unwrap();
    let (mut by_key, mut open) = (BTreeMap::<_, BTreeSet<_>>::new(), list.count());
    while open > 0 {
        match client.poll(DELIVERY_MAX).expect("reading to the end of a partition must not time out") {
            Ok(message) => {
                let key = message.key_view::<str>().map(|key| key.unwrap().to_owned());
                key.map(|key| by_key.entry(key).or_default().insert(message.partition()));
            }
            Err(KafkaError::PartitionEOF(_)) => open -= 1,
            Err(error) => panic!("{error}"),
        }
    }
    by_key
}
