-- Single responses since :since_us, slowest TTFB first: all responses, or those whose $by is :name;
-- optionally with a TTFB within bounds.
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
