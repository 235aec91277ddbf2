-- Returns percentiles of the delivery rate in bytes/s, grouped by $by. The percentiles exclude
-- samples limited by the application, and those of a FIN sent alone. The number of samples includes
-- them.
-- Includes windows that start between $since (inclusive) and $until (exclusive), in Unix seconds.
-- Groups with the most samples come first.
WITH sums AS (
    SELECT $by AS name, sum(samples) AS samples
    FROM sockets_5m
    WHERE window >= $since AND window < $until
    GROUP BY 1
),
buckets AS (
    SELECT $by AS name, CAST(part.key AS INTEGER) AS bucket, sum(part.value) AS here
    FROM sockets_5m, json_each(delivery_rate) AS part
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
        CAST(round(2 * pow(1.01 / 0.99, min(bucket) FILTER (WHERE upto > 0.05 * (total - 1))) / (1.01 / 0.99 + 1)) AS INTEGER) AS p5,
        CAST(round(2 * pow(1.01 / 0.99, min(bucket) FILTER (WHERE upto > 0.1 * (total - 1))) / (1.01 / 0.99 + 1)) AS INTEGER) AS p10,
        CAST(round(2 * pow(1.01 / 0.99, min(bucket) FILTER (WHERE upto > 0.5 * (total - 1))) / (1.01 / 0.99 + 1)) AS INTEGER) AS p50,
        CAST(round(2 * pow(1.01 / 0.99, min(bucket) FILTER (WHERE upto > 0.9 * (total - 1))) / (1.01 / 0.99 + 1)) AS INTEGER) AS p90
    FROM running
    GROUP BY 1
)
SELECT name AS $by, samples, p5, p10, p50, p90
FROM sums LEFT JOIN quantiles USING (name)
ORDER BY samples DESC, name;
