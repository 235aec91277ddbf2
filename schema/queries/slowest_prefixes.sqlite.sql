-- Returns the 50 client networks with the lowest 10th percentile of the delivery rate, among those
-- with at least 30 samples. The slowest network comes first.
-- Includes windows that start between $since (inclusive) and $until (exclusive), in Unix seconds.
WITH sums AS (
    SELECT prefix AS name, sum(samples) AS samples, sum(retransmits) AS retransmits, sum(segs_out) AS segs_out
    FROM sockets_5m
    WHERE window >= $since AND window < $until
    GROUP BY 1
),
rate_buckets AS (
    SELECT prefix AS name, CAST(part.key AS INTEGER) AS bucket, sum(part.value) AS here
    FROM sockets_5m, json_each(delivery_rate) AS part
    WHERE window >= $since AND window < $until
    GROUP BY 1, 2
),
rate_running AS (
    SELECT name, bucket,
        sum(here) OVER (PARTITION BY name ORDER BY bucket) AS upto,
        sum(here) OVER (PARTITION BY name) AS total
    FROM rate_buckets
),
rates AS (
    SELECT name,
        CAST(round(2 * pow(1.01 / 0.99, min(bucket) FILTER (WHERE upto > 0.1 * (total - 1))) / (1.01 / 0.99 + 1)) AS INTEGER) AS p10
    FROM rate_running
    GROUP BY 1
),
rtt_buckets AS (
    SELECT prefix AS name, CAST(part.key AS INTEGER) AS bucket, sum(part.value) AS here
    FROM sockets_5m, json_each(rtt) AS part
    WHERE window >= $since AND window < $until
    GROUP BY 1, 2
),
rtt_running AS (
    SELECT name, bucket,
        sum(here) OVER (PARTITION BY name ORDER BY bucket) AS upto,
        sum(here) OVER (PARTITION BY name) AS total
    FROM rtt_buckets
),
rtts AS (
    SELECT name,
        CAST(round(2 * pow(1.01 / 0.99, min(bucket) FILTER (WHERE upto > 0.5 * (total - 1))) / (1.01 / 0.99 + 1)) AS INTEGER) AS p50
    FROM rtt_running
    GROUP BY 1
)
SELECT name AS prefix, samples,
    rates.p10 AS p10_bytes_per_s,
    rtts.p50 AS p50_rtt_us,
    round(1.0 * retransmits / nullif(segs_out, 0), 6) AS retransmitted_share
FROM sums JOIN rates USING (name) LEFT JOIN rtts USING (name)
WHERE samples >= 30
ORDER BY p10_bytes_per_s, name
LIMIT 50;
