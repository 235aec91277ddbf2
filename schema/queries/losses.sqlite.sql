-- Returns the number of records lost before they reached an agent's spool, by host and stage.
-- Includes losses noticed between $since (inclusive) and $until (exclusive), in Unix seconds.
SELECT host, stage, sum(records) AS records
FROM losses
WHERE time >= $since * 1000000 AND time < $until * 1000000
GROUP BY host, stage
ORDER BY host, stage;
