-- How far the messages of each machine are in the tables, by partition: a message of Kafka that comes again is known by it.
CREATE TABLE IF NOT EXISTS positions
(
    time DateTime('UTC') DEFAULT now() COMMENT 'when it was written',
    topic LowCardinality(String),
    kafka_partition Int32 COMMENT 'of the topic',
    host LowCardinality(String) COMMENT 'machine that wrote it',
    epoch UInt64 COMMENT 'of its numbers',
    batch_end UInt64 CODEC(ZSTD(1)) COMMENT 'number after the last record of its batch',
    part UInt32 CODEC(ZSTD(1)) COMMENT 'message in that batch, from 0',
    place UInt128 DEFAULT bitOr(bitShiftLeft(toUInt128(batch_end), 32), toUInt128(part)) CODEC(ZSTD(1)) COMMENT 'both, so that the highest is kept in whatever order they come'
)
ENGINE = ReplacingMergeTree(place)
ORDER BY (topic, kafka_partition, host, epoch)
TTL time + INTERVAL 35 DAY
SETTINGS non_replicated_deduplication_window = 10000;
