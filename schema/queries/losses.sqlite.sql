-- Records lost before they were stored, by machine and stage.
-- Losses noticed from $since until before $until, in seconds since 1970.
SELECT host, stage, sum(records) AS records
FROM losses
WHERE time >= $since * 1000000 AND time < $until * 1000000
GROUP BY host, stage
ORDER BY host, stage;
