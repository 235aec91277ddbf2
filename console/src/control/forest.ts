// Pure functions for the axis of a forest plot, which shows an effect with its interval: "no
// effect" is in the middle, losses are on the left.

import { percent, signed } from "./figures";

/** An effect to draw, in the unit of the symmetric axis. */
export interface Forest {
  /** Half the length of the axis, which spans -to to +to. */
  to: number;
  mark: number;
  low: number;
  high: number;
  /** Whether the interval extends beyond the left and the right end of the axis. */
  is_cut: [low: boolean, high: boolean];
  ticks: { at: number; label: string }[];
  /**
   * Direction of the effect: "more" or "less" if the whole interval lies above or below no effect.
   */
  says: "more" | "less" | "nothing";
}

/**
 * Tick values in percent. The effects are ratios, for which doubling and halving are equally far
 * from no effect, so the axis is logarithmic.
 */
const PERCENTS = [-90, -75, -50, -33, -20, -10, -5, 0, 5, 11, 25, 50, 100, 300, 900];

/**
 * Limits on half the axis length. The minimum avoids magnifying noise; beyond the maximum, an
 * interval carries no information.
 */
const LOG_MIN = Math.log(1.12);
const LOG_MAX = Math.log(10.5);
const POINTS_MIN = 1.2;
const POINTS_MAX = 100;

/** Ratio of the axis length to the interval, which leaves some space at its ends. */
const ROOM = 1.12;

export function ofPercent({ percent: mark, low, high }: { percent: number; low: number; high: number }): Forest {
  const log = (value: number) => Math.log1p(Math.max(-99.9, value) / 100);
  const to = half([log(low), log(high)], LOG_MIN, LOG_MAX);
  const ticks = PERCENTS.map((value) => ({ at: log(value), label: value === 0 ? "0" : percent(value).replace(".0", "") }));
  return forest(log(mark), log(low), log(high), to, thinned(ticks, to));
}

export function ofPoints({ points: mark, low, high }: { points: number; low: number; high: number }): Forest {
  const to = half([low, high], POINTS_MIN, POINTS_MAX);
  const step = [0.5, 1, 2, 5, 10, 20, 50].find((step) => to / step <= 3) ?? 50;
  const ticks = Array.from({ length: 7 }, (_, n) => (n - 3) * step);
  return forest(mark, low, high, to, ticks.filter((at) => Math.abs(at) <= to).map((at) => ({ at, label: at === 0 ? "0" : signed(at, step < 1 ? 1 : 0) })));
}

function half(ends: readonly number[], least: number, most: number): number {
  return Math.min(most, Math.max(least, ...ends.map((end) => Math.abs(end) * ROOM)));
}

function forest(mark: number, low: number, high: number, to: number, ticks: Forest["ticks"]): Forest {
  const within = (value: number) => Math.min(to, Math.max(-to, value));
  const says = low > 0 ? "more" : high < 0 ? "less" : "nothing";
  return { to, mark: within(mark), low: within(low), high: within(high), is_cut: [low < -to, high > to], ticks, says };
}

/** Returns the ticks that fit within the axis, from the middle outwards. */
function thinned(ticks: Forest["ticks"], to: number): Forest["ticks"] {
  const apart = to / 3.2;
  const kept: Forest["ticks"] = [];
  const outwards = ticks.filter(({ at }) => Math.abs(at) <= to).sort((a, b) => Math.abs(a.at) - Math.abs(b.at));
  for (const tick of outwards) {
    if (kept.every(({ at }) => Math.abs(at - tick.at) >= apart)) kept.push(tick);
  }
  return kept.sort((a, b) => a.at - b.at);
}
