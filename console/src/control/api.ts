// The shapes that the console server answers with from the controller, and the requests for them.
//
// Kept by hand beside their source, the controller's HTTP (docs/control.md). Rates are bytes per second, times are seconds since
// 1970, UTC; what is not known is null.

import { getJson } from "../api";

/** What is decided apart from all else: a PoP, or one tenant's part of it. */
export interface ScopeName {
  pop: string;
  /** By its first host; null: hosts that no tenant has. */
  tenant: string | null;
}

/** How one scope stands after its newest window. */
export interface Scope extends ScopeName {
  /** The newest window that was decided; windows are numbered by the clock. */
  window: number;
  window_s: number;
  bundle: number | null;
  steered: number;
  on_trial: number;
  proved: number;
  explored: number;
  /** Windows for which the guardrail goes on to stop the rounds. */
  paused_windows: number;
  prefixes: number;
  /** The largest median of the bottom group. */
  bottom_bytes_per_s: number | null;
  /** What all trials show together, as effects on log goodput. */
  pool: { mean: number; sd: number; prefixes: number } | null;
}

export interface Percentiles {
  p5: number | null;
  p10: number | null;
}

/** Who the percentiles are of. */
export const GROUPS = ["all", "steered", "held_out"] as const;
export type Group = (typeof GROUPS)[number];
export type Rates = Record<Group, Percentiles | null>;

export interface PrefixChange {
  prefix: string;
  reason: string;
}

export type Outcome = "decided" | "stopped" | "silent" | "repeated" | "early";

/** One decision. */
export interface Round {
  window: number;
  unix_s: number;
  outcome: Outcome;
  ranked: number;
  bottom_bytes_per_s: number | null;
  steered: number;
  /** Of the steered, those that were before. */
  kept: number;
  entered: PrefixChange[];
  left: PrefixChange[];
  proved: string[];
  /** The bundle that says so, where it is another one than before. */
  bundle: number | null;
  delivery_rate: Rates | null;
  goodput: Rates | null;
}

/** An effect on goodput with its interval, in percent. */
export interface Effect {
  percent: number;
  low: number;
  high: number;
}

/** How far a steered prefix is; null where it is not steered. */
export type Stage = "on trial" | "shown to be helped" | "by duty cycle alone";

export interface Prefix {
  prefix: string;
  duty: number;
  flap: number;
  /** Windows of its history in which it was ranked. */
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
  /** As `thalweg controller explain` prints it. */
  text: string;
  reason: string;
  /** The reason in words. */
  said: string;
  /** A sign for each window, oldest first: # in the bottom group, . not, - not ranked. */
  history: string;
  entry: Evidence | null;
  changes: { window: number; unix_s: number; what: "entered" | "left" | "proved"; reason: string | null }[];
}

/** What a trial has shown. */
export interface Evidence {
  /** Connections of each arm. */
  treated: number;
  held_out: number;
  goodput: Effect | null;
  /** Of the share of bytes that is sent again, in percentage points. */
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
  /** The bundle that all edges are to have. */
  stable: number | null;
  candidate: { number: number; stage: string; since_unix_s: number } | null;
  edges: Edge[];
}

/** Rounds that are asked for: a day of five minutes. */
export const ROUNDS_MAX = 288;

export const SCOPES_URL = "api/control/scopes";

export function fetchScopes(signal: AbortSignal): Promise<{ scopes: Scope[] }> {
  return getJson(SCOPES_URL, signal);
}

/** The address of one of a scope's answers. */
export function scopeUrl(what: "rounds" | "prefixes" | "explain" | "edges", { pop, tenant }: ScopeName, more: Record<string, string> = {}): string {
  const query = new URLSearchParams({ pop, ...(tenant === null ? {} : { tenant }), ...more });
  // Slash and colon need no escape in a query, RFC 3986 section 3.4: prefixes read better without.
  return `api/control/${what}?${query.toString().replaceAll("%2F", "/").replaceAll("%3A", ":")}`;
}

/** What to type for the text of a prefix. */
export function explainCommand({ pop, tenant }: ScopeName, prefix: string): string {
  const quoted = (word: string): string => (/^[\w.:/-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`);
  const flags = [["pop", pop], ["tenant", tenant ?? ""]] as const;
  return ["thalweg controller explain", prefix, ...flags.filter(([, of]) => of).map(([flag, of]) => `--${flag} ${quoted(of)}`)].join(" ");
}
