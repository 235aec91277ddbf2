// What is looked at among the responses, from all of them down to a single one, and how the page's address says it. Pure.

import { type Grouping, GROUPINGS, type SingleResponse } from "../telemetry/api";

/** How far back responses are looked at, in seconds, and as it is written. */
export const WINDOWS = [
  [60, "last minute"],
  [300, "last 5 minutes"],
  [900, "last 15 minutes"],
  [3600, "last hour"],
  [21_600, "last 6 hours"],
  [86_400, "last day"],
] as const;

export interface ResponsesChoice {
  by: Grouping;
  window_s: number;
  /** The group that is open. */
  group: { name: string | null } | null;
  /** The bucket of it whose responses are shown; null: all. */
  bucket: number | null;
  /** The response that is open: `responseKey`. */
  response: string | null;
}

export const FIRST_CHOICE: ResponsesChoice = { by: "cache", window_s: 900, group: null, bucket: null, response: null };

/** Names one response among those of a machine's agent. */
export function responseKey({ time_us, number }: SingleResponse): string {
  return `${time_us}-${number}`;
}

/** Reads what `writeResponses` writes; what is not understood is left out, with what hangs on it. */
export function readResponses(parameters: URLSearchParams): ResponsesChoice {
  const { by, window_s } = FIRST_CHOICE;
  const name = parameters.get("group");
  const group = parameters.has("unnamed") ? { name: null } : name === null ? null : { name };
  const bucket = /^\d{1,3}$/.exec(parameters.get("bucket") ?? "")?.[0];
  return {
    by: GROUPINGS.find((grouping) => grouping === parameters.get("by")) ?? by,
    window_s: WINDOWS.find(([s]) => String(s) === parameters.get("window"))?.[0] ?? window_s,
    group,
    bucket: group === null || bucket === undefined ? null : Number(bucket),
    response: group === null ? null : parameters.get("response"),
  };
}

export function writeResponses(parameters: URLSearchParams, { by, window_s, group, bucket, response }: ResponsesChoice): void {
  if (by !== FIRST_CHOICE.by) parameters.set("by", by);
  if (window_s !== FIRST_CHOICE.window_s) parameters.set("window", String(window_s));
  if (group === null) return;
  if (group.name === null) parameters.set("unnamed", "");
  else parameters.set("group", group.name);
  if (bucket !== null) parameters.set("bucket", String(bucket));
  if (response !== null) parameters.set("response", response);
}
