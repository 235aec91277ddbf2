-- Returns percentiles of the delivery rate in bytes/s, grouped by $by. The percentiles exclude
-- samples limited by the application, and those of a FIN sent alone. The number of samples includes
-- them.
-- Includes windows that start between $since (inclusive) and $until (exclusive), in Unix seconds.
-- Groups with the most samples come first.
WITH sums AS (
    SELECT $by, sum(samples) AS total, quantilesDDMerge(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)(delivery_rate) AS q
    FROM sockets_5m
    WHERE window >= $since AND window < $until
    GROUP BY $by
)
SELECT $by, total AS samples,
    if(isFinite(q[1]), toUInt64(round(q[1])), NULL) AS p5,
    if(isFinite(q[2]), toUInt64(round(q[2])), NULL) AS p10,
    if(isFinite(q[3]), toUInt64(round(q[3])), NULL) AS p50,
    if(isFinite(q[4]), toUInt64(round(q[4])), NULL) AS p90
FROM sums
ORDER BY samples DESC, $by
