-- Messages that the consumer could not read, whole: nothing is thrown away because a program is older than its data.
CREATE TABLE IF NOT EXISTS refused
(
    time DateTime64(6, 'UTC') CODEC(Delta(8), ZSTD(1)) COMMENT 'of the message, by Kafka',
    topic LowCardinality(String),
    kafka_partition Int32 COMMENT 'of the topic',
    kafka_offset Int64 CODEC(Delta(8), ZSTD(1)) COMMENT 'in the partition',
    reason String CODEC(ZSTD(1)) COMMENT 'why it cannot be read',
    message String CODEC(ZSTD(1)) COMMENT 'its value'
)
ENGINE = MergeTree
PARTITION BY toStartOfMonth(time)
ORDER BY (topic, kafka_partition, kafka_offset)
TTL toDateTime(time) + INTERVAL 35 DAY
SETTINGS non_replicated_deduplication_window = 10000;
