-- Percentiles of the delivery rate by $by, in bytes/s, over samples that the application did not limit.
-- A socket whose own side has closed has no sample: the kernel would report the rate of the FIN.
-- Windows that start from $since until before $until, in seconds since 1970. Most samples first.
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
