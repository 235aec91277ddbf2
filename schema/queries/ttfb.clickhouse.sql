-- Returns percentiles of TTFB in microseconds for each five-minute window.
-- Includes windows that start between $since (inclusive) and $until (exclusive), in Unix seconds.
-- The oldest window comes first.
WITH sums AS (
    SELECT window, sum(responses) AS total, quantilesDDMerge(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)(ttfb) AS q
    FROM responses_5m
    WHERE window >= $since AND window < $until
    GROUP BY window
)
SELECT window, total AS responses,
    if(isFinite(q[3]), toUInt64(round(q[3])), NULL) AS p50_us,
    if(isFinite(q[5]), toUInt64(round(q[5])), NULL) AS p95_us,
    if(isFinite(q[6]), toUInt64(round(q[6])), NULL) AS p99_us
FROM sums
ORDER BY window
