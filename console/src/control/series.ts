// Pure functions that convert rounds to series: positions, lines, and where steering begins.

import { type Group, GROUPS, type Percentiles, type Round } from "./api";
import { dateTime, words } from "./figures";

/**
 * Maximum number of empty windows shown as a gap, so that a long absence or a clock jump does not
 * compress the rest of the chart.
 */
export const GAP_MAX = 12;

/**
 * Returns each round's position, in windows from the first round. A window number lower than the
 * previous one, as after a clock change, counts as one step.
 */
export function places(rounds: readonly Round[]): number[] {
  let at = 0;
  return rounds.map(({ window }, index) => {
    const before = rounds[index - 1];
    if (before) at += Math.min(GAP_MAX, Math.max(1, window - before.window));
    return at;
  });
}

/** Returns the index of the round nearest to a position; -1 if there are no rounds. */
export function nearest(places: readonly number[], at: number): number {
  let best = -1;
  for (const [index, place] of places.entries()) {
    if (Math.abs(place - at) < Math.abs((places[best] ?? Number.POSITIVE_INFINITY) - at)) best = index;
  }
  return best;
}

/**
 * Returns the indices of rounds that steer prefixes and directly follow a round that steered none.
 */
export function beginnings(rounds: readonly Round[]): number[] {
  return rounds.flatMap(({ steered }, index) => (steered > 0 && rounds[index - 1]?.steered === 0 ? [index] : []));
}

export const MEASURES = ["delivery_rate", "goodput"] as const;
export type Measure = (typeof MEASURES)[number];

export const PERCENTILES = ["p5", "p10"] as const;

/** A line of a rate chart, with a value for each round. */
export interface Line {
  group: Group;
  percentile: keyof Percentiles;
  values: (number | null)[];
}

/** Builds a line for each percentile of each group that has data. */
export function lines(rounds: readonly Round[], measure: Measure): Line[] {
  const all = GROUPS.flatMap((group) =>
    PERCENTILES.map((percentile) => ({ group, percentile, values: rounds.map((round) => round[measure]?.[group]?.[percentile] ?? null) })),
  );
  return all.filter(({ values }) => values.some((value) => value !== null));
}

/** Outcomes of rounds other than a decision. */
const OUTCOMES: Record<Exclude<Round["outcome"], "decided">, string> = {
  stopped: "stopped by the guardrail",
  silent: "no reports",
  repeated: "already decided",
  early: "window not over yet",
};

/** Describes a round in words: time, outcome, counts. */
export function inWords({ unix_s, outcome, steered, kept, entered, left, promising = [], proved, ranked, bundle }: Round): string {
  return [
    dateTime(unix_s),
    ...(outcome === "decided" ? [] : [OUTCOMES[outcome]]),
    `${steered} steered: ${kept} kept, ${entered.length} new`,
    `${left.length} left`,
    ...(promising.length > 0 ? [`${promising.length} now promising within the network`] : []),
    ...(proved.length > 0 ? [`${proved.length} now helped as a whole`] : []),
    ...(bundle === null ? [] : [`bundle ${bundle}`]),
    `${ranked} ranked`,
  ].join(" · ");
}

/** Lists all changes of a round, by prefix. */
export function changes({ entered, left, promising = [], proved }: Round): { prefix: string; what: "entered" | "left" | "promising" | "proved"; words: string }[] {
  return [
    ...proved.map((prefix) => ({ prefix, what: "proved" as const, words: "helped as a whole" })),
    ...promising.map((prefix) => ({ prefix, what: "promising" as const, words: "promising within the network" })),
    ...entered.map(({ prefix, reason }) => ({ prefix, what: "entered" as const, words: `new: ${words(reason)}` })),
    ...left.map(({ prefix, reason }) => ({ prefix, what: "left" as const, words: `left: ${words(reason)}` })),
  ];
}
