// Rounds as series: where each stands, what is stacked, which lines there are, and where steering begins. Pure.

import { type Group, GROUPS, type Percentiles, type Round } from "./api";
import { dateTime, words } from "./figures";

/** Windows without a round that are left free, at most: a longer absence, or a clock that leaps, must not squeeze the rest. */
export const GAP_MAX = 12;

/** Where each round stands, in windows from the first. Windows that go back, as after a clock was set, only go on. */
export function places(rounds: readonly Round[]): number[] {
  let at = 0;
  return rounds.map(({ window }, index) => {
    const before = rounds[index - 1];
    if (before) at += Math.min(GAP_MAX, Math.max(1, window - before.window));
    return at;
  });
}

/** The round whose place is nearest; -1 without any. */
export function nearest(places: readonly number[], at: number): number {
  let best = -1;
  for (const [index, place] of places.entries()) {
    if (Math.abs(place - at) < Math.abs((places[best] ?? Number.POSITIVE_INFINITY) - at)) best = index;
  }
  return best;
}

/** Rounds in which something is steered that come after one in which nothing was, as indices. */
export function beginnings(rounds: readonly Round[]): number[] {
  return rounds.flatMap(({ steered }, index) => (steered > 0 && rounds[index - 1]?.steered === 0 ? [index] : []));
}

export const MEASURES = ["delivery_rate", "goodput"] as const;
export type Measure = (typeof MEASURES)[number];

export const PERCENTILES = ["p5", "p10"] as const;

/** One line of a chart of rates, a value for each round. */
export interface Line {
  group: Group;
  percentile: keyof Percentiles;
  values: (number | null)[];
}

/** A line for each percentile of each group of which something is known. */
export function lines(rounds: readonly Round[], measure: Measure): Line[] {
  const all = GROUPS.flatMap((group) =>
    PERCENTILES.map((percentile) => ({ group, percentile, values: rounds.map((round) => round[measure]?.[group]?.[percentile] ?? null) })),
  );
  return all.filter(({ values }) => values.some((value) => value !== null));
}

/** What became of a round that was not simply decided. */
const OUTCOMES: Record<Exclude<Round["outcome"], "decided">, string> = {
  stopped: "stopped by the guardrail",
  silent: "nothing was reported",
  repeated: "was decided before",
  early: "not over by the clock",
};

/** A round in words: when, what became of it, how many. */
export function inWords({ unix_s, outcome, steered, kept, entered, left, proved, ranked, bundle }: Round): string {
  return [
    dateTime(unix_s),
    ...(outcome === "decided" ? [] : [OUTCOMES[outcome]]),
    `${steered} steered: ${kept} kept, ${entered.length} new`,
    `${left.length} left`,
    ...(proved.length > 0 ? [`${proved.length} now shown to be helped`] : []),
    ...(bundle === null ? [] : [`bundle ${bundle}`]),
    `${ranked} ranked`,
  ].join(" · ");
}

/** Everything that changed in a round: prefix, and what became of it. */
export function changes({ entered, left, proved }: Round): { prefix: string; what: "entered" | "left" | "proved"; words: string }[] {
  return [
    ...proved.map((prefix) => ({ prefix, what: "proved" as const, words: "shown to be helped" })),
    ...entered.map(({ prefix, reason }) => ({ prefix, what: "entered" as const, words: `new: ${words(reason)}` })),
    ...left.map(({ prefix, reason }) => ({ prefix, what: "left" as const, words: `left: ${words(reason)}` })),
  ];
}
