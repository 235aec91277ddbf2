// Records as in JSON lines, and table rows as stored by the agent.
//
// Generated from the declarations in crates/record by its test `generated`, which fails if this
// file is stale.

/** The result of a cache lookup. */
export type CacheResult = "hit" | "join" | "miss" | "validated" | "stale" | "pass" | "purge" | "synth" | "pipe" | "error";

/** The protocol of a response. */
export type Protocol = "HTTP/1.0" | "HTTP/1.1";

/** Reason why a response ended before its last byte was handed to the kernel. */
export type Cut = "client_closed" | "client_stalled" | "backend_failed" | "storage_failed" | "shutdown";

/** Tag of a logged line, spelled as in Varnish. */
export type LineTag = "VCL_Log" | "VCL_Error" | "Timestamp" | "VCL_acl" | "FetchError";

/** What decided a connection's congestion control, in ascending order of precedence. */
export type Decider = "default" | "rule" | "experiment" | "policy";

/** Stream type, spelled as in CMCD. */
export type StreamType = "l" | "v";

/** A response sent by the edge. */
export interface ResponseRecord {
  v: number;
  /**
   * When the last byte of the request head arrived, in microseconds since the Unix epoch;
   * rounded down to milliseconds in the JSON line.
   */
  time: string;
  /** Client address and port; never IPv4-mapped, even on a dual-stack listener. */
  client: string;
  /** Request method. */
  method: string;
  /** `Host` field as received; empty if the request had none. */
  host: string;
  /** Path and query as received. */
  path: string;
  /**
   * Status code sent, or the one that would have been sent if the client had not
   * disconnected.
   */
  status: number;
  /** Content bytes handed to the kernel, excluding the head and chunk framing. */
  bytes: number;
  /**
   * Time from the last byte of the request to the first byte of the response; absent if no
   * byte was sent.
   */
  ttfb_us?: number;
  /**
   * Time from the last byte of the request until the kernel took the last byte of the
   * response, or until the cut. The client receives that byte later: see `delivery`.
   */
  written_us: number;
  /** Acknowledged bytes per second of busy time; absent if the delivery was not measured. */
  goodput_bytes_per_s?: number;
  /** Cache result. */
  cache: CacheResult;
  /** Short reason for the cache result; absent if the result needs none. */
  detail?: string;
  /**
   * Last backend chosen for this request itself; absent without a policy, or if no backend
   * was chosen.
   */
  backend?: string;
  /** Protocol of the response. */
  protocol: Protocol;
  /** Whether the whole response was sent. */
  complete: boolean;
  /** Why the response was cut; absent if it was complete. */
  cut?: Cut;
  /** Connection state at the end of the response; absent if the kernel provided none. */
  tcp?: TcpState;
  /** What a bundle assigned to the connection; absent if nothing. */
  steered?: Steered;
  /** The player's report in the request; absent if the request contained none. */
  cmcd?: Cmcd;
  /** Request number assigned by the policy; absent without a policy. */
  xid?: number;
  /** Number of times the policy restarted the request, keeping its `xid`. */
  restarts?: number;
  /** Lines logged by the policy and its modules, in order. */
  lines?: Line[];
  /** Number of lines dropped because the record was full. */
  lines_lost?: number;
  /**
   * What the client's kernel acknowledged of the response; absent if the response was too
   * small to be measured.
   */
  delivery?: Delivery;
  /**
   * Sampling ratio: the edge records the responses of one in this many clients, so this
   * response represents that many. Absent if the edge records all responses.
   */
  sample_one_in?: number;
}

/** A line logged for a request. */
export interface Line {
  /** Tag of the line, as in Varnish. */
  tag: LineTag;
  /** Text of the line, as logged. */
  text: string;
}

/** The kernel's data on the connection at the end of the response. */
export interface TcpState {
  /** Congestion control algorithm, as read back from the socket. */
  congestion_control: string;
  /**
   * Congestion control algorithm chosen by the kernel when it accepted the connection;
   * absent in older records.
   */
  congestion_control_start?: string;
  /** What last decided the congestion control; absent in older records. */
  decider?: Decider;
  /** `tcpi_rtt`: smoothed round-trip time. */
  rtt_us: number;
  /**
   * `tcpi_min_rtt`: minimum round-trip time; absent before the first sample and before Linux
   * 4.6.
   */
  min_rtt_us?: number;
  /** `tcpi_snd_cwnd`: congestion window, in TCP segments. */
  snd_cwnd: number;
  /** `tcpi_delivery_rate`: latest delivery rate sample; absent before Linux 4.9. */
  delivery_rate_bytes_per_s?: number;
  /** `tcpi_total_retrans`: TCP segments retransmitted over the connection's lifetime. */
  retransmits: number;
  /** `tcpi_lost`: TCP segments in flight that are presumed lost. */
  lost: number;
  /** `tcpi_pacing_rate`: pacing rate; absent if unlimited. */
  pacing_rate_bytes_per_s?: number;
  /**
   * `tcpi_delivery_rate_app_limited`: whether the delivery rate sample was limited by the
   * application, not by the network; absent in older records.
   */
  delivery_rate_app_limited?: boolean;
}

/** What the client's kernel acknowledged of a response, and when. */
export interface Delivery {
  /** Content bytes that the client's kernel acknowledged. */
  acked_bytes: number;
  /**
   * Time from the last byte of the request to the acknowledgement of the last byte of the
   * response; absent if the response is censored: cut, or not acknowledged to its end
   * before the connection closed.
   */
  acked_us?: number;
  /**
   * Time during which the response had unacknowledged bytes and room in the client's receive
   * window. For a response that waited for content, the connection's busy time as counted by
   * the kernel, less `rwnd_limited_us`.
   */
  busy_us?: number;
  /**
   * The highest rate that the response could have shown, given its size, the congestion
   * window at its start, and the minimum round-trip time; absent if one is unknown.
   */
  testable_bytes_per_s?: number;
  /** Whether the response reached 2.5 Mbit/s; absent if that rate was not testable. */
  reached_hd?: boolean;
  /** Whether the response waited for content, from a backend or a live source. */
  source_limited?: boolean;
  /**
   * Time during which the client's receive window held the response back, because the client
   * read slowly; not part of `busy_us`. Absent if zero or unknown, and in older records.
   */
  rwnd_limited_us?: number;
}

/**
 * What a bundle assigned to a connection, from the first response that was large enough. It
 * took effect only if `decider` names it.
 */
export interface Steered {
  /** Bundle number. */
  bundle: number;
  /** Prefix of the matching rule; absent if no rule matched. */
  rule?: string;
  /** Whether the connection was held out from the rule, for comparison. */
  holdout?: boolean;
  /** Experiment that includes the connection; absent if none does. */
  experiment?: string;
  /** The connection's arm in the experiment. */
  arm?: string;
  /**
   * Why the kernel refused the congestion control requested by the rule or the arm; absent
   * if the kernel accepted it.
   */
  refused?: string;
  /** Redraw period in which the rule decided; absent if the rule draws each client once. */
  draw_period?: number;
}

/** A player's report in a request (CMCD, CTA-5004): the keys that describe playback. */
export interface Cmcd {
  /** `sid`: the playback session. */
  sid?: string;
  /** `st`: live or on demand. */
  st?: StreamType;
  /** `br`: bitrate of the requested media. */
  br_kbps?: number;
  /** `bl`: media buffered ahead of the playhead. */
  bl_ms?: number;
  /** `mtp`: measured throughput. */
  mtp_kbps?: number;
  /** `bs`: whether the buffer ran empty since the previous request. */
  bs?: boolean;
}

/** A row of the table sockets. */
export interface SocketRow {
  /** When the dump or the event was read, in microseconds since the Unix epoch. */
  time: number;
  /** Name of the site (PoP); empty if unnamed. */
  pop: string;
  /** Name of the agent's machine. */
  host: string;
  /**
   * When the record numbering started, in microseconds since the Unix epoch. Whenever
   * numbering restarts on a host, a new epoch starts.
   */
  epoch: number;
  /** Record number within the epoch. */
  number: number;
  /** The client's network: /24 for IPv4, /56 for IPv6. */
  prefix: string;
  /** Autonomous system number of the client's network. */
  asn: number | null;
  /**
   * Region of the client's network: an ISO 3166-1 country code, with the ISO 3166-2
   * subdivision if known (`DE`, `US-CA`), or a region from a CSV file of prefixes.
   */
  region: string | null;
  /** Remote address and port; never IPv4-mapped, even on a dual-stack listener. */
  client_ip: string;
  client_port: number;
  /** Local address and port; never IPv4-mapped, even on a dual-stack listener. */
  local_ip: string;
  local_port: number;
  /** The kernel's socket identifier (`sock_diag` cookie), unique until the next reboot. */
  cookie: number;
  /** Configured name of the socket's network namespace; absent for the agent's own namespace. */
  namespace: string | null;
  /** Socket state, as `ss` spells it: `ESTAB`, `CLOSE-WAIT`, … */
  state: string;
  /** Event that caused this record. */
  cause: string;
  /**
   * Sampling ratio: one in this many matching sockets is sampled, for its whole lifetime, so
   * this socket represents that many. Absent if all sockets are sampled.
   */
  sample_one_in: number | null;
  /**
   * Time since the socket's previous record, covered by the counters; absent in its first
   * record.
   */
  interval_us: number | null;
  /**
   * Congestion control algorithm. The event of a socket's destruction has none, so its
   * record has that of the last dump, or else of the connection's last response from a
   * followed edge. Absent if none of them is known.
   */
  congestion_control: string | null;
  /** Smoothed RTT. */
  rtt_us: number | null;
  /** Mean deviation of the RTT. */
  rttvar_us: number | null;
  /** Minimum RTT (since Linux 4.6); absent before the first sample. */
  min_rtt_us: number | null;
  /** Retransmission timeout. */
  rto_us: number | null;
  /** Congestion window, in TCP segments. */
  snd_cwnd: number | null;
  /** Slow start threshold in TCP segments; absent before the first loss. */
  snd_ssthresh: number | null;
  /** Maximum TCP segment size for sending (MSS), without headers. */
  snd_mss_bytes: number | null;
  /** Path MTU. */
  pmtu_bytes: number | null;
  /** TCP segments in flight. */
  unacked: number | null;
  /** TCP segments in flight that are presumed lost. */
  lost: number | null;
  /** Reordering tolerated before loss is presumed, in TCP segments. */
  reordering: number | null;
  /** Loss state machine: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss. */
  ca_state: number | null;
  /**
   * Latest delivery rate sample of content (since Linux 4.9); absent before the first one.
   * If the kernel's latest sample is that of a FIN sent alone, this is the sample of the
   * last dump or, when the socket was destroyed, of the last response from a followed edge.
   */
  delivery_rate_bytes_per_s: number | null;
  /** Whether the delivery rate sample was limited by the application, not by the network. */
  delivery_rate_app_limited: boolean | null;
  /** Pacing rate; absent if unlimited. */
  pacing_rate_bytes_per_s: number | null;
  /** Bytes in the send queue that have not been sent. */
  notsent_bytes: number | null;
  /** The client's receive window (since Linux 5.4). */
  snd_wnd_bytes: number | null;
  /** State in `tcp_info`, as the kernel's number. */
  tcp_state: number | null;
  /** Consecutive retransmission timeouts not yet recovered from. */
  timeouts_in_a_row: number | null;
  /** Estimate of the client's maximum TCP segment size. */
  rcv_mss_bytes: number | null;
  /** TCP segments in flight that were selectively acknowledged. */
  sacked: number | null;
  /** TCP segments in flight that were retransmitted. */
  retrans: number | null;
  /** Time since content was last sent. */
  last_data_sent_ms: number | null;
  /** Time since content was last received. */
  last_data_recv_ms: number | null;
  /** Time since the last acknowledgement. */
  last_ack_recv_ms: number | null;
  /** Current receive window clamp. */
  rcv_ssthresh_bytes: number | null;
  /** Maximum TCP segment size advertised to the client. */
  advmss_bytes: number | null;
  /** RTT estimated as the receiver; 0 until the client has sent enough data. */
  rcv_rtt_us: number | null;
  /** Bytes read by the application in the last round trip. */
  rcv_space_bytes: number | null;
  /** Maximum pacing rate (`SO_MAX_PACING_RATE`); absent if none is set. */
  max_pacing_rate_bytes_per_s: number | null;
  /** The receive window advertised to the client (since Linux 6.2). */
  rcv_wnd_bytes: number | null;
  /** Bytes acknowledged by the client (since Linux 4.1). */
  bytes_acked: number | null;
  /** Bytes received in order (since Linux 4.1). */
  bytes_received: number | null;
  /** Content bytes sent, including retransmissions (since Linux 4.19). */
  bytes_sent: number | null;
  /** Content bytes retransmitted (since Linux 4.19). */
  bytes_retrans: number | null;
  /** TCP segments sent (since Linux 4.2). */
  segs_out: number | null;
  /** TCP segments received (since Linux 4.2). */
  segs_in: number | null;
  /** Sent TCP segments with content (since Linux 4.6). */
  data_segs_out: number | null;
  /** TCP segments retransmitted. */
  retransmits: number | null;
  /** TCP segments delivered (since Linux 4.18). */
  delivered: number | null;
  /** TCP segments delivered with an ECN mark (since Linux 4.18). */
  delivered_ce: number | null;
  /** Duplicates that the client reported by DSACK (since Linux 4.19). */
  dsack_dups: number | null;
  /** Reordering events (since Linux 4.19). */
  reord_seen: number | null;
  /** Retransmission timeouts (since Linux 6.7). */
  timeouts: number | null;
  /** Time with content in flight (since Linux 4.10). */
  busy_us: number | null;
  /** Part of the busy time limited by the client's receive window (since Linux 4.10). */
  rwnd_limited_us: number | null;
  /** Part of the busy time limited by the send buffer (since Linux 4.10). */
  sndbuf_limited_us: number | null;
  /** Received TCP segments with content (since Linux 4.6). */
  data_segs_in: number | null;
  /** TCP segments received out of order (since Linux 5.4). */
  rcv_ooopack: number | null;
  /** Changes of the flow's path hash after a timeout (since Linux 6.2). */
  rehash: number | null;
  /** Recoveries from retransmission timeouts (since Linux 6.7). */
  timeout_recoveries: number | null;
  /** Time spent recovering from retransmission timeouts (since Linux 6.7). */
  timeout_recovery_ms: number | null;
  /** TCP segments received with a congestion mark (since Linux 6.18). */
  received_ce: number | null;
  /** Content bytes that the client reported as received with ECT(1) (since Linux 6.18). */
  delivered_e1_bytes: number | null;
  /** Content bytes that the client reported as received with ECT(0) (since Linux 6.18). */
  delivered_e0_bytes: number | null;
  /**
   * Content bytes that the client reported as received with a congestion mark (since Linux
   * 6.18).
   */
  delivered_ce_bytes: number | null;
  /** Content bytes received with ECT(1) (since Linux 6.18). */
  received_e1_bytes: number | null;
  /** Content bytes received with ECT(0) (since Linux 6.18). */
  received_e0_bytes: number | null;
  /** Content bytes received with a congestion mark (since Linux 6.18). */
  received_ce_bytes: number | null;
  /** Estimated bottleneck rate. */
  bbr_bw_bytes_per_s: number | null;
  /** Minimum RTT. */
  bbr_min_rtt_us: number | null;
  /** Pacing gain, in 1/256. */
  bbr_pacing_gain_256th: number | null;
  /** Congestion window gain, in 1/256. */
  bbr_cwnd_gain_256th: number | null;
  /**
   * Acknowledged bytes per second of busy time over the counters' interval, without the time
   * limited by the client's receive window and without the time of a FIN sent alone. Absent
   * without counters, and if that time is too short for the kernel's clock.
   */
  acked_goodput_bytes_per_s: number | null;
  /** Address family of the socket. An IPv6 socket may carry IPv4. */
  family: string | null;
  /** Bytes received and not yet read; absent for a listener. */
  rqueue_bytes: number | null;
  /** Bytes not yet acknowledged, including bytes not yet sent; absent for a listener. */
  wqueue_bytes: number | null;
  /** Connections that wait to be accepted; absent except for a listener. */
  accept_queue: number | null;
  /** Maximum number of connections that wait to be accepted; absent except for a listener. */
  accept_queue_max: number | null;
  /** The running timer; absent if none is running. */
  timer: string | null;
  /** Time until the timer expires; absent if none is running. */
  timer_expires_ms: number | null;
  /**
   * Consecutive retransmissions, probes or keepalives without a reply, by the running timer;
   * absent if none is running.
   */
  timer_retransmits: number | null;
  /** User ID of the owner. */
  uid: number | null;
  /** Inode number in sockfs, or 0 if no process has the socket open. */
  inode: number | null;
  /** Index of the network interface to which the socket is bound; absent if it is not bound. */
  interface: number | null;
  /** `SO_MARK`, reported only to processes with CAP_NET_ADMIN. */
  mark: number | null;
  /** ID of the cgroup v2 in which the socket was created (since Linux 5.8). */
  cgroup_id: number | null;
  /** Traffic class for queueing: the class ID of the socket's cgroup v1, or its priority. */
  class_id: number | null;
  /** IPv4 type of service. */
  tos: number | null;
  /** IPv6 traffic class. */
  tclass: number | null;
  /** Directions that are shut down: 0 none, 1 receiving, 2 sending, 3 both. */
  shutdown: number | null;
  /** Receive buffer memory used by data not yet read. */
  memory_rmem_alloc_bytes: number | null;
  /** Receive buffer limit (`SO_RCVBUF`). */
  memory_rcvbuf_bytes: number | null;
  /** Memory of packets passed to lower layers but not yet sent. */
  memory_wmem_alloc_bytes: number | null;
  /** Send buffer limit (`SO_SNDBUF`). */
  memory_sndbuf_bytes: number | null;
  /** Memory reserved for the socket but unused. */
  memory_fwd_alloc_bytes: number | null;
  /** Memory used by the send queue. */
  memory_wmem_queued_bytes: number | null;
  /** Memory used by socket options and filters. */
  memory_optmem_bytes: number | null;
  /** Memory used by TCP segments that arrived while a process held the socket lock. */
  memory_backlog_bytes: number | null;
  /** TCP segments dropped by the socket over its lifetime (since Linux 4.7). */
  memory_drops: number | null;
}

/** A row of the table responses. */
export interface ResponseRow {
  /**
   * When the last byte of the request head arrived, in microseconds since the Unix epoch;
   * rounded down to milliseconds in the JSON line.
   */
  time: number;
  /** Name of the site (PoP); empty if unnamed. */
  pop: string;
  /** Name of the agent's machine. */
  host: string;
  /**
   * When the record numbering started, in microseconds since the Unix epoch. Whenever
   * numbering restarts on a host, a new epoch starts.
   */
  epoch: number;
  /** Record number within the epoch. */
  number: number;
  /** The client's network: /24 for IPv4, /56 for IPv6. */
  prefix: string;
  /** Autonomous system number of the client's network. */
  asn: number | null;
  /**
   * Region of the client's network: an ISO 3166-1 country code, with the ISO 3166-2
   * subdivision if known (`DE`, `US-CA`), or a region from a CSV file of prefixes.
   */
  region: string | null;
  /** Client address and port; never IPv4-mapped, even on a dual-stack listener. */
  client_ip: string;
  client_port: number;
  /** Request method. */
  method: string;
  /** `Host` field as received; empty if the request had none. */
  request_host: string;
  /** Path and query as received. */
  path: string;
  /**
   * Status code sent, or the one that would have been sent if the client had not
   * disconnected.
   */
  status: number;
  /** Content bytes handed to the kernel, excluding the head and chunk framing. */
  bytes: number;
  /**
   * Time from the last byte of the request to the first byte of the response; absent if no
   * byte was sent.
   */
  ttfb_us: number | null;
  /**
   * Time from the last byte of the request until the kernel took the last byte of the
   * response, or until the cut. The client receives that byte later: see `delivery`.
   */
  written_us: number;
  /** Acknowledged bytes per second of busy time; absent if the delivery was not measured. */
  goodput_bytes_per_s: number | null;
  /** Cache result. */
  cache: string;
  /** Short reason for the cache result; absent if the result needs none. */
  detail: string | null;
  /**
   * Last backend chosen for this request itself; absent without a policy, or if no backend
   * was chosen.
   */
  backend: string | null;
  /** Protocol of the response. */
  protocol: string;
  /** Why the response was cut; absent if it was complete. */
  cut: string | null;
  /** Congestion control algorithm, as read back from the socket. */
  congestion_control: string | null;
  /**
   * Congestion control algorithm chosen by the kernel when it accepted the connection;
   * absent in older records.
   */
  congestion_control_start: string | null;
  /** What last decided the congestion control; absent in older records. */
  decider: string | null;
  /** `tcpi_rtt`: smoothed round-trip time. */
  rtt_us: number | null;
  /**
   * `tcpi_min_rtt`: minimum round-trip time; absent before the first sample and before Linux
   * 4.6.
   */
  min_rtt_us: number | null;
  /** `tcpi_snd_cwnd`: congestion window, in TCP segments. */
  snd_cwnd: number | null;
  /** `tcpi_delivery_rate`: latest delivery rate sample; absent before Linux 4.9. */
  delivery_rate_bytes_per_s: number | null;
  /** `tcpi_total_retrans`: TCP segments retransmitted over the connection's lifetime. */
  retransmits: number | null;
  /** `tcpi_lost`: TCP segments in flight that are presumed lost. */
  lost: number | null;
  /** `tcpi_pacing_rate`: pacing rate; absent if unlimited. */
  pacing_rate_bytes_per_s: number | null;
  /**
   * `tcpi_delivery_rate_app_limited`: whether the delivery rate sample was limited by the
   * application, not by the network; absent in older records.
   */
  delivery_rate_app_limited: boolean | null;
  /** Bundle number. */
  bundle: number | null;
  /** Prefix of the matching rule; absent if no rule matched. */
  rule: string | null;
  /** Whether the connection was held out from the rule, for comparison. */
  is_holdout: boolean | null;
  /** Experiment that includes the connection; absent if none does. */
  experiment: string | null;
  /** The connection's arm in the experiment. */
  arm: string | null;
  /**
   * Why the kernel refused the congestion control requested by the rule or the arm; absent
   * if the kernel accepted it.
   */
  refused: string | null;
  /** Redraw period in which the rule decided; absent if the rule draws each client once. */
  draw_period: number | null;
  /** `sid`: the playback session. */
  cmcd_sid: string | null;
  /** `st`: live or on demand. */
  cmcd_st: string | null;
  /** `br`: bitrate of the requested media. */
  cmcd_br_kbps: number | null;
  /** `bl`: media buffered ahead of the playhead. */
  cmcd_bl_ms: number | null;
  /** `mtp`: measured throughput. */
  cmcd_mtp_kbps: number | null;
  /** `bs`: whether the buffer ran empty since the previous request. */
  cmcd_bs: boolean | null;
  /** Request number assigned by the policy; absent without a policy. */
  xid: number | null;
  /** Number of times the policy restarted the request, keeping its `xid`. */
  restarts: number;
  /** Content bytes that the client's kernel acknowledged. */
  acked_bytes: number | null;
  /**
   * Time from the last byte of the request to the acknowledgement of the last byte of the
   * response; absent if the response is censored: cut, or not acknowledged to its end
   * before the connection closed.
   */
  acked_us: number | null;
  /**
   * Time during which the response had unacknowledged bytes and room in the client's receive
   * window. For a response that waited for content, the connection's busy time as counted by
   * the kernel, less `rwnd_limited_us`.
   */
  busy_us: number | null;
  /**
   * The highest rate that the response could have shown, given its size, the congestion
   * window at its start, and the minimum round-trip time; absent if one is unknown.
   */
  testable_bytes_per_s: number | null;
  /** Whether the response reached 2.5 Mbit/s; absent if that rate was not testable. */
  reached_hd: boolean | null;
  /** Whether the response waited for content, from a backend or a live source. */
  is_source_limited: boolean | null;
  /**
   * Time during which the client's receive window held the response back, because the client
   * read slowly; not part of `busy_us`. Absent if zero or unknown, and in older records.
   */
  rwnd_limited_us: number | null;
  /**
   * Sampling ratio: the edge records the responses of one in this many clients, so this
   * response represents that many. Absent if the edge records all responses.
   */
  sample_one_in: number | null;
  /** Lines logged by the policy, each preceded by its tag. */
  lines: string | null;
}
