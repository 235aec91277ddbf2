-- Records that were lost before they had a number: how many, where, as their agent told.
CREATE TABLE IF NOT EXISTS losses
(
    time DateTime64(6, 'UTC') CODEC(Delta(8), ZSTD(1)) COMMENT 'when it was noticed',
    pop LowCardinality(String) COMMENT 'site of the machine',
    host LowCardinality(String) COMMENT 'name of the machine',
    epoch UInt64 CODEC(Delta(8), ZSTD(1)) COMMENT 'when the numbering of records began, unix us',
    number UInt64 CODEC(Delta(8), ZSTD(1)) COMMENT 'of the record in its epoch',
    stage LowCardinality(String) COMMENT 'edge, follow, events or spool',
    records UInt64 CODEC(T64, ZSTD(1)) COMMENT 'how many were lost'
)
ENGINE = MergeTree
PARTITION BY toStartOfMonth(time)
ORDER BY (host, time)
TTL toDateTime(time) + INTERVAL 35 DAY
SETTINGS non_replicated_deduplication_window = 10000;
