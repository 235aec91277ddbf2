-- Returns how many responses could have shown the rate of HD video, 2.5 Mbit/s, and the share of
-- them that reached it, grouped by $by, with the median of the minimum round-trip time of all
-- responses in microseconds. A response of an edge that samples clients counts as many times as it
-- represents, except in the median.
-- Includes responses from $since (inclusive) to $until (exclusive), in Unix seconds.
-- Groups with the most such responses come first.
WITH found AS (
    SELECT ifnull($by, iif('$by' = 'asn', 0, '')) AS name, reached_hd, min_rtt_us,
        min(ifnull(sample_one_in, 1), 1000) AS weight,
        row_number() OVER (PARTITION BY $by ORDER BY min_rtt_us NULLS LAST) AS nth,
        count(min_rtt_us) OVER (PARTITION BY $by) AS measured
    FROM responses
    WHERE time >= $since * 1000000 AND time < $until * 1000000
)
SELECT name AS $by,
    sum(weight) FILTER (WHERE reached_hd IS NOT NULL) AS testable,
    sum(weight * reached_hd) AS reached,
    round(1.0 * sum(weight * reached_hd) / sum(weight) FILTER (WHERE reached_hd IS NOT NULL), 6) AS hd_ratio,
    max(min_rtt_us) FILTER (WHERE nth = (measured + 1) / 2) AS p50_min_rtt_us
FROM found
GROUP BY 1
HAVING count(reached_hd) > 0
ORDER BY testable DESC, name;
