-- The newest sample of each socket that was seen since :since_us, those that were given most first, with the samples of that
-- time: [time, delivery rate, rtt].
WITH seen AS (
    SELECT host, cookie, max(time) AS last, sum(bytes_acked) AS bytes_acked, sum(retransmits) AS retransmits
    FROM sockets
    WHERE time >= :since_us
    GROUP BY host, cookie
    ORDER BY sum(bytes_acked) DESC, cookie
    LIMIT :limit
),
histories AS (
    SELECT host, cookie,
        json_group_array(json_array(s.time, s.delivery_rate_bytes_per_s, s.rtt_us) ORDER BY s.time, s.number) AS history
    FROM seen JOIN sockets AS s USING (host, cookie)
    WHERE s.time >= :since_us
    GROUP BY host, cookie
),
newest AS (
    SELECT s.*, row_number() OVER (PARTITION BY host, cookie ORDER BY s.number DESC) AS nth
    FROM seen JOIN sockets AS s USING (host, cookie)
    WHERE s.time = seen.last
)
SELECT
    CAST(cookie AS TEXT) AS cookie,
    iif(newest.client_ip LIKE '%:%', '[' || newest.client_ip || ']', newest.client_ip) || ':' || newest.client_port AS client,
    iif(newest.local_ip LIKE '%:%', '[' || newest.local_ip || ']', newest.local_ip) || ':' || newest.local_port AS local,
    newest.prefix, newest.asn, newest.region, newest.state, newest.congestion_control,
    newest.rtt_us, newest.min_rtt_us, newest.snd_cwnd,
    newest.delivery_rate_bytes_per_s, newest.delivery_rate_app_limited, newest.pacing_rate_bytes_per_s,
    CAST(newest.bytes_acked * 1000000.0 / nullif(newest.interval_us, 0) AS INTEGER) AS acked_bytes_per_s,
    seen.retransmits, seen.bytes_acked,
    newest.time AS last_us,
    newest.cause = 'destroy' AS is_ended,
    histories.history
FROM newest JOIN seen USING (host, cookie) JOIN histories USING (host, cookie)
WHERE nth = 1
ORDER BY seen.bytes_acked DESC, cookie;
