-- Single responses since :since_us, the slowest to begin first: all, or those whose $by is :name; of a TTFB within bounds.
SELECT
    time AS time_us,
    iif(client_ip LIKE '%:%', '[' || client_ip || ']', client_ip) || ':' || client_port AS client,
    prefix, asn, region,
    method, request_host, path, status, bytes, ttfb_us, duration_us, goodput_bytes_per_s,
    cache, detail, backend, protocol, cut,
    congestion_control, congestion_control_start, decider,
    rtt_us, min_rtt_us, snd_cwnd, delivery_rate_bytes_per_s, pacing_rate_bytes_per_s, retransmits, lost,
    bundle, rule, is_holdout, experiment, arm, refused,
    cmcd_sid, cmcd_st, cmcd_br_kbps, cmcd_bl_ms, cmcd_mtp_kbps, cmcd_bs,
    xid, restarts, lines,
    pop, host, CAST(number AS TEXT) AS number
FROM responses
WHERE time >= :since_us
    AND (:is_any OR $by IS :name)
    AND (:ttfb_us_min IS NULL OR ttfb_us >= :ttfb_us_min)
    AND (:ttfb_us_max IS NULL OR ttfb_us < :ttfb_us_max)
ORDER BY ttfb_us DESC, time DESC
LIMIT :limit;
