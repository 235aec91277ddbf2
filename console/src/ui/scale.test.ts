import { expect, it } from "vitest";

import { place, rateUnit, steps, timeTicks, valueAt } from "./scale";
import { boxPath, linePath } from "./svg";

it("maps values to pixels and back", () => {
  const up = { from: -10, to: 30, from_px: 200, to_px: 0 };
  expect([-10, 0, 30].map((value) => place(up, value))).toEqual([200, 150, 0]);
  expect(valueAt(up, 150)).toBe(0);
});

it("steps by 1, 2 or 5 times a power of ten, up to the maximum", () => {
  expect(steps(0.35, 5)).toEqual([0, 0.1, 0.2, 0.3, 0.4]);
  expect(steps(1, 5)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
  expect(steps(0.3, 3)).toEqual([0, 0.1, 0.2, 0.3]);
  expect(steps(404, 4)).toEqual([0, 200, 400, 600]);
  expect([0, -1, Number.NaN].map((max) => steps(max, 4))).toEqual([[0, 1], [0, 1], [0, 1]]);
  for (const max of [1e-9, 0.07, 3, 999, 1.23e12]) {
    const all = steps(max, 6);
    expect(all.at(-1)).toBeGreaterThanOrEqual(max);
    expect(all.length).toBeLessThanOrEqual(7);
  }
});

it("selects the largest unit not above the value", () => {
  expect([0, 124, 125, 125_000, 1e9].map((max) => rateUnit(max).name)).toEqual(["bit/s", "bit/s", "kbit/s", "Mbit/s", "Gbit/s"]);
  expect(1_000_000 / rateUnit(1_000_000).bytes_per_s).toBe(8);
});

it("labels as many whole steps of local time as fit", () => {
  const from_s = Date.UTC(2026, 10, 22, 7, 50) / 1000;
  const rounds = (count: number, every_s: number) => Array.from({ length: count }, (_, n) => from_s + n * every_s);
  const labels = (times: number[], count: number, behind = 0) => timeTicks(times, count, behind).map(({ label }) => label);
  expect(labels(rounds(48, 300), 6)).toEqual(["08:00", "09:00", "10:00", "11:00"]);
  expect(timeTicks(rounds(48, 300), 6, 0)[0]?.index).toBe(2);
  // Hourly steps must respect an offset of 90 minutes from UTC.
  expect(labels(rounds(48, 300), 6, -90)).toEqual(["10:00", "11:00", "12:00", "13:00"]);
  expect(labels(rounds(20, 1), 4)).toEqual(["07:50:05", "07:50:10", "07:50:15"]);
  expect(labels(rounds(72, 3600), 4)).toEqual(["11-23", "11-24", "11-25"]);
  expect(labels([], 4)).toEqual([]);
  expect(labels([from_s, from_s + 660], 4)).toEqual(["08:00"]);
  // 10:50, after three hours without a round, must not be labelled 10:00.
  expect(labels([...rounds(3, 600), ...rounds(3, 600).map((time_s) => time_s + 10_800)], 3)).toEqual(["08:00", "11:00"]);
});

it("draws lines with gaps, and single points as dots", () => {
  expect(linePath([[0, 1], [1, 2.26], [2, null], [3, 4], [4, null]])).toBe("M0 1h0L1 2.3M3 4h0");
  expect(boxPath(1, 2, 3, 4.04)).toBe("M1 2h3v4h-3z");
});
