-- Returns the 50 client networks with the lowest 10th percentile of the delivery rate, among those
-- with at least 30 samples. The slowest network comes first.
-- Includes windows that start between $since (inclusive) and $until (exclusive), in Unix seconds.
WITH sums AS (
    SELECT prefix, sum(samples) AS total, sum(retransmits) AS again, sum(segs_out) AS sent,
        quantilesDDMerge(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)(delivery_rate) AS rates, quantilesDDMerge(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)(rtt) AS rtts
    FROM sockets_5m
    WHERE window >= $since AND window < $until
    GROUP BY prefix
)
SELECT prefix, total AS samples,
    toUInt64(round(rates[2])) AS p10_bytes_per_s,
    if(isFinite(rtts[3]), toUInt64(round(rtts[3])), NULL) AS p50_rtt_us,
    round(again / nullIf(sent, 0), 6) AS retransmitted_share
FROM sums
WHERE total >= 30 AND isFinite(rates[2])
ORDER BY p10_bytes_per_s, prefix
LIMIT 50
