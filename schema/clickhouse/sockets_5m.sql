-- Socket samples in five-minute windows. Read sums with sum(), and sketches (DDSketch, relative
-- accuracy 1 %) with quantilesDDMerge(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)().
CREATE TABLE IF NOT EXISTS sockets_5m
(
    window UInt32 CODEC(Delta(4), ZSTD(1)) COMMENT 'start of the window in Unix seconds, a multiple of 300',
    pop LowCardinality(String) COMMENT 'name of the site (PoP)',
    prefix LowCardinality(String) COMMENT 'client network: /24 or /56',
    asn UInt32 CODEC(ZSTD(1)) COMMENT 'client autonomous system; 0 if unknown',
    region LowCardinality(String) COMMENT 'client region; empty if unknown',
    congestion_control LowCardinality(String) COMMENT 'congestion control; empty if unknown',
    samples SimpleAggregateFunction(sum, UInt64) COMMENT 'number of socket records, regardless of sampling',
    bytes_acked SimpleAggregateFunction(sum, UInt64) COMMENT 'bytes acknowledged',
    bytes_retrans SimpleAggregateFunction(sum, UInt64) COMMENT 'bytes retransmitted',
    segs_out SimpleAggregateFunction(sum, UInt64) COMMENT 'TCP segments sent',
    retransmits SimpleAggregateFunction(sum, UInt64) COMMENT 'TCP segments retransmitted',
    busy_us SimpleAggregateFunction(sum, UInt64) COMMENT 'time with content in flight, us',
    rwnd_limited_us SimpleAggregateFunction(sum, UInt64) COMMENT 'part of busy_us limited by the receive window',
    sndbuf_limited_us SimpleAggregateFunction(sum, UInt64) COMMENT 'part of busy_us limited by the send buffer',
    delivery_rate AggregateFunction(quantilesDD(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99), UInt64) COMMENT 'bytes/s, samples not limited by the application',
    rtt AggregateFunction(quantilesDD(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99), UInt64) COMMENT 'smoothed RTT in us',
    min_rtt AggregateFunction(quantilesDD(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99), UInt64) COMMENT 'minimum RTT in us'
)
ENGINE = AggregatingMergeTree
PARTITION BY toMonday(toDateTime(window, 'UTC'))
ORDER BY (window, pop, prefix, asn, region, congestion_control)
TTL toDateTime(window) + INTERVAL 35 DAY
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS sockets_5m_view TO sockets_5m AS
SELECT
    toUInt32(intDiv(toUnixTimestamp64Second(time), 300) * 300) AS window, pop, prefix,
    ifNull(s.asn, 0) AS asn, ifNull(s.region, '') AS region, ifNull(s.congestion_control, '') AS congestion_control,
    count() AS samples,
    sum(ifNull(s.bytes_acked, 0)) AS bytes_acked,
    sum(ifNull(s.bytes_retrans, 0)) AS bytes_retrans,
    sum(ifNull(s.segs_out, 0)) AS segs_out,
    sum(ifNull(s.retransmits, 0)) AS retransmits,
    sum(ifNull(s.busy_us, 0)) AS busy_us,
    sum(ifNull(s.rwnd_limited_us, 0)) AS rwnd_limited_us,
    sum(ifNull(s.sndbuf_limited_us, 0)) AS sndbuf_limited_us,
    quantilesDDStateIf(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)(
        ifNull(s.delivery_rate_bytes_per_s, 0), ifNull(s.delivery_rate_bytes_per_s > 0 AND NOT s.delivery_rate_app_limited, 0)
    ) AS delivery_rate,
    quantilesDDStateIf(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)(toUInt64(ifNull(s.rtt_us, 0)), ifNull(s.rtt_us > 0, 0)) AS rtt,
    quantilesDDStateIf(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)(
        toUInt64(ifNull(s.min_rtt_us, 0)), ifNull(s.min_rtt_us > 0, 0)
    ) AS min_rtt
FROM sockets AS s
GROUP BY window, pop, prefix, asn, region, congestion_control;
