-- Records, one table per kind, deleted after the retention time of records.
--
-- Numbers of 2^63 and above are stored as 2^63 - 1. True and false are 1 and 0.

-- Socket samples, named after the kernel's tcp_info. Counters are differences since the socket's
-- previous record. Gauges and counters are absent if the kernel gave no tcp_info.
CREATE TABLE sockets (
    time INTEGER NOT NULL,                       -- When the dump or the event was read, in microseconds since the Unix epoch
    pop TEXT NOT NULL,                           -- Name of the site (PoP); empty if unnamed
    host TEXT NOT NULL,                          -- Name of the agent's machine
    epoch INTEGER NOT NULL,                      -- When the record numbering started, in microseconds since the Unix epoch. Whenever numbering restarts on a host, a new epoch starts
    number INTEGER NOT NULL,                     -- Record number within the epoch
    prefix TEXT NOT NULL,                        -- The client's network: /24 for IPv4, /56 for IPv6
    asn INTEGER,                                 -- Autonomous system number of the client's network
    region TEXT,                                 -- Region of the client's network: an ISO 3166-1 country code, with the ISO 3166-2 subdivision if known (`DE`, `US-CA`), or a region from a CSV file of prefixes
    client_ip TEXT NOT NULL,                     -- Remote address and port; never IPv4-mapped, even on a dual-stack listener
    client_port INTEGER NOT NULL,
    local_ip TEXT NOT NULL,                      -- Local address and port; never IPv4-mapped, even on a dual-stack listener
    local_port INTEGER NOT NULL,
    cookie INTEGER NOT NULL,                     -- The kernel's socket identifier (`sock_diag` cookie), unique until the next reboot
    namespace TEXT,                              -- Configured name of the socket's network namespace; absent for the agent's own namespace
    state TEXT NOT NULL,                         -- Socket state, as `ss` spells it: `ESTAB`, `CLOSE-WAIT`, …
    cause TEXT NOT NULL,                         -- Event that caused this record
    sample_one_in INTEGER,                       -- Sampling ratio: one in this many matching sockets is sampled, for its whole lifetime, so this socket represents that many. Absent if all sockets are sampled
    interval_us INTEGER,                         -- Time since the socket's previous record, covered by the counters; absent in its first record
    congestion_control TEXT,                     -- Congestion control algorithm. The event of a socket's destruction has none, so its record has that of the last dump, or else of the connection's last response from a followed edge. Absent if none of them is known
    rtt_us INTEGER,                              -- Smoothed RTT
    rttvar_us INTEGER,                           -- Mean deviation of the RTT
    min_rtt_us INTEGER,                          -- Minimum RTT (since Linux 4.6); absent before the first sample
    rto_us INTEGER,                              -- Retransmission timeout
    snd_cwnd INTEGER,                            -- Congestion window, in TCP segments
    snd_ssthresh INTEGER,                        -- Slow start threshold in TCP segments; absent before the first loss
    snd_mss_bytes INTEGER,                       -- Maximum TCP segment size for sending (MSS), without headers
    pmtu_bytes INTEGER,                          -- Path MTU
    unacked INTEGER,                             -- TCP segments in flight
    lost INTEGER,                                -- TCP segments in flight that are presumed lost
    reordering INTEGER,                          -- Reordering tolerated before loss is presumed, in TCP segments
    ca_state INTEGER,                            -- Loss state machine: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss
    delivery_rate_bytes_per_s INTEGER,           -- Latest delivery rate sample of content (since Linux 4.9); absent before the first one. If the kernel's latest sample is that of a FIN sent alone, this is the sample of the last dump or, when the socket was destroyed, of the last response from a followed edge
    delivery_rate_app_limited INTEGER,           -- Whether the delivery rate sample was limited by the application, not by the network
    pacing_rate_bytes_per_s INTEGER,             -- Pacing rate; absent if unlimited
    notsent_bytes INTEGER,                       -- Bytes in the send queue that have not been sent
    snd_wnd_bytes INTEGER,                       -- The client's receive window (since Linux 5.4)
    tcp_state INTEGER,                           -- State in `tcp_info`, as the kernel's number
    timeouts_in_a_row INTEGER,                   -- Consecutive retransmission timeouts not yet recovered from
    rcv_mss_bytes INTEGER,                       -- Estimate of the client's maximum TCP segment size
    sacked INTEGER,                              -- TCP segments in flight that were selectively acknowledged
    retrans INTEGER,                             -- TCP segments in flight that were retransmitted
    last_data_sent_ms INTEGER,                   -- Time since content was last sent
    last_data_recv_ms INTEGER,                   -- Time since content was last received
    last_ack_recv_ms INTEGER,                    -- Time since the last acknowledgement
    rcv_ssthresh_bytes INTEGER,                  -- Current receive window clamp
    advmss_bytes INTEGER,                        -- Maximum TCP segment size advertised to the client
    rcv_rtt_us INTEGER,                          -- RTT estimated as the receiver; 0 until the client has sent enough data
    rcv_space_bytes INTEGER,                     -- Bytes read by the application in the last round trip
    max_pacing_rate_bytes_per_s INTEGER,         -- Maximum pacing rate (`SO_MAX_PACING_RATE`); absent if none is set
    rcv_wnd_bytes INTEGER,                       -- The receive window advertised to the client (since Linux 6.2)
    bytes_acked INTEGER,                         -- Bytes acknowledged by the client (since Linux 4.1)
    bytes_received INTEGER,                      -- Bytes received in order (since Linux 4.1)
    bytes_sent INTEGER,                          -- Content bytes sent, including retransmissions (since Linux 4.19)
    bytes_retrans INTEGER,                       -- Content bytes retransmitted (since Linux 4.19)
    segs_out INTEGER,                            -- TCP segments sent (since Linux 4.2)
    segs_in INTEGER,                             -- TCP segments received (since Linux 4.2)
    data_segs_out INTEGER,                       -- Sent TCP segments with content (since Linux 4.6)
    retransmits INTEGER,                         -- TCP segments retransmitted
    delivered INTEGER,                           -- TCP segments delivered (since Linux 4.18)
    delivered_ce INTEGER,                        -- TCP segments delivered with an ECN mark (since Linux 4.18)
    dsack_dups INTEGER,                          -- Duplicates that the client reported by DSACK (since Linux 4.19)
    reord_seen INTEGER,                          -- Reordering events (since Linux 4.19)
    timeouts INTEGER,                            -- Retransmission timeouts (since Linux 6.7)
    busy_us INTEGER,                             -- Time with content in flight (since Linux 4.10)
    rwnd_limited_us INTEGER,                     -- Part of the busy time limited by the client's receive window (since Linux 4.10)
    sndbuf_limited_us INTEGER,                   -- Part of the busy time limited by the send buffer (since Linux 4.10)
    data_segs_in INTEGER,                        -- Received TCP segments with content (since Linux 4.6)
    rcv_ooopack INTEGER,                         -- TCP segments received out of order (since Linux 5.4)
    rehash INTEGER,                              -- Changes of the flow's path hash after a timeout (since Linux 6.2)
    timeout_recoveries INTEGER,                  -- Recoveries from retransmission timeouts (since Linux 6.7)
    timeout_recovery_ms INTEGER,                 -- Time spent recovering from retransmission timeouts (since Linux 6.7)
    received_ce INTEGER,                         -- TCP segments received with a congestion mark (since Linux 6.18)
    delivered_e1_bytes INTEGER,                  -- Content bytes that the client reported as received with ECT(1) (since Linux 6.18)
    delivered_e0_bytes INTEGER,                  -- Content bytes that the client reported as received with ECT(0) (since Linux 6.18)
    delivered_ce_bytes INTEGER,                  -- Content bytes that the client reported as received with a congestion mark (since Linux 6.18)
    received_e1_bytes INTEGER,                   -- Content bytes received with ECT(1) (since Linux 6.18)
    received_e0_bytes INTEGER,                   -- Content bytes received with ECT(0) (since Linux 6.18)
    received_ce_bytes INTEGER,                   -- Content bytes received with a congestion mark (since Linux 6.18)
    bbr_bw_bytes_per_s INTEGER,                  -- Estimated bottleneck rate
    bbr_min_rtt_us INTEGER,                      -- Minimum RTT
    bbr_pacing_gain_256th INTEGER,               -- Pacing gain, in 1/256
    bbr_cwnd_gain_256th INTEGER,                 -- Congestion window gain, in 1/256
    acked_goodput_bytes_per_s INTEGER,           -- Acknowledged bytes per second of busy time over the counters' interval, without the time limited by the client's receive window and without the time of a FIN sent alone. Absent without counters, and if that time is too short for the kernel's clock
    family TEXT,                                 -- Address family of the socket. An IPv6 socket may carry IPv4
    rqueue_bytes INTEGER,                        -- Bytes received and not yet read; absent for a listener
    wqueue_bytes INTEGER,                        -- Bytes not yet acknowledged, including bytes not yet sent; absent for a listener
    accept_queue INTEGER,                        -- Connections that wait to be accepted; absent except for a listener
    accept_queue_max INTEGER,                    -- Maximum number of connections that wait to be accepted; absent except for a listener
    timer TEXT,                                  -- The running timer; absent if none is running
    timer_expires_ms INTEGER,                    -- Time until the timer expires; absent if none is running
    timer_retransmits INTEGER,                   -- Consecutive retransmissions, probes or keepalives without a reply, by the running timer; absent if none is running
    uid INTEGER,                                 -- User ID of the owner
    inode INTEGER,                               -- Inode number in sockfs, or 0 if no process has the socket open
    interface INTEGER,                           -- Index of the network interface to which the socket is bound; absent if it is not bound
    mark INTEGER,                                -- `SO_MARK`, reported only to processes with CAP_NET_ADMIN
    cgroup_id INTEGER,                           -- ID of the cgroup v2 in which the socket was created (since Linux 5.8)
    class_id INTEGER,                            -- Traffic class for queueing: the class ID of the socket's cgroup v1, or its priority
    tos INTEGER,                                 -- IPv4 type of service
    tclass INTEGER,                              -- IPv6 traffic class
    shutdown INTEGER,                            -- Directions that are shut down: 0 none, 1 receiving, 2 sending, 3 both
    memory_rmem_alloc_bytes INTEGER,             -- Receive buffer memory used by data not yet read
    memory_rcvbuf_bytes INTEGER,                 -- Receive buffer limit (`SO_RCVBUF`)
    memory_wmem_alloc_bytes INTEGER,             -- Memory of packets passed to lower layers but not yet sent
    memory_sndbuf_bytes INTEGER,                 -- Send buffer limit (`SO_SNDBUF`)
    memory_fwd_alloc_bytes INTEGER,              -- Memory reserved for the socket but unused
    memory_wmem_queued_bytes INTEGER,            -- Memory used by the send queue
    memory_optmem_bytes INTEGER,                 -- Memory used by socket options and filters
    memory_backlog_bytes INTEGER,                -- Memory used by TCP segments that arrived while a process held the socket lock
    memory_drops INTEGER                         -- TCP segments dropped by the socket over its lifetime (since Linux 4.7)
) STRICT;
CREATE INDEX sockets_time ON sockets (time);

-- Responses from edges.
CREATE TABLE responses (
    time INTEGER NOT NULL,                       -- When the last byte of the request head arrived, in microseconds since the Unix epoch; rounded down to milliseconds in the JSON line
    pop TEXT NOT NULL,                           -- Name of the site (PoP); empty if unnamed
    host TEXT NOT NULL,                          -- Name of the agent's machine
    epoch INTEGER NOT NULL,                      -- When the record numbering started, in microseconds since the Unix epoch. Whenever numbering restarts on a host, a new epoch starts
    number INTEGER NOT NULL,                     -- Record number within the epoch
    prefix TEXT NOT NULL,                        -- The client's network: /24 for IPv4, /56 for IPv6
    asn INTEGER,                                 -- Autonomous system number of the client's network
    region TEXT,                                 -- Region of the client's network: an ISO 3166-1 country code, with the ISO 3166-2 subdivision if known (`DE`, `US-CA`), or a region from a CSV file of prefixes
    client_ip TEXT NOT NULL,                     -- Client address and port; never IPv4-mapped, even on a dual-stack listener
    client_port INTEGER NOT NULL,
    method TEXT NOT NULL,                        -- Request method
    request_host TEXT NOT NULL,                  -- `Host` field as received; empty if the request had none
    path TEXT NOT NULL,                          -- Path and query as received
    status INTEGER NOT NULL,                     -- Status code sent, or the one that would have been sent if the client had not disconnected
    bytes INTEGER NOT NULL,                      -- Content bytes handed to the kernel, excluding the head and chunk framing
    ttfb_us INTEGER,                             -- Time from the last byte of the request to the first byte of the response; absent if no byte was sent
    written_us INTEGER NOT NULL,                 -- Time from the last byte of the request until the kernel took the last byte of the response, or until the cut. The client receives that byte later: see `delivery`
    goodput_bytes_per_s INTEGER,                 -- Acknowledged bytes per second of busy time; absent if the delivery was not measured
    cache TEXT NOT NULL,                         -- Cache result
    detail TEXT,                                 -- Short reason for the cache result; absent if the result needs none
    backend TEXT,                                -- Last backend chosen for this request itself; absent without a policy, or if no backend was chosen
    protocol TEXT NOT NULL,                      -- Protocol of the response
    cut TEXT,                                    -- Why the response was cut; absent if it was complete
    congestion_control TEXT,                     -- Congestion control algorithm, as read back from the socket
    congestion_control_start TEXT,               -- Congestion control algorithm chosen by the kernel when it accepted the connection; absent in older records
    decider TEXT,                                -- What last decided the congestion control; absent in older records
    rtt_us INTEGER,                              -- `tcpi_rtt`: smoothed round-trip time
    min_rtt_us INTEGER,                          -- `tcpi_min_rtt`: minimum round-trip time; absent before the first sample and before Linux 4.6
    snd_cwnd INTEGER,                            -- `tcpi_snd_cwnd`: congestion window, in TCP segments
    delivery_rate_bytes_per_s INTEGER,           -- `tcpi_delivery_rate`: latest delivery rate sample; absent before Linux 4.9
    retransmits INTEGER,                         -- `tcpi_total_retrans`: TCP segments retransmitted over the connection's lifetime
    lost INTEGER,                                -- `tcpi_lost`: TCP segments in flight that are presumed lost
    pacing_rate_bytes_per_s INTEGER,             -- `tcpi_pacing_rate`: pacing rate; absent if unlimited
    delivery_rate_app_limited INTEGER,           -- `tcpi_delivery_rate_app_limited`: whether the delivery rate sample was limited by the application, not by the network; absent in older records
    bundle INTEGER,                              -- Bundle number
    rule TEXT,                                   -- Prefix of the matching rule; absent if no rule matched
    is_holdout INTEGER,                          -- Whether the connection was held out from the rule, for comparison
    experiment TEXT,                             -- Experiment that includes the connection; absent if none does
    arm TEXT,                                    -- The connection's arm in the experiment
    refused TEXT,                                -- Why the kernel refused the congestion control requested by the rule or the arm; absent if the kernel accepted it
    draw_period INTEGER,                         -- Redraw period in which the rule decided; absent if the rule draws each client once
    cmcd_sid TEXT,                               -- `sid`: the playback session
    cmcd_st TEXT,                                -- `st`: live or on demand
    cmcd_br_kbps INTEGER,                        -- `br`: bitrate of the requested media
    cmcd_bl_ms INTEGER,                          -- `bl`: media buffered ahead of the playhead
    cmcd_mtp_kbps INTEGER,                       -- `mtp`: measured throughput
    cmcd_bs INTEGER,                             -- `bs`: whether the buffer ran empty since the previous request
    xid INTEGER,                                 -- Request number assigned by the policy; absent without a policy
    restarts INTEGER NOT NULL,                   -- Number of times the policy restarted the request, keeping its `xid`
    acked_bytes INTEGER,                         -- Content bytes that the client's kernel acknowledged
    acked_us INTEGER,                            -- Time from the last byte of the request to the acknowledgement of the last byte of the response; absent if the response is censored: cut, or not acknowledged to its end before the connection closed
    busy_us INTEGER,                             -- Time during which the response had unacknowledged bytes and room in the client's receive window. For a response that waited for content, the connection's busy time as counted by the kernel, less `rwnd_limited_us`
    testable_bytes_per_s INTEGER,                -- The highest rate that the response could have shown, given its size, the congestion window at its start, and the minimum round-trip time; absent if one is unknown
    reached_hd INTEGER,                          -- Whether the response reached 2.5 Mbit/s; absent if that rate was not testable
    is_source_limited INTEGER,                   -- Whether the response waited for content, from a backend or a live source
    rwnd_limited_us INTEGER,                     -- Time during which the client's receive window held the response back, because the client read slowly; not part of `busy_us`. Absent if zero or unknown, and in older records
    sample_one_in INTEGER,                       -- Sampling ratio: the edge records the responses of one in this many clients, so this response represents that many. Absent if the edge records all responses
    lines TEXT                                   -- Lines logged by the policy, each preceded by its tag
) STRICT;
CREATE INDEX responses_time ON responses (time);

-- Records lost before they had a number.
CREATE TABLE losses (
    time INTEGER NOT NULL,                       -- When the loss was detected, in microseconds since the Unix epoch
    pop TEXT NOT NULL,                           -- Name of the site (PoP); empty if unnamed
    host TEXT NOT NULL,                          -- Name of the agent's machine
    epoch INTEGER NOT NULL,                      -- When the record numbering started, in microseconds since the Unix epoch. Whenever numbering restarts on a host, a new epoch starts
    number INTEGER NOT NULL,                     -- Record number within the epoch
    stage TEXT NOT NULL,                         -- Where the records were lost
    records INTEGER NOT NULL                     -- Number of lost records
) STRICT;
CREATE INDEX losses_time ON losses (time);
