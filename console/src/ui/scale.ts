// Where values stand on an axis, and which of them are written there. Pure.

/** A linear axis: the values `from` and `to` stand at these pixels. */
export interface Scale {
  from: number;
  to: number;
  from_px: number;
  to_px: number;
}

export function place({ from, to, from_px, to_px }: Scale, value: number): number {
  return from_px + ((value - from) / (to - from)) * (to_px - from_px);
}

/** The value that stands at a pixel. */
export function valueAt({ from, to, from_px, to_px }: Scale, at_px: number): number {
  return from + ((at_px - from_px) / (to_px - from_px)) * (to - from);
}

/** Multiples of 1, 2 or 5 times a power of ten, from zero up to the first that is not below `max`; `count` steps or fewer. */
export function steps(max: number, count: number): number[] {
  if (!(max > 0)) return [0, 1];
  const rough = max / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((digit) => digit * power >= rough * (1 - 1e-9)) ?? 10) * power;
  // Without what binary fractions leave behind: 0.3, not 0.30000000000000004.
  return Array.from({ length: Math.ceil(max / step - 1e-9) + 1 }, (_, n) => Number((n * step).toPrecision(12)));
}

/** A unit of rate, and how many bytes per second one of it is. */
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

/** The largest unit of which `max_bytes_per_s` is one or more. */
export function rateUnit(max_bytes_per_s: number): RateUnit {
  return RATE_UNITS.findLast(({ bytes_per_s }) => max_bytes_per_s >= bytes_per_s) ?? RATE_UNITS[0];
}

/** Spans between times that are written at an axis, in seconds. */
const TIME_STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];

const DAY_S = 86_400;

/**
 * Which of `times_s` (since 1970, oldest first) are written at the axis: the first of each whole step of the local time, in as
 * small steps as give `count` or fewer. Where whole steps were missed, nothing is written at the time that comes late.
 * `behind_utc_min` is `Date.getTimezoneOffset()`.
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

/** The whole step that a local time is in. */
function timeLabel(local_s: number, step_s: number): string {
  const whole = new Date(Math.floor(local_s / step_s) * step_s * 1000).toISOString();
  if (step_s >= DAY_S) return whole.slice(5, 10);
  return step_s < 60 ? whole.slice(11, 19) : whole.slice(11, 16);
}
