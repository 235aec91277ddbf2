-- Socket samples: one row per socket and dump, and one when a socket is destroyed. Counters cover
-- the time since the socket's previous row (or its life, if interval_us is absent), so they add up.
-- Gauges and counters are absent if the kernel gave no tcp_info. (host, epoch, number) identifies a
-- row.
CREATE TABLE IF NOT EXISTS sockets
(
    time DateTime64(6, 'UTC') CODEC(Delta(8), ZSTD(1)) COMMENT 'When the dump or the event was read, in microseconds since the Unix epoch',
    pop LowCardinality(String) COMMENT 'Name of the site (PoP); empty if unnamed',
    host LowCardinality(String) COMMENT 'The machine\'s name',
    epoch UInt64 CODEC(Delta(8), ZSTD(1)) COMMENT 'Start of the record numbering, in microseconds since the Unix epoch; distinguishes the numberings of a host',
    number UInt64 CODEC(Delta(8), ZSTD(1)) COMMENT 'Number of the record within the epoch',
    prefix LowCardinality(String) COMMENT 'The client\'s network: /24 for IPv4, /56 for IPv6',
    asn Nullable(UInt32) CODEC(ZSTD(1)) COMMENT 'Autonomous system number of the client\'s network',
    region LowCardinality(Nullable(String)) COMMENT 'Region of the client\'s network: an ISO 3166-1 country, with the ISO 3166-2 subdivision if known (`DE`, `US-CA`), or the region from a CSV of prefixes',
    client_ip IPv6 CODEC(ZSTD(1)) COMMENT 'Remote address and port; never IPv4-mapped, even on a dual-stack listener',
    client_port UInt16 CODEC(ZSTD(1)),
    local_ip IPv6 CODEC(ZSTD(1)) COMMENT 'Local address and port; never IPv4-mapped, even on a dual-stack listener',
    local_port UInt16 CODEC(ZSTD(1)),
    cookie UInt64 CODEC(ZSTD(1)) COMMENT 'Kernel\'s identifier of the socket until reboot (`sock_diag`\'s cookie)',
    namespace LowCardinality(Nullable(String)) COMMENT 'Network namespace, by its configured name; absent in the agent\'s own namespace',
    state LowCardinality(String) COMMENT 'Socket state, as `ss` spells it: `ESTAB`, `CLOSE-WAIT`, …',
    cause LowCardinality(String) COMMENT 'Event that caused this record',
    sample_one_in Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Sampling ratio: one in this many matching sockets is sampled, each for its whole life, so this socket represents that many; absent if all sockets are sampled',
    interval_us Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Time since the previous record, which the counters cover; absent in a socket\'s first record',
    congestion_control LowCardinality(Nullable(String)) COMMENT 'Congestion control; absent if the kernel does not report it, as in an event for a socket that was in no dump',
    rtt_us Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Smoothed RTT',
    rttvar_us Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Mean deviation of the RTT',
    min_rtt_us Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Minimum RTT (since Linux 4.6); absent before the first sample',
    rto_us Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Retransmission timeout',
    snd_cwnd Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Congestion window, in TCP segments',
    snd_ssthresh Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Slow start threshold in TCP segments; absent before the first loss',
    snd_mss_bytes Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Largest TCP segment sent, without headers',
    pmtu_bytes Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Path MTU',
    unacked Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'TCP segments in flight',
    lost Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'TCP segments in flight that are considered lost',
    reordering Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Reordering tolerated without assuming loss, in TCP segments',
    ca_state Nullable(UInt8) CODEC(T64, ZSTD(1)) COMMENT 'Loss state machine: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss',
    delivery_rate_bytes_per_s Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Newest delivery rate sample (since Linux 4.9); absent before the first sample, and after this side has closed, when the sample would be the FIN\'s',
    delivery_rate_app_limited Nullable(Bool) CODEC(ZSTD(1)) COMMENT 'Whether the delivery rate sample was limited by the application, not by the network',
    pacing_rate_bytes_per_s Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Pacing rate; absent if unlimited',
    notsent_bytes Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Bytes not yet sent',
    snd_wnd_bytes Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'The client\'s receive window (since Linux 5.4)',
    bytes_acked Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Bytes acknowledged by the client (since Linux 4.1)',
    bytes_received Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Bytes received in order (since Linux 4.1)',
    bytes_sent Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Content bytes sent, including retransmissions (since Linux 4.19)',
    bytes_retrans Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Content bytes retransmitted (since Linux 4.19)',
    segs_out Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'TCP segments sent (since Linux 4.2)',
    segs_in Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'TCP segments received (since Linux 4.2)',
    data_segs_out Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'TCP segments with content sent (since Linux 4.6)',
    retransmits Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'TCP segments retransmitted',
    delivered Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'TCP segments delivered (since Linux 4.18)',
    delivered_ce Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'TCP segments delivered with an ECN mark (since Linux 4.18)',
    dsack_dups Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Duplicates reported by the client (since Linux 4.19)',
    reord_seen Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Reordering events (since Linux 4.19)',
    timeouts Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Retransmission timeouts (since Linux 6.7)',
    busy_us Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Time with content in flight (since Linux 4.10)',
    rwnd_limited_us Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Part of the busy time limited by the client\'s receive window (since Linux 4.10)',
    sndbuf_limited_us Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Part of the busy time limited by the send buffer (since Linux 4.10)',
    bbr_bw_bytes_per_s Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Estimated bottleneck rate',
    bbr_min_rtt_us Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Minimum RTT',
    bbr_pacing_gain_256th Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Pacing gain, in 1/256',
    bbr_cwnd_gain_256th Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Congestion window gain, in 1/256'
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (pop, prefix, time, cookie)
TTL toDateTime(time) + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;
