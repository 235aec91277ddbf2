-- Returns the number of records lost before they reached an agent's spool, by host and stage.
-- Includes losses noticed between $since (inclusive) and $until (exclusive), in Unix seconds.
SELECT host, stage, sum(losses.records) AS records
FROM losses
WHERE time >= toDateTime64($since, 6, 'UTC') AND time < toDateTime64($until, 6, 'UTC')
GROUP BY host, stage
ORDER BY host, stage
