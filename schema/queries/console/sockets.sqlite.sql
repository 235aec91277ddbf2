-- Returns the newest sample of each socket seen since :since_us, and all its samples since then as
-- [time, delivery rate, rtt]. Sockets with the most acknowledged bytes come first.
WITH newest AS (
    -- With max(), SQLite takes the other columns from the row with the maximum.
    SELECT max(number) AS number, *, sum(bytes_acked) AS given, sum(retransmits) AS resent
    FROM sockets
    WHERE time >= :since_us
    GROUP BY host, epoch, namespace, cookie
    ORDER BY given DESC, cookie
    LIMIT :limit
),
histories AS (
    SELECT host, epoch, namespace, cookie,
        json_group_array(json_array(time, delivery_rate_bytes_per_s, rtt_us) ORDER BY number) AS history
    FROM sockets
    WHERE time >= :since_us AND (host, epoch, cookie) IN (SELECT host, epoch, cookie FROM newest)
    GROUP BY host, epoch, namespace, cookie
)
SELECT
    CAST(newest.cookie AS TEXT) AS cookie,
    iif(client_ip LIKE '%:%', '[' || client_ip || ']', client_ip) || ':' || client_port AS client,
    iif(local_ip LIKE '%:%', '[' || local_ip || ']', local_ip) || ':' || local_port AS local,
    prefix, asn, region, newest.namespace, state, congestion_control,
    rtt_us, min_rtt_us, snd_cwnd,
    delivery_rate_bytes_per_s, delivery_rate_app_limited, pacing_rate_bytes_per_s,
    CAST(bytes_acked * 1000000.0 / nullif(interval_us, 0) AS INTEGER) AS acked_bytes_per_s,
    resent AS retransmits, given AS bytes_acked,
    time AS last_us,
    cause = 'destroy' AS is_ended,
    history
FROM newest JOIN histories
    ON histories.host = newest.host AND histories.epoch = newest.epoch AND histories.namespace IS newest.namespace
    AND histories.cookie = newest.cookie
ORDER BY given DESC, newest.cookie;
