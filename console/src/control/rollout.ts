// Pure functions that list the edges with the bundle in use on each.

import type { Edge, EdgesAnswer } from "./api";
import { time } from "./figures";

/**
 * Time after which a silent edge counts as late, measured from the newest poll of any edge: twice
 * the maximum duration of a poll, which is 60 s.
 */
export const LATE_S = 120;

/** An edge's bundle: the stable bundle, the candidate (on canaries), another bundle, or none. */
export type BundleState = "stable" | "candidate" | "another" | "none";

export interface EdgeStatus extends Edge {
  has: BundleState;
  is_late: boolean;
}

/**
 * Returns the edges: first those that refused a bundle, then canaries; otherwise sorted by name.
 */
export function edgeStatuses({ stable, candidate, edges }: EdgesAnswer): EdgeStatus[] {
  // Compare with the newest poll of any edge, because the viewer's clock may differ from the
  // controller's.
  const newest_s = edges.reduce((newest, { heard_unix_s }) => Math.max(newest, heard_unix_s ?? 0), 0);
  const all = edges.map((edge) => ({ ...edge, has: has(edge.bundle), is_late: newest_s - (edge.heard_unix_s ?? 0) > LATE_S }));
  return all.sort(
    (a, b) => Number(b.refused !== null) - Number(a.refused !== null) || Number(b.is_canary) - Number(a.is_canary) || a.name.localeCompare(b.name, "en", { numeric: true }),
  );

  function has(bundle: number | null): BundleState {
    if (bundle === null) return "none";
    return bundle === candidate?.number ? "candidate" : bundle === stable ? "stable" : "another";
  }
}

/** Describes the progress of the rollout in words. */
export function summary(answer: EdgesAnswer): string {
  const { stable, candidate, edges } = answer;
  const all = edgeStatuses(answer);
  const having = (has: BundleState) => all.filter((edge) => edge.has === has).length;
  const of = (count: number) => `on ${count} of ${edges.length} ${edges.length === 1 ? "edge" : "edges"}`;
  const words = [stable === null ? "no bundle yet" : `stable: ${stable}, ${of(having("stable"))}`];
  if (candidate) words.push(`candidate: ${candidate.number}, ${candidate.stage} since ${time(candidate.since_unix_s)}, ${of(having("candidate"))}`);
  return words.join(" · ");
}
