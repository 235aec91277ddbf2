// Axes: pure functions that return the positions of values, and labels.

/** A linear axis: the pixel positions of the values `from` and `to`. */
export interface Scale {
  from: number;
  to: number;
  from_px: number;
  to_px: number;
}

export function place({ from, to, from_px, to_px }: Scale, value: number): number {
  return from_px + ((value - from) / (to - from)) * (to_px - from_px);
}

/** Returns the value at a pixel position. */
export function valueAt({ from, to, from_px, to_px }: Scale, at_px: number): number {
  return from + ((at_px - from_px) / (to_px - from_px)) * (to - from);
}

/**
 * Returns multiples of 1, 2 or 5 times a power of ten, from zero to the first multiple not below
 * `max`, in at most `count` steps.
 */
export function steps(max: number, count: number): number[] {
  if (!(max > 0)) return [0, 1];
  const rough = max / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((digit) => digit * power >= rough * (1 - 1e-9)) ?? 10) * power;
  // Round off binary fractions: 0.3, not 0.30000000000000004.
  return Array.from({ length: Math.ceil(max / step - 1e-9) + 1 }, (_, n) => Number((n * step).toPrecision(12)));
}

/** A unit of rate, and its value in bytes per second. */
export interface RateUnit {
  name: string;
  bytes_per_s: number;
}

const RATE_UNITS: readonly [RateUnit, ...RateUnit[]] = [
  { name: "bit/s", bytes_per_s: 1 / 8 },
  { name: "kbit/s", bytes_per_s: 1e3 / 8 },
  { name: "Mbit/s", bytes_per_s: 1e6 / 8 },
  { name: "Gbit/s", bytes_per_s: 1e9 / 8 },
];

/** Selects the largest unit not above `max_bytes_per_s`. */
export function rateUnit(max_bytes_per_s: number): RateUnit {
  return RATE_UNITS.findLast(({ bytes_per_s }) => max_bytes_per_s >= bytes_per_s) ?? RATE_UNITS[0];
}

/** Intervals between time labels, in seconds. */
const TIME_STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];

const DAY_S = 86_400;

/**
 * Selects the `times_s` (since 1970, oldest first) to label: the first time in each whole step of
 * local time, with the smallest step that gives at most `count` labels. A time that follows a gap
 * of more than one step gets no label, because it is not the start of its step. `behind_utc_min` is
 * `Date.getTimezoneOffset()`.
 */
export function timeTicks(times_s: readonly number[], count: number, behind_utc_min: number): { index: number; label: string }[] {
  const local_s = times_s.map((time_s) => time_s - behind_utc_min * 60);
  const gaps_s = local_s.slice(1).map((time_s, index) => time_s - (local_s[index] ?? time_s));
  const gap_s = gaps_s.toSorted((a, b) => a - b)[Math.floor(gaps_s.length / 2)] ?? 0;
  for (const step_s of TIME_STEPS_S.filter((step_s) => step_s >= gap_s)) {
    const step = (time_s: number) => Math.floor(time_s / step_s);
    const firsts = local_s.flatMap((time_s, index) => (index > 0 && step(time_s) !== step(local_s[index - 1] ?? 0) ? [index] : []));
    if (firsts.length > count) continue;
    const whole = firsts.filter((index) => (gaps_s[index - 1] ?? 0) <= step_s);
    return whole.map((index) => ({ index, label: timeLabel(local_s[index] ?? 0, step_s) }));
  }
  return [];
}

/** Returns the label of the step that contains a local time. */
function timeLabel(local_s: number, step_s: number): string {
  const whole = new Date(Math.floor(local_s / step_s) * step_s * 1000).toISOString();
  if (step_s >= DAY_S) return whole.slice(5, 10);
  return step_s < 60 ? whole.slice(11, 19) : whole.slice(11, 16);
}
