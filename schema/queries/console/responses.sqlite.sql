-- Returns responses since :since_us, those with the longest TTFB first. Unless :is_any is set,
-- returns only responses whose $by is :name. If not null, :ttfb_us_min (inclusive) and :ttfb_us_max
-- (exclusive) limit the TTFB.
SELECT
    *,
    time AS time_us,
    iif(client_ip LIKE '%:%', '[' || client_ip || ']', client_ip) || ':' || client_port AS client,
    CAST(number AS TEXT) AS number
FROM responses
WHERE time >= :since_us
    AND (:is_any OR $by IS :name)
    AND (:ttfb_us_min IS NULL OR ttfb_us >= :ttfb_us_min)
    AND (:ttfb_us_max IS NULL OR ttfb_us < :ttfb_us_max)
ORDER BY ttfb_us DESC, time DESC
LIMIT :limit;
