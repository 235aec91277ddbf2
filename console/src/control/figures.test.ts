import { expect, it } from "vitest";

import type { Scope } from "./api";
import { dateTime, figures, percent, percentOfLog, signed, time } from "./figures";

/** Returns the Unix time of a time of day in this machine's time zone. */
const local_s = (...at: [hour: number, minute: number, second: number]) => new Date(2026, 10, 22, ...at).getTime() / 1000;

function scope(more: Partial<Scope> = {}): Scope {
  return {
    pop: "fra1",
    tenant: null,
    window: local_s(9, 5, 0) / 300,
    window_s: 300,
    bundle: 42,
    steered: 17,
    on_trial: 9,
    promising: 2,
    proved: 8,
    explored: 4,
    paused_windows: 0,
    prefixes: 40_211,
    bottom_bytes_per_s: 152_000,
    pool: { mean: 0.04, sd: 0.11, prefixes: 31 },
    ...more,
  };
}

const shown = (scope: Scope) => figures(scope).map(({ label, value }) => `${label} ${value}`);

it("shows the key figures with units and thousands separators", () => {
  expect(shown(scope())).toEqual([
    "window 09:05 to 09:10",
    "bundle 42",
    "steered 17",
    "on trial 9",
    "promising 2",
    "helped 8",
    "explored 4",
    "prefixes 40,211",
    "bottom group 1.22 Mbit/s",
    "all trials +4.1 %",
  ]);
  expect(figures(scope()).at(-1)?.title).toBe("mean effect on goodput over 31 prefixes; standard deviation between prefixes: a factor of 1.12");
});

it("shows unknown values, and that rounds are stopped", () => {
  const those = figures(scope({ bundle: null, bottom_bytes_per_s: null, pool: null, paused_windows: 1 }));
  expect(those.filter(({ value }) => value === "–").map(({ label }) => label)).toEqual(["bundle", "bottom group", "all trials"]);
  expect(those.at(-1)).toMatchObject({ label: "paused for", value: "1 window", is_alert: true });
});

it("signs every effect, except a negative one that rounds to zero", () => {
  expect([12.14, -3, 0, -0.04].map(percent)).toEqual(["+12.1 %", "−3.0 %", "+0.0 %", "+0.0 %"]);
  expect([Math.log(2), Math.log(0.5)].map(percentOfLog)).toEqual(["+100.0 %", "−50.0 %"]);
  expect(signed(-0.45, 2)).toBe("−0.45");
});

it("shows seconds of a time only if they are not zero", () => {
  expect([time(local_s(9, 5, 0)), time(local_s(9, 5, 7))]).toEqual(["09:05", "09:05:07"]);
  expect(dateTime(local_s(23, 0, 0))).toBe("2026-11-22 23:00");
});
