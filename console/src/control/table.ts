// Pure functions that filter and sort the listed prefixes.

import type { Prefix } from "./api";
import { isHelped } from "./cells";
import { words } from "./figures";
import type { Order } from "../ui/head";

/** Columns by which prefixes can be sorted. */
export type SortKey = "stage" | "duty" | "flap" | "connections" | "effect";

export type Sort = Order<SortKey>;

/** Returns the new order: descending first; choosing the column again reverses it. */
export function resort(sort: Sort, key: SortKey): Sort {
  return { key, descending: sort.key === key ? !sort.descending : true };
}

/** Returns a rank for the strength of a prefix's evidence. */
function stageOf(prefix: Prefix): number {
  if (isHelped(prefix)) return 3;
  return prefix.stage === "promising within the network" ? 2 : Number(prefix.steered);
}

const VALUES: Record<SortKey, (prefix: Prefix) => number | null> = {
  stage: stageOf,
  duty: ({ duty }) => duty,
  flap: ({ flap }) => flap,
  connections: ({ connections }) => connections,
  effect: ({ effect }) => effect?.percent ?? null,
};

/**
 * Returns a sorted copy. Unknown values come last in both directions; ties are ordered by
 * connections.
 */
export function sorted(prefixes: readonly Prefix[], { key, descending }: Sort): Prefix[] {
  const value = VALUES[key];
  return [...prefixes].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === null || b === null) return Number(a === null) - Number(b === null) || other.connections - one.connections;
    return (descending ? b - a : a - b) || other.connections - one.connections;
  });
}

/**
 * Returns the prefixes whose address, reason, stage or "steered" contain every word of `text`,
 * ignoring case.
 */
export function matching(prefixes: readonly Prefix[], text: string): Prefix[] {
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (wanted.length === 0) return [...prefixes];
  return prefixes.filter((prefix) => {
    const all = `${prefix.prefix} ${words(prefix.reason)} ${prefix.stage ?? ""} ${prefix.steered ? "steered" : ""}`.toLowerCase();
    return wanted.every((word) => all.includes(word));
  });
}
