import { expect, it } from "vitest";

import type { Round } from "./api";
import { beginnings, changes, GAP_MAX, inWords, lines, nearest, places } from "./series";

function round(window: number, more: Partial<Round> = {}): Round {
  return {
    window,
    unix_s: window * 300,
    outcome: "decided",
    ranked: 812,
    bottom_bytes_per_s: 152_000,
    steered: 0,
    kept: 0,
    entered: [],
    left: [],
    proved: [],
    bundle: null,
    delivery_rate: null,
    goodput: null,
    ...more,
  };
}

const of = (...windows: number[]) => windows.map((window) => round(window));

it("leaves limited gaps for windows without a round, and continues after a clock goes back", () => {
  expect(places(of(100, 101, 104))).toEqual([0, 1, 4]);
  expect(places(of(100, 900_000, 900_001))).toEqual([0, GAP_MAX, GAP_MAX + 1]);
  expect(places(of(100, 101, 50, 51))).toEqual([0, 1, 2, 3]);
  expect(places(of(100, 100))).toEqual([0, 1]);
  expect(places([])).toEqual([]);
});

it("finds the nearest round", () => {
  expect([-3, 0.4, 2, 2.6, 99].map((at) => nearest([0, 1, 4], at))).toEqual([0, 0, 1, 2, 2]);
  expect(nearest([], 1)).toBe(-1);
});

it("marks rounds where steering begins, except the first known one", () => {
  const steered = (...counts: number[]) => counts.map((steered, index) => round(index, { steered }));
  expect(beginnings(steered(0, 0, 3, 4, 0, 1))).toEqual([2, 5]);
  expect(beginnings(steered(3, 4))).toEqual([]);
});

it("has a line with gaps for each percentile with data", () => {
  const delivery_rate = (all: number, steered: number | null) => ({
    all: { p5: all, p10: 2 * all },
    steered: steered === null ? null : { p5: steered, p10: null },
    held_out: null,
  });
  const rounds = [round(1, { delivery_rate: delivery_rate(10, null) }), round(2), round(3, { delivery_rate: delivery_rate(11, 5) })];
  expect(lines(rounds, "delivery_rate")).toEqual([
    { group: "all", percentile: "p5", values: [10, null, 11] },
    { group: "all", percentile: "p10", values: [20, null, 22] },
    { group: "steered", percentile: "p5", values: [null, null, 5] },
  ]);
  expect(lines(rounds, "goodput")).toEqual([]);
});

it("describes a round in words, and its changes by prefix", () => {
  const full = round(5, {
    outcome: "stopped",
    steered: 17,
    kept: 16,
    entered: [{ prefix: "203.0.113.0/24", reason: "slow" }],
    left: [{ prefix: "198.51.100.0/24", reason: "not_helped" }],
    proved: ["192.0.2.0/24"],
    bundle: 42,
  });
  expect(inWords(full).split(" · ").slice(1)).toEqual([
    "stopped by the guardrail",
    "17 steered: 16 kept, 1 new",
    "1 left",
    "1 now helped as a whole",
    "bundle 42",
    "812 ranked",
  ]);
  expect(changes(full).map(({ prefix, what, words }) => `${prefix} ${what} ${words}`)).toEqual([
    "192.0.2.0/24 proved helped as a whole",
    "203.0.113.0/24 entered new: slow",
    "198.51.100.0/24 left left: not helped",
  ]);
  expect(inWords(round(6))).toContain("0 steered: 0 kept, 0 new · 0 left · 812 ranked");
});
