-- Records lost before they had a number: how many, and where, as reported by their agent.
CREATE TABLE IF NOT EXISTS losses
(
    time DateTime64(6, 'UTC') CODEC(Delta(8), ZSTD(1)) COMMENT 'When the loss was noticed, in microseconds since the Unix epoch',
    pop LowCardinality(String) COMMENT 'Name of the site (PoP); empty if unnamed',
    host LowCardinality(String) COMMENT 'The machine\'s name',
    epoch UInt64 CODEC(Delta(8), ZSTD(1)) COMMENT 'Start of the record numbering, in microseconds since the Unix epoch; distinguishes the numberings of a host',
    number UInt64 CODEC(Delta(8), ZSTD(1)) COMMENT 'Number of the record within the epoch',
    stage LowCardinality(String) COMMENT 'Where the records were lost',
    records UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Number of lost records'
)
ENGINE = MergeTree
PARTITION BY toStartOfMonth(time)
ORDER BY (host, time)
TTL toDateTime(time) + INTERVAL 35 DAY
SETTINGS non_replicated_deduplication_window = 10000;
