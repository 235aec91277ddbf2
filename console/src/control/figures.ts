// Pure functions that format a scope's key figures as text with units.

import * as format from "../format";
import type { Scope } from "./api";

export interface Figure {
  label: string;
  value: string;
  title: string;
  is_alert?: boolean;
}

export function figures(scope: Scope): Figure[] {
  const { window, window_s, bundle, steered, on_trial, promising, proved, explored, paused_windows, prefixes, bottom_bytes_per_s, pool } = scope;
  const paused: Figure = {
    label: "paused for",
    value: `${paused_windows} ${paused_windows === 1 ? "window" : "windows"}`,
    title: "paused by the guardrail: retransmissions over all trials exceeded the limit, so no prefix may enter",
    is_alert: true,
  };
  return [
    { label: "window", value: `${time(window * window_s)} to ${time((window + 1) * window_s)}`, title: `the newest decided window, number ${window}` },
    { label: "bundle", value: bundle === null ? format.NONE : String(bundle), title: "the newest bundle" },
    { label: "steered", value: count(steered), title: "prefixes steered to another congestion control" },
    { label: "on trial", value: count(on_trial), title: "steered, nothing shown yet" },
    { label: "promising", value: count(promising), title: "gain shown within the network, not yet as a whole" },
    { label: "helped", value: count(proved), title: "gain shown for the network as a whole" },
    { label: "explored", value: count(explored), title: "on trial although not slow" },
    { label: "prefixes", value: count(prefixes), title: "prefixes with data" },
    { label: "bottom group", value: format.rate(bottom_bytes_per_s), title: "the largest median of a prefix in the bottom group of this window" },
    {
      label: "all trials",
      value: pool ? percentOfLog(pool.mean) : format.NONE,
      title: pool
        ? `mean effect on goodput over ${pool.prefixes} prefixes; standard deviation between prefixes: a factor of ${Math.exp(pool.sd).toFixed(2)}`
        : "too few trials to pool",
    },
    ...(paused_windows > 0 ? [paused] : []),
  ];
}

/** Formats an effect on log goodput as a percentage of goodput. */
export function percentOfLog(effect: number): string {
  return percent(Math.expm1(effect) * 100);
}

/** Formats a signed percentage, with a minus sign as wide as the plus sign. */
export function percent(value: number): string {
  return `${signed(value, 1)} %`;
}

export function signed(value: number, decimals: number): string {
  const digits = Math.abs(value).toFixed(decimals);
  return `${value < 0 && Number(digits) !== 0 ? "−" : "+"}${digits}`;
}

const COUNT = new Intl.NumberFormat("en");

/** Formats a count with thousands separators. */
export function count(value: number): string {
  return COUNT.format(value);
}

/** Formats a local time of day, with seconds only if they are not zero. */
export function time(unix_s: number): string {
  const whole = format.clock(new Date(unix_s * 1000).toISOString()).slice(0, 8);
  return whole.endsWith(":00") ? whole.slice(0, 5) : whole;
}

/** Formats a local date and time of day. */
export function dateTime(unix_s: number): string {
  const date = new Date(unix_s * 1000);
  const two = (n: number) => String(n).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time(unix_s)}`;
}

/** Formats a reason's identifier as words. */
export function words(reason: string): string {
  return reason.replaceAll("_", " ");
}
