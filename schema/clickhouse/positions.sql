-- Highest message position of each source in the tables, by Kafka partition. It identifies messages
-- that Kafka delivers again.
CREATE TABLE IF NOT EXISTS positions
(
    time DateTime('UTC') DEFAULT now() COMMENT 'when the row was written',
    topic LowCardinality(String),
    kafka_partition Int32 COMMENT 'partition of the topic',
    host LowCardinality(String) COMMENT 'machine that wrote the message',
    epoch UInt64 COMMENT 'epoch of the record numbers',
    batch_end UInt64 CODEC(ZSTD(1)) COMMENT 'number after the last record of the batch',
    part UInt32 CODEC(ZSTD(1)) COMMENT 'message in the batch, counted from 0',
    place UInt128 DEFAULT bitOr(bitShiftLeft(toUInt128(batch_end), 32), toUInt128(part)) CODEC(ZSTD(1)) COMMENT 'batch_end and part combined, so that the highest is kept in any order of arrival'
)
ENGINE = ReplacingMergeTree(place)
ORDER BY (topic, kafka_partition, host, epoch)
TTL time + INTERVAL 35 DAY
SETTINGS non_replicated_deduplication_window = 10000;
