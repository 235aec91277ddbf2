// Types and requests for the agent's SQLite data, which the console server queries.
//
// Kept in sync by hand with schema/queries/console/, except for the columns, which come from
// record.ts. Each reply contains its SQL query. Times are microseconds since 1970 in UTC; unknown
// values are null.

import { getJson } from "../api";
import type { ResponseRow, SocketRow } from "../record";

/** One sample as `[time_us, delivery_rate_bytes_per_s, rtt_us]`. */
export type SocketSample = [number, number | null, number | null];

/** The newest sample of a socket; fields are named as in the kernel's `tcp_info`. */
export interface Socket
  extends Pick<
    SocketRow,
    | "prefix"
    | "asn"
    | "region"
    | "state"
    | "congestion_control"
    | "rtt_us"
    | "min_rtt_us"
    | "snd_cwnd"
    | "delivery_rate_bytes_per_s"
    | "delivery_rate_app_limited"
    | "pacing_rate_bytes_per_s"
  > {
  /** The socket's cookie, a string because it may exceed 2^53. */
  cookie: string;
  client: string;
  local: string;
  acked_bytes_per_s: number | null;
  /** Number of TCP segments retransmitted in the window. */
  retransmits: number | null;
  /** Bytes acknowledged in the window. */
  bytes_acked: number | null;
  last_us: number;
  is_ended: boolean;
  /** Samples, oldest first. */
  history: SocketSample[];
}

export interface SocketsAnswer {
  sql: string;
  at_us: number;
  sockets: Socket[];
}

/** Columns by which responses can be grouped. */
export const GROUPINGS = ["path", "request_host", "cache", "congestion_control", "prefix"] as const;
export type Grouping = (typeof GROUPINGS)[number];

/** The TTFB of one group of responses. */
export interface TtfbGroup {
  /** Name of the group; null for responses without this value. */
  name: string | null;
  /** Number of responses with a first byte. */
  responses: number;
  p50_us: number;
  p95_us: number;
  p99_us: number;
  /**
   * `[bucket, responses]` in order: bucket b covers 2^(b/2) µs up to, but excluding, 2^((b+1)/2)
   * µs.
   */
  buckets: [number, number][];
}

export interface TtfbAnswer {
  sql: string;
  groups: TtfbGroup[];
}

/** One response with all stored fields. */
export interface SingleResponse extends Omit<ResponseRow, Replaced | "number"> {
  time_us: number;
  /** Client address and port. */
  client: string;
  number: string;
}

/** Columns in a reply that are replaced by other fields of the reply. */
export const REPLACED = ["time", "epoch", "client_ip", "client_port"] as const;
type Replaced = (typeof REPLACED)[number];

export interface ResponsesAnswer {
  sql: string;
  responses: SingleResponse[];
}

/**
 * Selects the responses to list: those in a group, with a TTFB of at least `min_us` and below
 * `max_us`.
 */
export interface Wanted {
  by: Grouping;
  name: string | null;
  ttfb: { min_us: number; max_us: number } | null;
}

/** Maximum number of rows requested. */
export const SOCKETS_MAX = 300;
export const RESPONSES_MAX = 200;

/** Maximum number of groups in a reply, which contains the largest groups. */
export const GROUPS_MAX = 50;

/** Message shown instead of data if there is no agent. */
export const NO_AGENT = "no agent: add an [agent] section to the config file";

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
