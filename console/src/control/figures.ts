// The key figures of a scope, in words and units. Pure.

import * as format from "../format";
import type { Scope } from "./api";

export interface Figure {
  label: string;
  value: string;
  title: string;
  is_alert?: boolean;
}

export function figures(scope: Scope): Figure[] {
  const { window, window_s, bundle, steered, on_trial, proved, explored, paused_windows, prefixes, bottom_bytes_per_s, pool } = scope;
  const paused: Figure = {
    label: "paused for",
    value: `${paused_windows} ${paused_windows === 1 ? "window" : "windows"}`,
    title: "by the guardrail: over all trials more was sent again than may be, and none enters meanwhile",
    is_alert: true,
  };
  return [
    { label: "window", value: `${time(window * window_s)} to ${time((window + 1) * window_s)}`, title: `the newest that was decided, number ${window}` },
    { label: "bundle", value: bundle === null ? format.NONE : String(bundle), title: "the newest that was made" },
    { label: "steered", value: count(steered), title: "prefixes that get another congestion control" },
    { label: "on trial", value: count(on_trial), title: "steered, and not shown to be helped yet" },
    { label: "helped", value: count(proved), title: "steered, and shown to be helped" },
    { label: "explored", value: count(explored), title: "tried though they were not slow" },
    { label: "prefixes", value: count(prefixes), title: "that something is known of" },
    { label: "bottom group", value: format.rate(bottom_bytes_per_s), title: "the largest median of a prefix that was in the group in this window" },
    {
      label: "all trials",
      value: pool ? percentOfLog(pool.mean) : format.NONE,
      title: pool
        ? `mean effect on goodput over ${pool.prefixes} prefixes; from one prefix to another it differs by a factor of ${Math.exp(pool.sd).toFixed(2)} (a standard deviation)`
        : "too few to say what they show together",
    },
    ...(paused_windows > 0 ? [paused] : []),
  ];
}

/** An effect on log goodput, in percent. */
export function percentOfLog(effect: number): string {
  return percent(Math.expm1(effect) * 100);
}

/** With its sign, and a minus that is as wide as the plus. */
export function percent(value: number): string {
  return `${signed(value, 1)} %`;
}

export function signed(value: number, decimals: number): string {
  const digits = Math.abs(value).toFixed(decimals);
  return `${value < 0 && Number(digits) !== 0 ? "−" : "+"}${digits}`;
}

const COUNT = new Intl.NumberFormat("en");

/** A number of things, its thousands apart. */
export function count(value: number): string {
  return COUNT.format(value);
}

/** Local time of day, with seconds only where there are any. */
export function time(unix_s: number): string {
  const whole = format.clock(new Date(unix_s * 1000).toISOString()).slice(0, 8);
  return whole.endsWith(":00") ? whole.slice(0, 5) : whole;
}

/** Local date and time of day. */
export function dateTime(unix_s: number): string {
  const date = new Date(unix_s * 1000);
  const two = (n: number) => String(n).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time(unix_s)}`;
}

/** A reason's word as it is read. */
export function words(reason: string): string {
  return reason.replaceAll("_", " ");
}
