-- Returns the TTFB distribution since :since_us, grouped by $by: percentiles, and the number of
-- responses in each bucket. Bucket b covers 2^(b/2) to 2^((b+1)/2) us. A record counts as often as its
-- sample_one_in says.
WITH timed AS (
    SELECT $by AS name, ttfb_us, weight,
        sum(weight) OVER (PARTITION BY $by ORDER BY ttfb_us) AS nth,
        sum(weight) OVER (PARTITION BY $by) AS responses
    FROM (SELECT *, min(ifnull(sample_one_in, 1), 1000) AS weight FROM responses)
    WHERE time >= :since_us AND ttfb_us IS NOT NULL
),
groups AS (
    SELECT name, responses,
        min(iif(nth >= 0.50 * responses, ttfb_us, NULL)) AS p50_us,
        min(iif(nth >= 0.95 * responses, ttfb_us, NULL)) AS p95_us,
        min(iif(nth >= 0.99 * responses, ttfb_us, NULL)) AS p99_us
    FROM timed
    GROUP BY name, responses
    ORDER BY responses DESC, name
    LIMIT :limit
),
counts AS (
    SELECT name, CAST(2 * log2(max(ttfb_us, 1)) AS INTEGER) AS bucket, sum(weight) AS responses
    FROM timed
    GROUP BY name, bucket
),
histograms AS (
    SELECT name, json_group_array(json_array(bucket, responses) ORDER BY bucket) AS buckets
    FROM counts
    GROUP BY name
)
SELECT groups.name, groups.responses, p50_us, p95_us, p99_us, buckets
FROM groups JOIN histograms ON groups.name IS histograms.name
ORDER BY groups.responses DESC, groups.name;
