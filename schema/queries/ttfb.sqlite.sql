-- Returns percentiles of TTFB in microseconds for each five-minute window.
-- Includes windows that start between $since (inclusive) and $until (exclusive), in Unix seconds.
-- The oldest window comes first.
WITH sums AS (
    SELECT window AS name, sum(responses) AS responses
    FROM responses_5m
    WHERE window >= $since AND window < $until
    GROUP BY 1
),
buckets AS (
    SELECT window AS name, CAST(part.key AS INTEGER) AS bucket, sum(part.value) AS here
    FROM responses_5m, json_each(ttfb) AS part
    WHERE window >= $since AND window < $until
    GROUP BY 1, 2
),
running AS (
    SELECT name, bucket,
        sum(here) OVER (PARTITION BY name ORDER BY bucket) AS upto,
        sum(here) OVER (PARTITION BY name) AS total
    FROM buckets
),
quantiles AS (
    SELECT name,
        CAST(round(2 * pow(1.01 / 0.99, min(bucket) FILTER (WHERE upto > 0.5 * (total - 1))) / (1.01 / 0.99 + 1)) AS INTEGER) AS p50_us,
        CAST(round(2 * pow(1.01 / 0.99, min(bucket) FILTER (WHERE upto > 0.95 * (total - 1))) / (1.01 / 0.99 + 1)) AS INTEGER) AS p95_us,
        CAST(round(2 * pow(1.01 / 0.99, min(bucket) FILTER (WHERE upto > 0.99 * (total - 1))) / (1.01 / 0.99 + 1)) AS INTEGER) AS p99_us
    FROM running
    GROUP BY 1
)
SELECT name AS window, responses, p50_us, p95_us, p99_us
FROM sums LEFT JOIN quantiles USING (name)
ORDER BY window;
