-- Responses from edges, one row each. host is the machine's name; request_host is the request's
-- Host field. (host, epoch, number) identifies a row.
CREATE TABLE IF NOT EXISTS responses
(
    time DateTime64(6, 'UTC') CODEC(Delta(8), ZSTD(1)) COMMENT 'When the last byte of the request\'s head arrived, in microseconds since the Unix epoch. The JSON line has milliseconds',
    pop LowCardinality(String) COMMENT 'Name of the site (PoP); empty if unnamed',
    host LowCardinality(String) COMMENT 'The machine\'s name',
    epoch UInt64 CODEC(Delta(8), ZSTD(1)) COMMENT 'Start of the record numbering, in microseconds since the Unix epoch; distinguishes the numberings of a host',
    number UInt64 CODEC(Delta(8), ZSTD(1)) COMMENT 'Number of the record within the epoch',
    prefix LowCardinality(String) COMMENT 'The client\'s network: /24 for IPv4, /56 for IPv6',
    asn Nullable(UInt32) CODEC(ZSTD(1)) COMMENT 'Autonomous system number of the client\'s network',
    region LowCardinality(Nullable(String)) COMMENT 'Region of the client\'s network: an ISO 3166-1 country, with the ISO 3166-2 subdivision if known (`DE`, `US-CA`), or the region from a CSV of prefixes',
    client_ip IPv6 CODEC(ZSTD(1)) COMMENT 'Client address and port; never IPv4-mapped, even on a dual-stack listener',
    client_port UInt16 CODEC(ZSTD(1)),
    method LowCardinality(String) COMMENT 'Request method',
    request_host LowCardinality(String) COMMENT '`Host` field as received; empty if the request had none',
    path String CODEC(ZSTD(1)) COMMENT 'Path and query as received',
    status UInt16 CODEC(ZSTD(1)) COMMENT 'Status sent, or the status that would have been sent if the client had stayed',
    bytes UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Content bytes handed to the kernel, without the head and chunk framing',
    ttfb_us Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Time from the last byte of the request to the first byte of the response; absent if no byte was sent',
    duration_us UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Time from the last byte of the request to the last byte of the response, or to the cut',
    goodput_bytes_per_s UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Content bytes per second over the whole response',
    cache LowCardinality(String) COMMENT 'Cache result',
    detail LowCardinality(Nullable(String)) COMMENT 'Reason for the cache result, in a few words; absent if there is nothing to add',
    backend LowCardinality(Nullable(String)) COMMENT 'Last backend chosen for this very request; absent without a policy, or if no backend was chosen',
    protocol LowCardinality(String) COMMENT 'Protocol of the response',
    cut LowCardinality(Nullable(String)) COMMENT 'Why the response was cut; absent if it was complete',
    congestion_control LowCardinality(Nullable(String)) COMMENT 'Congestion control, as read back from the socket',
    congestion_control_start LowCardinality(Nullable(String)) COMMENT 'Congestion control that the kernel chose when the connection was accepted, before any decision; absent in older records',
    decider LowCardinality(Nullable(String)) COMMENT 'Last decider of the congestion control; absent in older records',
    rtt_us Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT '`tcpi_rtt`, smoothed',
    min_rtt_us Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT '`tcpi_min_rtt`; absent before the first sample and before Linux 4.6',
    snd_cwnd Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT '`tcpi_snd_cwnd`, in TCP segments',
    delivery_rate_bytes_per_s Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT '`tcpi_delivery_rate`, the newest sample; absent before Linux 4.9',
    retransmits Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT '`tcpi_total_retrans`: TCP segments retransmitted over the life of the connection',
    lost Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT '`tcpi_lost`: TCP segments in flight considered lost',
    pacing_rate_bytes_per_s Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT '`tcpi_pacing_rate`; absent if the kernel does not limit the rate',
    bundle Nullable(UInt64) CODEC(ZSTD(1)) COMMENT 'Number of the bundle',
    rule LowCardinality(Nullable(String)) COMMENT 'Prefix of the matching rule; absent if no rule matched',
    is_holdout Nullable(Bool) CODEC(ZSTD(1)) COMMENT 'Whether the connection was held out from the rule, for comparison',
    experiment LowCardinality(Nullable(String)) COMMENT 'Experiment that includes the connection; absent if none does',
    arm LowCardinality(Nullable(String)) COMMENT 'The connection\'s arm in the experiment',
    refused LowCardinality(Nullable(String)) COMMENT 'Why the kernel refused the congestion control of the rule or the arm; absent if the kernel accepted it',
    cmcd_sid Nullable(String) CODEC(ZSTD(1)) COMMENT '`sid`: the playback session',
    cmcd_st LowCardinality(Nullable(String)) COMMENT '`st`: live or on demand',
    cmcd_br_kbps Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT '`br`: bitrate of the requested media',
    cmcd_bl_ms Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT '`bl`: media buffered ahead of the playhead',
    cmcd_mtp_kbps Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT '`mtp`: measured throughput',
    cmcd_bs Nullable(Bool) CODEC(ZSTD(1)) COMMENT '`bs`: whether the buffer ran empty since the previous request',
    xid Nullable(UInt64) CODEC(ZSTD(1)) COMMENT 'The policy\'s number for the request; absent without a policy',
    restarts UInt32 CODEC(T64, ZSTD(1)) COMMENT 'Number of restarts of the request by the policy, all under the same `xid`',
    lines Nullable(String) CODEC(ZSTD(1)) COMMENT 'Lines logged by the policy, each preceded by its tag'
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (pop, prefix, time, client_port)
TTL toDateTime(time) + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;
