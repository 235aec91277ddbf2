// Records as in JSON lines, and table rows as the agent stores them.
//
// Generated from the declarations in crates/record by its test `generated`, which fails if this
// file is stale.

/** The result of a cache lookup. */
export type CacheResult = "hit" | "join" | "miss" | "validated" | "stale" | "pass" | "purge" | "synth" | "pipe" | "error";

/** The protocol of a response. */
export type Protocol = "HTTP/1.0" | "HTTP/1.1";

/** Reasons for a response to end before its last byte was handed to the kernel. */
export type Cut = "client_closed" | "client_stalled" | "backend_failed" | "storage_failed" | "shutdown";

/** Kind of a logged line, by Varnish's tag names. */
export type LineTag = "VCL_Log" | "VCL_Error" | "Timestamp" | "VCL_acl" | "FetchError";

/** The deciders of a connection's congestion control, weakest first. */
export type Decider = "default" | "rule" | "experiment" | "policy";

/** Kind of stream, by CMCD's letters. */
export type StreamType = "l" | "v";

/** One response from the edge. */
export interface ResponseRecord {
  v: number;
  /**
   * When the last byte of the request's head arrived, in microseconds since the Unix epoch.
   * The JSON line has milliseconds.
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
  /** Status sent, or the status that would have been sent if the client had stayed. */
  status: number;
  /** Content bytes handed to the kernel, without the head and chunk framing. */
  bytes: number;
  /**
   * Time from the last byte of the request to the first byte of the response; absent if no
   * byte was sent.
   */
  ttfb_us?: number;
  /** Time from the last byte of the request to the last byte of the response, or to the cut. */
  duration_us: number;
  /** Content bytes per second over the whole response. */
  goodput_bytes_per_s: number;
  /** Cache result. */
  cache: CacheResult;
  /** Reason for the cache result, in a few words; absent if there is nothing to add. */
  detail?: string;
  /**
   * Last backend chosen for this very request; absent without a policy, or if no backend was
   * chosen.
   */
  backend?: string;
  /** Protocol of the response. */
  protocol: Protocol;
  /** Whether the whole response was sent. */
  complete: boolean;
  /** Why the response was cut; absent if it was complete. */
  cut?: Cut;
  /** State of the connection at the end of the response; absent if the kernel gave no data. */
  tcp?: TcpState;
  /** How a bundle affected the connection; absent if no bundle did. */
  steered?: Steered;
  /** The player's report in the request; absent if the request had none. */
  cmcd?: Cmcd;
  /** The policy's number for the request; absent without a policy. */
  xid?: number;
  /** Number of restarts of the request by the policy, all under the same `xid`. */
  restarts?: number;
  /** Lines logged by the policy and its modules, in order. */
  lines?: Line[];
  /** Number of lines dropped for lack of room. */
  lines_lost?: number;
}

/** A logged line of a request. */
export interface Line {
  /** Tag of the line. */
  tag: LineTag;
  /** Text as logged. */
  text: string;
}

/** The kernel's data on the connection when the response ended. */
export interface TcpState {
  /** Congestion control, as read back from the socket. */
  congestion_control: string;
  /**
   * Congestion control that the kernel chose when the connection was accepted, before any
   * decision; absent in older records.
   */
  congestion_control_start?: string;
  /** Last decider of the congestion control; absent in older records. */
  decider?: Decider;
  /** `tcpi_rtt`, smoothed. */
  rtt_us: number;
  /** `tcpi_min_rtt`; absent before the first sample and before Linux 4.6. */
  min_rtt_us?: number;
  /** `tcpi_snd_cwnd`, in TCP segments. */
  snd_cwnd: number;
  /** `tcpi_delivery_rate`, the newest sample; absent before Linux 4.9. */
  delivery_rate_bytes_per_s?: number;
  /** `tcpi_total_retrans`: TCP segments retransmitted over the life of the connection. */
  retransmits: number;
  /** `tcpi_lost`: TCP segments in flight considered lost. */
  lost: number;
  /** `tcpi_pacing_rate`; absent if the kernel does not limit the rate. */
  pacing_rate_bytes_per_s?: number;
}

/** How a bundle affected a connection, from the first response to which it applied. */
export interface Steered {
  /** Number of the bundle. */
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
   * Why the kernel refused the congestion control of the rule or the arm; absent if the
   * kernel accepted it.
   */
  refused?: string;
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
  /** The machine's name. */
  host: string;
  /**
   * Start of the record numbering, in microseconds since the Unix epoch; distinguishes the
   * numberings of a host.
   */
  epoch: number;
  /** Number of the record within the epoch. */
  number: number;
  /** The client's network: /24 for IPv4, /56 for IPv6. */
  prefix: string;
  /** Autonomous system number of the client's network. */
  asn: number | null;
  /**
   * Region of the client's network: an ISO 3166-1 country, with the ISO 3166-2 subdivision
   * if known (`DE`, `US-CA`), or the region from a CSV of prefixes.
   */
  region: string | null;
  /** Remote address and port; never IPv4-mapped, even on a dual-stack listener. */
  client_ip: string;
  client_port: number;
  /** Local address and port; never IPv4-mapped, even on a dual-stack listener. */
  local_ip: string;
  local_port: number;
  /** Kernel's identifier of the socket until reboot (`sock_diag`'s cookie). */
  cookie: number;
  /** Network namespace, by its configured name; absent in the agent's own namespace. */
  namespace: string | null;
  /** Socket state, as `ss` spells it: `ESTAB`, `CLOSE-WAIT`, … */
  state: string;
  /** Event that caused this record. */
  cause: string;
  /**
   * Sampling ratio: one in this many matching sockets is sampled, each for its whole life,
   * so this socket represents that many; absent if all sockets are sampled.
   */
  sample_one_in: number | null;
  /**
   * Time since the previous record, which the counters cover; absent in a socket's first
   * record.
   */
  interval_us: number | null;
  /**
   * Congestion control; absent if the kernel does not report it, as in an event for a socket
   * that was in no dump.
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
  /** Largest TCP segment sent, without headers. */
  snd_mss_bytes: number | null;
  /** Path MTU. */
  pmtu_bytes: number | null;
  /** TCP segments in flight. */
  unacked: number | null;
  /** TCP segments in flight that are considered lost. */
  lost: number | null;
  /** Reordering tolerated without assuming loss, in TCP segments. */
  reordering: number | null;
  /** Loss state machine: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss. */
  ca_state: number | null;
  /**
   * Newest delivery rate sample (since Linux 4.9); absent before the first sample, and after
   * this side has closed, when the sample would be the FIN's.
   */
  delivery_rate_bytes_per_s: number | null;
  /** Whether the delivery rate sample was limited by the application, not by the network. */
  delivery_rate_app_limited: boolean | null;
  /** Pacing rate; absent if unlimited. */
  pacing_rate_bytes_per_s: number | null;
  /** Bytes not yet sent. */
  notsent_bytes: number | null;
  /** The client's receive window (since Linux 5.4). */
  snd_wnd_bytes: number | null;
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
  /** TCP segments with content sent (since Linux 4.6). */
  data_segs_out: number | null;
  /** TCP segments retransmitted. */
  retransmits: number | null;
  /** TCP segments delivered (since Linux 4.18). */
  delivered: number | null;
  /** TCP segments delivered with an ECN mark (since Linux 4.18). */
  delivered_ce: number | null;
  /** Duplicates reported by the client (since Linux 4.19). */
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
  /** Estimated bottleneck rate. */
  bbr_bw_bytes_per_s: number | null;
  /** Minimum RTT. */
  bbr_min_rtt_us: number | null;
  /** Pacing gain, in 1/256. */
  bbr_pacing_gain_256th: number | null;
  /** Congestion window gain, in 1/256. */
  bbr_cwnd_gain_256th: number | null;
}

/** A row of the table responses. */
export interface ResponseRow {
  /**
   * When the last byte of the request's head arrived, in microseconds since the Unix epoch.
   * The JSON line has milliseconds.
   */
  time: number;
  /** Name of the site (PoP); empty if unnamed. */
  pop: string;
  /** The machine's name. */
  host: string;
  /**
   * Start of the record numbering, in microseconds since the Unix epoch; distinguishes the
   * numberings of a host.
   */
  epoch: number;
  /** Number of the record within the epoch. */
  number: number;
  /** The client's network: /24 for IPv4, /56 for IPv6. */
  prefix: string;
  /** Autonomous system number of the client's network. */
  asn: number | null;
  /**
   * Region of the client's network: an ISO 3166-1 country, with the ISO 3166-2 subdivision
   * if known (`DE`, `US-CA`), or the region from a CSV of prefixes.
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
  /** Status sent, or the status that would have been sent if the client had stayed. */
  status: number;
  /** Content bytes handed to the kernel, without the head and chunk framing. */
  bytes: number;
  /**
   * Time from the last byte of the request to the first byte of the response; absent if no
   * byte was sent.
   */
  ttfb_us: number | null;
  /** Time from the last byte of the request to the last byte of the response, or to the cut. */
  duration_us: number;
  /** Content bytes per second over the whole response. */
  goodput_bytes_per_s: number;
  /** Cache result. */
  cache: string;
  /** Reason for the cache result, in a few words; absent if there is nothing to add. */
  detail: string | null;
  /**
   * Last backend chosen for this very request; absent without a policy, or if no backend was
   * chosen.
   */
  backend: string | null;
  /** Protocol of the response. */
  protocol: string;
  /** Why the response was cut; absent if it was complete. */
  cut: string | null;
  /** Congestion control, as read back from the socket. */
  congestion_control: string | null;
  /**
   * Congestion control that the kernel chose when the connection was accepted, before any
   * decision; absent in older records.
   */
  congestion_control_start: string | null;
  /** Last decider of the congestion control; absent in older records. */
  decider: string | null;
  /** `tcpi_rtt`, smoothed. */
  rtt_us: number | null;
  /** `tcpi_min_rtt`; absent before the first sample and before Linux 4.6. */
  min_rtt_us: number | null;
  /** `tcpi_snd_cwnd`, in TCP segments. */
  snd_cwnd: number | null;
  /** `tcpi_delivery_rate`, the newest sample; absent before Linux 4.9. */
  delivery_rate_bytes_per_s: number | null;
  /** `tcpi_total_retrans`: TCP segments retransmitted over the life of the connection. */
  retransmits: number | null;
  /** `tcpi_lost`: TCP segments in flight considered lost. */
  lost: number | null;
  /** `tcpi_pacing_rate`; absent if the kernel does not limit the rate. */
  pacing_rate_bytes_per_s: number | null;
  /** Number of the bundle. */
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
   * Why the kernel refused the congestion control of the rule or the arm; absent if the
   * kernel accepted it.
   */
  refused: string | null;
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
  /** The policy's number for the request; absent without a policy. */
  xid: number | null;
  /** Number of restarts of the request by the policy, all under the same `xid`. */
  restarts: number;
  /** Lines logged by the policy, each preceded by its tag. */
  lines: string | null;
}
