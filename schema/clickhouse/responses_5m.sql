-- Responses in five-minute windows. Read sums with sum(), and sketches (DDSketch, relative accuracy
-- 1 %) with quantilesDDMerge(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)().
CREATE TABLE IF NOT EXISTS responses_5m
(
    window UInt32 CODEC(Delta(4), ZSTD(1)) COMMENT 'start of the window in Unix seconds, a multiple of 300',
    pop LowCardinality(String) COMMENT 'name of the site (PoP)',
    prefix LowCardinality(String) COMMENT 'client network: /24 or /56',
    asn UInt32 CODEC(ZSTD(1)) COMMENT 'client autonomous system; 0 if unknown',
    region LowCardinality(String) COMMENT 'client region; empty if unknown',
    congestion_control LowCardinality(String) COMMENT 'congestion control at the end of the response; empty if unknown',
    cache LowCardinality(String) COMMENT 'cache result',
    request_host LowCardinality(String) COMMENT 'Host field as received, or (other)',
    responses SimpleAggregateFunction(sum, UInt64) COMMENT 'number of responses',
    errors SimpleAggregateFunction(sum, UInt64) COMMENT 'responses with status 500 or above',
    cut SimpleAggregateFunction(sum, UInt64) COMMENT 'incomplete responses',
    bytes SimpleAggregateFunction(sum, UInt64) COMMENT 'content bytes',
    ttfb AggregateFunction(quantilesDD(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99), UInt64) COMMENT 'TTFB in us',
    goodput AggregateFunction(quantilesDD(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99), UInt64) COMMENT 'bytes/s, for responses of which at least 100,000 bytes were acknowledged'
)
ENGINE = AggregatingMergeTree
PARTITION BY toMonday(toDateTime(window, 'UTC'))
ORDER BY (window, pop, prefix, asn, region, congestion_control, cache, request_host)
TTL toDateTime(window) + INTERVAL 35 DAY
SETTINGS non_replicated_deduplication_window = 10000;

-- Clients choose the Host field, so the number of its values is limited. Per block, window and
-- site, the 1,000 most requested hosts have their own rows, unless their names are too long. All
-- other hosts share the name '(other)'.
--
-- If edges sample clients, each row counts as often as its sample_one_in says, up to 1,000 times. A
-- sketch has no weights, so it gets an array that repeats the value.
CREATE MATERIALIZED VIEW IF NOT EXISTS responses_5m_view TO responses_5m AS
SELECT
    window, pop, prefix, asn, region, congestion_control, cache,
    if(nth <= 1000 AND length(own) <= 255, own, '(other)') AS request_host,
    sum(own_responses) AS responses,
    sum(own_errors) AS errors,
    sum(own_cut) AS cut,
    sum(own_bytes) AS bytes,
    quantilesDDMergeState(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)(own_ttfb) AS ttfb,
    quantilesDDMergeState(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)(own_goodput) AS goodput
FROM (
    SELECT *, denseRank() OVER (PARTITION BY window, pop ORDER BY asked DESC, own) AS nth
    FROM (
        WITH least(ifNull(r.sample_one_in, 1), 1000) AS weight
        SELECT
            toUInt32(intDiv(toUnixTimestamp64Second(time), 300) * 300) AS window, pop, prefix,
            ifNull(r.asn, 0) AS asn, ifNull(r.region, '') AS region,
            ifNull(r.congestion_control, '') AS congestion_control,
            cache, r.request_host AS own,
            sum(weight) AS own_responses,
            sumIf(weight, r.status >= 500) AS own_errors,
            sumIf(weight, r.cut IS NOT NULL) AS own_cut,
            sum(r.bytes * weight) AS own_bytes,
            quantilesDDStateArray(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)(
                arrayWithConstant(if(r.ttfb_us > 0, weight, 0), ifNull(r.ttfb_us, 0))
            ) AS own_ttfb,
            quantilesDDStateArray(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)(
                arrayWithConstant(
                    if(r.acked_bytes >= 100000 AND r.goodput_bytes_per_s > 0, weight, 0), ifNull(r.goodput_bytes_per_s, 0)
                )
            ) AS own_goodput,
            sum(own_responses) OVER (PARTITION BY window, pop, own) AS asked
        FROM responses AS r
        GROUP BY window, pop, prefix, asn, region, congestion_control, cache, own
    )
)
GROUP BY window, pop, prefix, asn, region, congestion_control, cache, request_host;
