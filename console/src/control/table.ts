// Which prefixes are listed, and in which order. Pure.

import type { Prefix } from "./api";
import { isHelped } from "./cells";
import { words } from "./figures";
import type { Order } from "../ui/head";

/** What can be sorted by. */
export type SortKey = "stage" | "duty" | "flap" | "connections" | "effect";

export type Sort = Order<SortKey>;

/** From the greatest down, unless chosen again. */
export function resort(sort: Sort, key: SortKey): Sort {
  return { key, descending: sort.key === key ? !sort.descending : true };
}

/** How much is shown of it. */
function stageOf(prefix: Prefix): number {
  return isHelped(prefix) ? 2 : Number(prefix.steered);
}

const VALUES: Record<SortKey, (prefix: Prefix) => number | null> = {
  stage: stageOf,
  duty: ({ duty }) => duty,
  flap: ({ flap }) => flap,
  connections: ({ connections }) => connections,
  effect: ({ effect }) => effect?.percent ?? null,
};

/** A copy in order. What is not known comes last either way; of equals, those with more connections come first. */
export function sorted(prefixes: readonly Prefix[], { key, descending }: Sort): Prefix[] {
  const value = VALUES[key];
  return [...prefixes].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === null || b === null) return Number(a === null) - Number(b === null) || other.connections - one.connections;
    return (descending ? b - a : a - b) || other.connections - one.connections;
  });
}

/** Those that have every word of `text` in prefix, reason, stage or "steered", in any case. */
export function matching(prefixes: readonly Prefix[], text: string): Prefix[] {
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (wanted.length === 0) return [...prefixes];
  return prefixes.filter((prefix) => {
    const all = `${prefix.prefix} ${words(prefix.reason)} ${prefix.stage ?? ""} ${prefix.steered ? "steered" : ""}`.toLowerCase();
    return wanted.every((word) => all.includes(word));
  });
}
