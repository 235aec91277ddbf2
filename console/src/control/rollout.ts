// Which edge goes by which bundle. Pure.

import type { Edge, EdgesAnswer } from "./api";
import { time } from "./figures";

/** A poll is held for 60 s at most: who was not heard for twice that, while others were, is late. */
export const LATE_S = 120;

/** What an edge has: what all are to have, what is tried on the canaries, another one, or none. */
export type Has = "stable" | "candidate" | "another" | "none";

export interface Standing extends Edge {
  has: Has;
  is_late: boolean;
}

/** Refusals first, then canaries, then by name. */
export function standings({ stable, candidate, edges }: EdgesAnswer): Standing[] {
  // By the newest word of any edge: the clock of whoever looks at this may be another one.
  const newest_s = edges.reduce((newest, { heard_unix_s }) => Math.max(newest, heard_unix_s ?? 0), 0);
  const all = edges.map((edge) => ({ ...edge, has: has(edge.bundle), is_late: newest_s - (edge.heard_unix_s ?? 0) > LATE_S }));
  return all.sort(
    (a, b) => Number(b.refused !== null) - Number(a.refused !== null) || Number(b.is_canary) - Number(a.is_canary) || a.name.localeCompare(b.name, "en", { numeric: true }),
  );

  function has(bundle: number | null): Has {
    if (bundle === null) return "none";
    return bundle === candidate?.number ? "candidate" : bundle === stable ? "stable" : "another";
  }
}

/** How far the rollout is, in words. */
export function summary(answer: EdgesAnswer): string {
  const { stable, candidate, edges } = answer;
  const all = standings(answer);
  const having = (has: Has) => all.filter((edge) => edge.has === has).length;
  const of = (count: number) => `on ${count} of ${edges.length} ${edges.length === 1 ? "edge" : "edges"}`;
  const words = [stable === null ? "no bundle yet" : `stable: ${stable}, ${of(having("stable"))}`];
  if (candidate) words.push(`candidate: ${candidate.number}, ${candidate.stage} since ${time(candidate.since_unix_s)}, ${of(having("candidate"))}`);
  return words.join(" · ");
}
