-- Returns how many responses could have shown the rate of HD video, 2.5 Mbit/s, and the share of
-- them that reached it, grouped by $by, with the median of the minimum round-trip time of all
-- responses in microseconds. A response of an edge that samples clients counts as many times as it
-- represents, except in the median.
-- Includes responses from $since (inclusive) to $until (exclusive), in Unix seconds.
-- Groups with the most such responses come first.
WITH found AS (
    SELECT ifNull(responses.$by, defaultValueOfArgumentType(assumeNotNull(responses.$by))) AS name,
        reached_hd, min_rtt_us, toUInt64(least(ifNull(sample_one_in, 1), 1000)) AS weight
    FROM responses
    WHERE time >= toDateTime64($since, 6, 'UTC') AND time < toDateTime64($until, 6, 'UTC')
)
SELECT name AS $by,
    sumIf(weight, reached_hd IS NOT NULL) AS testable,
    sumIf(weight, ifNull(reached_hd, false)) AS reached,
    round(reached / testable, 6) AS hd_ratio,
    quantileExactLow(0.5)(min_rtt_us) AS p50_min_rtt_us
FROM found
GROUP BY name
HAVING testable > 0
ORDER BY testable DESC, name
