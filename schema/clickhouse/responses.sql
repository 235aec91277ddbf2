-- Responses of the edge, a row each. host is the name of the machine, request_host the field of the request.
-- (host, epoch, number) names a row.
CREATE TABLE IF NOT EXISTS responses
(
    time DateTime64(6, 'UTC') CODEC(Delta(8), ZSTD(1)) COMMENT 'when the head of the request had arrived',
    pop LowCardinality(String) COMMENT 'site of the machine',
    host LowCardinality(String) COMMENT 'name of the machine',
    epoch UInt64 CODEC(Delta(8), ZSTD(1)) COMMENT 'when the numbering of records began, unix us',
    number UInt64 CODEC(Delta(8), ZSTD(1)) COMMENT 'of the record in its epoch',
    prefix LowCardinality(String) COMMENT 'network of the client, /24 or /56',
    asn Nullable(UInt32) CODEC(ZSTD(1)) COMMENT 'autonomous system of the client',
    region LowCardinality(Nullable(String)) COMMENT 'of the client',
    client_ip IPv6 CODEC(ZSTD(1)) COMMENT 'IPv4 as ::ffff:a.b.c.d',
    client_port UInt16 CODEC(ZSTD(1)),
    method LowCardinality(String),
    request_host LowCardinality(String) COMMENT 'Host field as received',
    path String CODEC(ZSTD(1)) COMMENT 'path and query as received',
    status UInt16 CODEC(ZSTD(1)),
    bytes UInt64 CODEC(T64, ZSTD(1)) COMMENT 'content handed to the kernel, bytes',
    ttfb_us Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'last byte of the request to first of the response, us',
    duration_us UInt64 CODEC(T64, ZSTD(1)) COMMENT 'last byte of the request to last of the response, us',
    goodput_bytes_per_s UInt64 CODEC(T64, ZSTD(1)) COMMENT 'content bytes/s',
    cache LowCardinality(String) COMMENT 'what the cache made of it',
    detail LowCardinality(Nullable(String)) COMMENT 'why that',
    backend LowCardinality(Nullable(String)) COMMENT 'that was chosen last',
    protocol LowCardinality(String),
    cut LowCardinality(Nullable(String)) COMMENT 'why it was not sent whole',
    congestion_control LowCardinality(Nullable(String)) COMMENT 'at the end',
    congestion_control_start LowCardinality(Nullable(String)) COMMENT 'at the start',
    decider LowCardinality(Nullable(String)) COMMENT 'who has set it',
    rtt_us Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'smoothed round trip at the end, us',
    min_rtt_us Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'smallest round trip, us',
    snd_cwnd Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'congestion window, TCP segments',
    delivery_rate_bytes_per_s Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'newest delivery rate sample, bytes/s',
    retransmits Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'TCP segments sent again',
    lost Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'taken for lost, TCP segments',
    pacing_rate_bytes_per_s Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'bytes/s; absent without a limit',
    bundle Nullable(UInt64) CODEC(ZSTD(1)) COMMENT 'number of the bundle that steered',
    rule LowCardinality(Nullable(String)) COMMENT 'of the bundle',
    is_holdout Nullable(Bool) CODEC(ZSTD(1)) COMMENT 'left on the default to compare with',
    experiment LowCardinality(Nullable(String)) COMMENT 'that the connection is in',
    arm LowCardinality(Nullable(String)) COMMENT 'of the experiment',
    refused LowCardinality(Nullable(String)) COMMENT 'what the kernel refused',
    cmcd_sid Nullable(String) CODEC(ZSTD(1)) COMMENT 'session of the player',
    cmcd_st LowCardinality(Nullable(String)) COMMENT 'stream type',
    cmcd_br_kbps Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'encoded bitrate, kbit/s',
    cmcd_bl_ms Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'buffer of the player, ms',
    cmcd_mtp_kbps Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'throughput that the player measured, kbit/s',
    cmcd_bs Nullable(Bool) CODEC(ZSTD(1)) COMMENT 'the player had run dry',
    xid Nullable(UInt64) CODEC(ZSTD(1)) COMMENT 'number of the request in the policy',
    restarts UInt32 CODEC(T64, ZSTD(1)) COMMENT 'how often the policy began again',
    lines Nullable(String) CODEC(ZSTD(1)) COMMENT 'what the policy logged, a line each'
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (pop, prefix, time, client_port)
TTL toDateTime(time) + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;
