// Formats figures with three significant digits. Size units are powers of 1,024; rates are in bits
// per second, with units in powers of 1,000, as in the log's human-readable lines.

/** Shown for a missing figure. */
export const NONE = "–";

function threeDigits(value: number): string {
  const decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return value.toFixed(decimals);
}

function scaled(value: number, step: number, units: readonly string[]): string {
  let unit = 0;
  while (value >= step && unit + 1 < units.length) {
    value /= step;
    unit += 1;
  }
  const number = unit === 0 ? value.toFixed(0) : threeDigits(value);
  return `${number} ${units[unit]}`;
}

export function bytes(value: number): string {
  return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
}

export function bitsPerS(value: number): string {
  return scaled(value, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]);
}

export function micros(us: number | null | undefined): string {
  if (us === null || us === undefined) return NONE;
  if (us < 1000) return `${us.toFixed(0)} µs`;
  if (us < 1e6) return `${threeDigits(us / 1e3)} ms`;
  return `${threeDigits(us / 1e6)} s`;
}

export function millis(ms: number | null): string {
  return ms === null ? NONE : ms < 1000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(2)} s`;
}

/** Formats a rate in bytes per second as bits per second. */
export function rate(bytes_per_s: number | null): string {
  return bytes_per_s === null ? NONE : bitsPerS(bytes_per_s * 8);
}

export function seconds(s: number | null, decimals = 2): string {
  return s === null ? NONE : `${s.toFixed(decimals)} s`;
}

/** Formats a local time of day with milliseconds. */
export function clock(time: string): string {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return time;
  const two = (n: number) => String(n).padStart(2, "0");
  const ms = String(date.getMilliseconds()).padStart(3, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${ms}`;
}

/** Formats a duration in minutes and seconds. */
export function duration(s: number): string {
  const whole = Math.round(s);
  const minutes = Math.floor(whole / 60);
  return `${minutes}:${String(whole % 60).padStart(2, "0")}`;
}
