-- Returns percentiles of goodput in bytes/s, grouped by $by: acknowledged bytes per second of busy
-- time. The percentiles cover responses of which at least 100,000 bytes were acknowledged. The
-- numbers of responses and bytes cover all responses.
-- Includes windows that start between $since (inclusive) and $until (exclusive), in Unix seconds.
-- Groups with the most responses come first.
WITH sums AS (
    SELECT $by, sum(responses) AS total, sum(bytes) AS total_bytes, quantilesDDMerge(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)(goodput) AS q
    FROM responses_5m
    WHERE window >= $since AND window < $until
    GROUP BY $by
)
SELECT $by, total AS responses, total_bytes AS bytes,
    if(isFinite(q[1]), toUInt64(round(q[1])), NULL) AS p5,
    if(isFinite(q[2]), toUInt64(round(q[2])), NULL) AS p10,
    if(isFinite(q[3]), toUInt64(round(q[3])), NULL) AS p50,
    if(isFinite(q[4]), toUInt64(round(q[4])), NULL) AS p90
FROM sums
ORDER BY responses DESC, $by
