// Types and requests of the controller's API, which the console server forwards.
//
// Kept in sync by hand with the controller's HTTP API (docs/reference/controller-http.md). Rates
// are in bytes per second, and times in seconds since 1970 in UTC; unknown values are null.

import { getJson } from "../api";

/** A unit for which the controller decides: a PoP, or one tenant's share of it. */
export interface ScopeName {
  pop: string;
  /** The first host of the tenant; null for hosts without a tenant. */
  tenant: string | null;
}

/** The state of a scope after its newest window. */
export interface Scope extends ScopeName {
  /** Number of the newest decided window; windows are numbered by the clock. */
  window: number;
  window_s: number;
  bundle: number | null;
  steered: number;
  on_trial: number;
  promising: number;
  proved: number;
  explored: number;
  /** Number of further windows in which the guardrail blocks new entries. */
  paused_windows: number;
  prefixes: number;
  /** Highest prefix median in the bottom group. */
  bottom_bytes_per_s: number | null;
  /** The pooled result of all trials, as effects on log goodput. */
  pool: { mean: number; sd: number; prefixes: number } | null;
}

export interface Percentiles {
  p5: number | null;
  p10: number | null;
}

/** Groups of connections with percentiles of their own. */
export const GROUPS = ["all", "steered", "held_out"] as const;
export type Group = (typeof GROUPS)[number];
export type Rates = Record<Group, Percentiles | null>;

export interface PrefixChange {
  prefix: string;
  reason: string;
}

export type Outcome = "decided" | "stopped" | "silent" | "repeated" | "early";

/** A decision of the controller. */
export interface Round {
  window: number;
  unix_s: number;
  outcome: Outcome;
  ranked: number;
  bottom_bytes_per_s: number | null;
  steered: number;
  /** Number of steered prefixes that were already steered in the previous round. */
  kept: number;
  entered: PrefixChange[];
  left: PrefixChange[];
  /** Prefixes shown to gain within the network; absent in rounds of earlier releases. */
  promising?: string[];
  proved: string[];
  /** Number of the new bundle, if the round produced one. */
  bundle: number | null;
  delivery_rate: Rates | null;
  goodput: Rates | null;
}

/** An effect on goodput and its confidence interval, in percent. */
export interface Effect {
  percent: number;
  low: number;
  high: number;
  /** 10th percentiles of goodput of both arms, in bytes per second; null with too few outcomes. */
  p10: { steered: number; held_out: number } | null;
}

/** The stage of a steered prefix; null if it is not steered. */
export type Stage = "on trial" | "promising within the network" | "helped as a whole" | "by duty cycle alone";

export interface Prefix {
  prefix: string;
  duty: number;
  flap: number;
  /** Number of windows in the history in which the prefix was ranked. */
  observed: number;
  connections: number;
  steered: boolean;
  reason: string;
  stage: Stage | null;
  effect: Effect | null;
}

export interface PrefixesAnswer {
  prefixes: Prefix[];
  limits: Limits;
}

export interface Limits {
  duty_enter: number;
  duty_leave: number;
  flap_max: number;
}

export interface Explanation {
  /** The output of `thalweg controller explain`. */
  text: string;
  reason: string;
  /** The reason as a sentence. */
  said: string;
  /**
   * One character per window, oldest first: `#` in the bottom group, `.` outside it, `-` not
   * ranked.
   */
  history: string;
  entry: Evidence | null;
  changes: { window: number; unix_s: number; what: "entered" | "left" | "promising" | "proved"; reason: string | null }[];
}

/** The evidence of a trial. */
export interface Evidence {
  /** Number of outcomes of clients in each arm. */
  treated: number;
  held_out: number;
  /** Effect within the network, from steered and held-out clients. */
  within: Effect | null;
  /** Effect on the network as a whole, from pairs of blocks of time. */
  as_a_whole: Effect | null;
  /** Number of pairs of blocks; null before the network is promising. */
  pairs: number | null;
  /** Effect on the share of retransmitted bytes, in percentage points. */
  retransmitted: { points: number; low: number; high: number } | null;
}

export interface Edge {
  name: string;
  bundle: number | null;
  heard_unix_s: number | null;
  is_canary: boolean;
  refused: { reason: string } | null;
}

export interface EdgesAnswer {
  /** Number of the bundle that all edges should use. */
  stable: number | null;
  candidate: { number: number; stage: string; since_unix_s: number } | null;
  edges: Edge[];
}

/** Maximum rounds per request: a day of five-minute windows. */
export const ROUNDS_MAX = 288;

export const SCOPES_URL = "api/control/scopes";

export function fetchScopes(signal: AbortSignal): Promise<{ scopes: Scope[] }> {
  return getJson(SCOPES_URL, signal);
}

/** Returns the URL of one of a scope's resources. */
export function scopeUrl(what: "rounds" | "prefixes" | "explain" | "edges", { pop, tenant }: ScopeName, more: Record<string, string> = {}): string {
  const query = new URLSearchParams({ pop, ...(tenant === null ? {} : { tenant }), ...more });
  // A query may contain slashes and colons unescaped (RFC 3986 section 3.4), and prefixes are
  // easier to read that way.
  return `api/control/${what}?${query.toString().replaceAll("%2F", "/").replaceAll("%3A", ":")}`;
}

/** Returns the command that prints the explanation of a prefix. */
export function explainCommand({ pop, tenant }: ScopeName, prefix: string): string {
  const quoted = (word: string): string => (/^[\w.:/-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`);
  const flags = [["pop", pop], ["tenant", tenant ?? ""]] as const;
  return ["thalweg controller explain", prefix, ...flags.filter(([, of]) => of).map(([flag, of]) => `--${flag} ${quoted(of)}`)].join(" ");
}
