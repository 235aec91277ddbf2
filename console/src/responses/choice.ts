// The selection of responses, from all to a single one, and pure functions that encode the
// selection in the page's address.

import { type Grouping, GROUPINGS, type SingleResponse } from "../telemetry/api";

/** Time ranges of responses, in seconds, and their labels. */
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
  /** The open group. */
  group: { name: string | null } | null;
  /** The selected bucket of the group; null for all buckets. */
  bucket: number | null;
  /** The `responseKey` of the open response. */
  response: string | null;
}

export const FIRST_CHOICE: ResponsesChoice = { by: "cache", window_s: 900, group: null, bucket: null, response: null };

/** Returns a key that identifies a response among those of one agent. */
export function responseKey({ time_us, number }: SingleResponse): string {
  return `${time_us}-${number}`;
}

/**
 * Parses the output of `writeResponses`; ignores unknown values and the values that depend on them.
 */
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
