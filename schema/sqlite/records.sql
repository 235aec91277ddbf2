-- The records, one table of each kind, as long as samples are kept.
--
-- Numbers of 2^63 and above are kept as 2^63 - 1. Yes and no are 1 and 0.

-- Samples of sockets, in the terms of the kernel's tcp_info. Counters are differences since the socket's record before.
-- Gauges and counters are absent where the kernel gave no tcp_info.
CREATE TABLE sockets (
    time INTEGER NOT NULL,                       -- when: microseconds since 1970, UTC
    pop TEXT NOT NULL,                           -- the site; empty if it has no name
    host TEXT NOT NULL,                          -- the machine
    epoch INTEGER NOT NULL,                      -- with host: which numbering of records
    number INTEGER NOT NULL,                     -- of the record, from 0; (host, epoch, number) is never twice in a file
    prefix TEXT NOT NULL,                        -- the client's network: /24 or /56
    asn INTEGER,                                 -- the client's autonomous system, where known
    region TEXT,                                 -- the client's region, where known: DE, US-CA
    client_ip TEXT NOT NULL,                     -- IPv4 not in IPv6 form
    client_port INTEGER NOT NULL,
    local_ip TEXT NOT NULL,                      -- likewise
    local_port INTEGER NOT NULL,
    cookie INTEGER NOT NULL,                     -- the kernel's name for the socket as long as the machine is up
    namespace TEXT,                              -- the network namespace; absent: the agent's own
    state TEXT NOT NULL,                         -- as ss spells it: ESTAB, CLOSE-WAIT
    cause TEXT NOT NULL,                         -- dump, or destroy: its last words
    sample_one_in INTEGER,                       -- one socket in so many was followed; absent: all of them
    interval_us INTEGER,                         -- time that the counters cover; absent in the first record: its life
    congestion_control TEXT,                     -- absent where the kernel does not say
    rtt_us INTEGER,                              -- smoothed round trip
    rttvar_us INTEGER,                           -- mean deviation of the round trip
    min_rtt_us INTEGER,                          -- smallest round trip, Linux 4.6; absent before the first sample
    rto_us INTEGER,                              -- retransmission timeout
    snd_cwnd INTEGER,                            -- congestion window, in TCP segments
    snd_ssthresh INTEGER,                        -- slow start threshold in TCP segments; absent before the first loss
    snd_mss_bytes INTEGER,                       -- largest TCP segment sent, content alone
    pmtu_bytes INTEGER,                          -- path MTU
    unacked INTEGER,                             -- TCP segments in flight
    lost INTEGER,                                -- of those, taken for lost
    reordering INTEGER,                          -- reordering that is not taken for loss, in TCP segments
    ca_state INTEGER,                            -- the loss state machine: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss
    delivery_rate_bytes_per_s INTEGER,           -- newest delivery rate sample, Linux 4.9; absent before the first, and once this side has closed
    delivery_rate_app_limited INTEGER,           -- 1: that sample was limited by the application, not by the network
    pacing_rate_bytes_per_s INTEGER,             -- pacing rate; absent where there is no limit
    notsent_bytes INTEGER,                       -- bytes that were never sent yet
    snd_wnd_bytes INTEGER,                       -- the client's receive window, Linux 5.4
    bytes_acked INTEGER,                         -- bytes that the client acknowledged, Linux 4.1
    bytes_received INTEGER,                      -- bytes received in order, 4.1
    bytes_sent INTEGER,                          -- content bytes sent, those sent again included, 4.19
    bytes_retrans INTEGER,                       -- content bytes sent again, 4.19
    segs_out INTEGER,                            -- TCP segments sent, 4.2
    segs_in INTEGER,                             -- TCP segments received, 4.2
    data_segs_out INTEGER,                       -- TCP segments with content sent, 4.6
    retransmits INTEGER,                         -- TCP segments sent again
    delivered INTEGER,                           -- TCP segments delivered, 4.18
    delivered_ce INTEGER,                        -- of those, with an ECN mark, 4.18
    dsack_dups INTEGER,                          -- duplicates that the client reported, 4.19
    reord_seen INTEGER,                          -- reordering events, 4.19
    timeouts INTEGER,                            -- retransmission timeouts, 6.7
    busy_us INTEGER,                             -- time with content in flight, 4.10
    rwnd_limited_us INTEGER,                     -- of the busy time, held back by the client's receive window, 4.10
    sndbuf_limited_us INTEGER,                   -- of the busy time, held back by the send buffer, 4.10
    bbr_bw_bytes_per_s INTEGER,                  -- BBR's estimate of the bottleneck's rate
    bbr_min_rtt_us INTEGER,                      -- its smallest round trip
    bbr_pacing_gain_256th INTEGER,               -- in 1/256
    bbr_cwnd_gain_256th INTEGER                  -- in 1/256
) STRICT;
CREATE INDEX sockets_time ON sockets (time);

-- Responses of the edge.
CREATE TABLE responses (
    time INTEGER NOT NULL,                       -- when: microseconds since 1970, UTC
    pop TEXT NOT NULL,                           -- the site; empty if it has no name
    host TEXT NOT NULL,                          -- the machine
    epoch INTEGER NOT NULL,                      -- with host: which numbering of records
    number INTEGER NOT NULL,                     -- of the record, from 0; (host, epoch, number) is never twice in a file
    prefix TEXT NOT NULL,                        -- the client's network: /24 or /56
    asn INTEGER,                                 -- the client's autonomous system, where known
    region TEXT,                                 -- the client's region, where known: DE, US-CA
    client_ip TEXT NOT NULL,                     -- IPv4 not in IPv6 form
    client_port INTEGER NOT NULL,
    method TEXT NOT NULL,                        -- the request's method
    request_host TEXT NOT NULL,                  -- the request's Host field; empty if there was none
    path TEXT NOT NULL,                          -- path and query as received
    status INTEGER NOT NULL,                     -- the status sent, or that would have been if the client had stayed
    bytes INTEGER NOT NULL,                      -- content bytes handed to the kernel
    ttfb_us INTEGER,                             -- from the last byte of the request to the first of the response; absent: none was sent
    duration_us INTEGER NOT NULL,                -- from the last byte of the request to the last of the response, or to where it was cut
    goodput_bytes_per_s INTEGER NOT NULL,        -- bytes per second of duration_us
    cache TEXT NOT NULL,                         -- hit, join, miss, validated, stale, pass, purge, synth, pipe, error
    detail TEXT,                                 -- why that, in a word or a few; absent where there is nothing to say
    backend TEXT,                                -- the one chosen last
    protocol TEXT NOT NULL,                      -- the protocol of the response
    cut TEXT,                                    -- why it was not sent whole: client_closed, client_stalled, …
    congestion_control TEXT,                     -- at the end of the response
    congestion_control_start TEXT,               -- when the connection was accepted
    decider TEXT,                                -- who decided on it: default, rule, experiment, policy
    rtt_us INTEGER,                              -- smoothed round trip at the end
    min_rtt_us INTEGER,                          -- smallest round trip
    snd_cwnd INTEGER,                            -- congestion window, in TCP segments
    delivery_rate_bytes_per_s INTEGER,           -- newest delivery rate sample
    retransmits INTEGER,                         -- TCP segments sent again over the life of the connection
    lost INTEGER,                                -- TCP segments in flight that are taken for lost
    pacing_rate_bytes_per_s INTEGER,             -- absent where there is no limit
    bundle INTEGER,                              -- the number of the bundle that had to do with the connection
    rule TEXT,                                   -- the rule's prefix
    is_holdout INTEGER,                          -- 1: held out from that rule, for comparison
    experiment TEXT,                             -- the experiment that the connection is in; absent if in none
    arm TEXT,                                    -- its arm there
    refused TEXT,                                -- why the kernel refused what was asked for
    cmcd_sid TEXT,                               -- what the player said (CMCD): session
    cmcd_st TEXT,                                -- l live, v on demand
    cmcd_br_kbps INTEGER,                        -- bitrate of what was asked for
    cmcd_bl_ms INTEGER,                          -- media buffered
    cmcd_mtp_kbps INTEGER,                       -- throughput it has measured
    cmcd_bs INTEGER,                             -- 1: its buffer has run dry since the request before
    xid INTEGER,                                 -- number of the request in the policy
    restarts INTEGER NOT NULL,                   -- how often the policy had it begin again
    lines TEXT                                   -- what the policy logged, a line each after its tag
) STRICT;
CREATE INDEX responses_time ON responses (time);

-- Records that were lost before they had a number.
CREATE TABLE losses (
    time INTEGER NOT NULL,                       -- when it was noticed: microseconds since 1970, UTC
    pop TEXT NOT NULL,                           -- the site; empty if it has no name
    host TEXT NOT NULL,                          -- the machine
    epoch INTEGER NOT NULL,                      -- with host: which numbering of records
    number INTEGER NOT NULL,                     -- of the record, from 0; (host, epoch, number) is never twice in a file
    stage TEXT NOT NULL,                         -- edge, follow, events or spool
    records INTEGER NOT NULL                     -- how many
) STRICT;
CREATE INDEX losses_time ON losses (time);
