-- Records lost before they had a number: how many, and where, as reported by their agent.
CREATE TABLE IF NOT EXISTS losses
(
    time DateTime64(6, 'UTC') CODEC(Delta(8), ZSTD(1)) COMMENT 'When the loss was detected, in microseconds since the Unix epoch',
    pop LowCardinality(String) COMMENT 'Name of the site (PoP); empty if unnamed',
    host LowCardinality(String) COMMENT 'Name of the agent\'s machine',
    epoch UInt64 CODEC(Delta(8), ZSTD(1)) COMMENT 'When the record numbering started, in microseconds since the Unix epoch. Whenever numbering restarts on a host, a new epoch starts',
    number UInt64 CODEC(Delta(8), ZSTD(1)) COMMENT 'Record number within the epoch',
    stage LowCardinality(String) COMMENT 'Where the records were lost',
    records UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Number of lost records'
)
ENGINE = MergeTree
PARTITION BY toStartOfMonth(time)
ORDER BY (host, time)
TTL toDateTime(time) + INTERVAL 35 DAY
SETTINGS non_replicated_deduplication_window = 10000;
