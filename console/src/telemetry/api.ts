// The shapes that the console server answers with from the agent's SQLite, and the requests for them.
//
// Kept by hand beside their source, schema/queries/console/. Each answer has the query that made it. Times are
// microseconds since 1970, UTC; what is not known is null.

import { getJson } from "../api";

/** `[time_us, delivery_rate_bytes_per_s, rtt_us]` of one sample. */
export type SocketSample = [number, number | null, number | null];

/** The newest sample of a socket, in the terms of the kernel's tcp_info. */
export interface Socket {
  /** The kernel's name for it; beyond 2^53, so text. */
  cookie: string;
  client: string;
  local: string;
  prefix: string;
  asn: number | null;
  region: string | null;
  /** As ss spells it: ESTAB, CLOSE-WAIT. */
  state: string;
  congestion_control: string | null;
  rtt_us: number | null;
  min_rtt_us: number | null;
  /** In TCP segments. */
  snd_cwnd: number | null;
  delivery_rate_bytes_per_s: number | null;
  /** Whether the application had too little to send for the rate to tell of the network. */
  delivery_rate_app_limited: boolean | null;
  pacing_rate_bytes_per_s: number | null;
  acked_bytes_per_s: number | null;
  /** TCP segments sent again within the window. */
  retransmits: number | null;
  /** Within the window. */
  bytes_acked: number | null;
  last_us: number;
  is_ended: boolean;
  /** Oldest first. */
  history: SocketSample[];
}

export interface SocketsAnswer {
  sql: string;
  at_us: number;
  sockets: Socket[];
}

/** What responses can be grouped by: columns of the table. */
export const GROUPINGS = ["path", "request_host", "cache", "congestion_control", "prefix"] as const;
export type Grouping = (typeof GROUPINGS)[number];

/** The TTFB of one group of responses. */
export interface TtfbGroup {
  /** Null: that of responses for which it is not known. */
  name: string | null;
  /** Of which a first byte was sent. */
  responses: number;
  p50_us: number;
  p95_us: number;
  p99_us: number;
  /** `[bucket, responses]`, in order: bucket b has 2^(b/2) up to, not with, 2^((b+1)/2) µs. */
  buckets: [number, number][];
}

export interface TtfbAnswer {
  sql: string;
  groups: TtfbGroup[];
}

/** One response, everything that was kept of it. */
export interface SingleResponse {
  time_us: number;
  client: string;
  prefix: string;
  asn: number | null;
  region: string | null;
  method: string;
  request_host: string;
  path: string;
  status: number;
  bytes: number;
  /** Null if no byte of it was sent. */
  ttfb_us: number | null;
  duration_us: number;
  goodput_bytes_per_s: number;
  cache: string;
  detail: string | null;
  backend: string | null;
  protocol: string;
  cut: string | null;
  congestion_control: string | null;
  congestion_control_start: string | null;
  decider: string | null;
  rtt_us: number | null;
  min_rtt_us: number | null;
  snd_cwnd: number | null;
  delivery_rate_bytes_per_s: number | null;
  pacing_rate_bytes_per_s: number | null;
  retransmits: number | null;
  lost: number | null;
  bundle: number | null;
  rule: string | null;
  is_holdout: boolean | null;
  experiment: string | null;
  arm: string | null;
  refused: string | null;
  cmcd_sid: string | null;
  cmcd_st: string | null;
  cmcd_br_kbps: number | null;
  cmcd_bl_ms: number | null;
  cmcd_mtp_kbps: number | null;
  cmcd_bs: boolean | null;
  xid: number | null;
  restarts: number;
  /** What the policy logged, a line each after its tag. */
  lines: string | null;
  pop: string;
  host: string;
  number: string;
}

export interface ResponsesAnswer {
  sql: string;
  responses: SingleResponse[];
}

/** Which single responses are wanted: those of a group, and of a TTFB of at least `min_us` and below `max_us`. */
export interface Wanted {
  by: Grouping;
  name: string | null;
  ttfb: { min_us: number; max_us: number } | null;
}

/** Rows that are asked for. */
export const SOCKETS_MAX = 300;
export const RESPONSES_MAX = 200;

/** Groups that are answered, those with the most responses. */
export const GROUPS_MAX = 50;

/** What stands in place of an answer where there is nobody to ask. */
export const NO_AGENT = "no agent: write [agent] into the config file";

export function fetchSockets(window_s: number, signal: AbortSignal): Promise<SocketsAnswer> {
  return getJson(`api/telemetry/sockets?window_s=${window_s}&limit=${SOCKETS_MAX}`, signal);
}

export function fetchTtfb(by: Grouping, window_s: number, signal: AbortSignal): Promise<TtfbAnswer> {
  return getJson(`api/telemetry/ttfb?by=${by}&window_s=${window_s}`, signal);
}

export function fetchResponses(wanted: Wanted, window_s: number, signal: AbortSignal): Promise<ResponsesAnswer> {
  return getJson(`api/telemetry/responses?${responsesQuery(wanted, window_s)}`, signal);
}

export function responsesQuery({ by, name, ttfb }: Wanted, window_s: number): string {
  const query = new URLSearchParams({ window_s: String(window_s), limit: String(RESPONSES_MAX), by });
  if (name === null) query.set("name_is_null", "true");
  else query.set("name", name);
  if (ttfb) {
    query.set("ttfb_min_us", String(ttfb.min_us));
    query.set("ttfb_max_us", String(ttfb.max_us));
  }
  return query.toString();
}
