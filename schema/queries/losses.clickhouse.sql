-- Records lost before they were stored, by machine and stage.
-- Losses noticed from $since until before $until, in seconds since 1970.
SELECT host, stage, sum(losses.records) AS records
FROM losses
WHERE time >= toDateTime64($since, 6, 'UTC') AND time < toDateTime64($until, 6, 'UTC')
GROUP BY host, stage
ORDER BY host, stage
