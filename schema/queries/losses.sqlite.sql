-- Records that were lost before they were kept, by machine and by where.
-- Noticed from $since until before $until, seconds since 1970.
SELECT host, stage, sum(records) AS records
FROM losses
WHERE time >= $since * 1000000 AND time < $until * 1000000
GROUP BY host, stage
ORDER BY host, stage;
