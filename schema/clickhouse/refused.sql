-- Messages that the consumer could not decode, stored unchanged, so that no message is lost when
-- the program is older than its data.
CREATE TABLE IF NOT EXISTS refused
(
    time DateTime64(6, 'UTC') CODEC(Delta(8), ZSTD(1)) COMMENT 'time of the message, from Kafka',
    topic LowCardinality(String),
    kafka_partition Int32 COMMENT 'partition of the topic',
    kafka_offset Int64 CODEC(Delta(8), ZSTD(1)) COMMENT 'offset in the partition',
    reason String CODEC(ZSTD(1)) COMMENT 'why the message could not be decoded',
    message String CODEC(ZSTD(1)) COMMENT 'value of the message'
)
ENGINE = MergeTree
PARTITION BY toStartOfMonth(time)
ORDER BY (topic, kafka_partition, kafka_offset)
TTL toDateTime(time) + INTERVAL 35 DAY
SETTINGS non_replicated_deduplication_window = 10000;
