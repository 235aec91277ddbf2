import { expect, it } from "vitest";

import type { Prefix } from "./api";
import { cellsOf, hit, radius, shade, SHADES } from "./cells";

const LIMITS = { duty_enter: 0.6, duty_leave: 0.3, flap_max: 0.25 };

function prefix(name: string, more: Partial<Prefix> = {}): Prefix {
  return { prefix: name, duty: 0.5, flap: 0.2, observed: 72, connections: 10, steered: false, reason: "not_slow", stage: null, effect: null, ...more };
}

it("groups prefixes with the same position in one cell, steered first, then by connections", () => {
  const { cells } = cellsOf(
    [
      prefix("a", { duty: 36 / 72, connections: 1 }),
      prefix("b", { duty: 36 / 72, connections: 9 }),
      prefix("c", { duty: 36 / 72, connections: 2, steered: true, reason: "slow", stage: "on trial" }),
      prefix("d", { duty: 36 / 72, connections: 3, steered: true, reason: "helped", stage: "helped as a whole" }),
      prefix("e", { duty: 37 / 72 }),
    ],
    LIMITS,
  );
  expect(cells.map(({ prefixes, steered, helped }) => [prefixes.map(({ prefix }) => prefix).join(""), steered, helped])).toEqual([
    ["dcba", 2, 1],
    ["e", 0, 0],
  ]);
});

it("gives every duty cycle and flap rate of a history its own cell", () => {
  for (const windows of [12, 40, 72, 128]) {
    const all = Array.from({ length: windows + 1 }, (_, n) => prefix(`d${n}`, { duty: n / windows, flap: 0, observed: windows }));
    const flaps = Array.from({ length: windows }, (_, n) => prefix(`f${n}`, { duty: 0, flap: n / (windows - 1), observed: windows }));
    const duty = cellsOf(all, LIMITS);
    expect(duty.cells.map((cell) => cell.duty)).toEqual(all.map((prefix) => prefix.duty));
    expect(duty.duty_step).toBeCloseTo(1 / windows);
    expect(cellsOf(flaps, LIMITS).cells.map((cell) => cell.flap)).toEqual(flaps.map((prefix) => prefix.flap));
  }
});

it("leaves out and counts unsteered prefixes with too few windows", () => {
  const those = [prefix("a", { reason: "too_few", observed: 1, duty: 1 }), prefix("b", { reason: "too_few", observed: 2, steered: true }), prefix("c")];
  const { cells, too_few } = cellsOf(those, LIMITS);
  expect([cells.flatMap(({ prefixes }) => prefixes.map(({ prefix }) => prefix)), too_few]).toEqual([["b", "c"], 1]);
});

it("ends the flap axis above the greatest flap rate and the entry limit, but at most at one", () => {
  expect(cellsOf([], LIMITS).flap_to).toBe(0.4);
  expect(cellsOf([prefix("a", { flap: 0.55 })], LIMITS).flap_to).toBeCloseTo(0.6);
  expect(cellsOf([prefix("a", { flap: 1 })], { ...LIMITS, flap_max: 0.9 }).flap_to).toBe(1);
});

it("shades by powers of ten and marks by area", () => {
  expect([0, 1, 9, 10, 99, 1000, 10_000, 5_000_000].map(shade)).toEqual([null, 0, 0, 1, 1, 3, 4, SHADES - 1]);
  expect(radius(4)).toBeCloseTo(2 * radius(1));
  expect(radius(1e6)).toBe(radius(1e5));
});

it("hits a mark before a shade beneath it, the nearest cell first, and nothing in empty space", () => {
  const x = { from: 0, to: 1, from_px: 0, to_px: 720 };
  const y = { from: 0, to: 0.4, from_px: 300, to_px: 0 };
  const cells = cellsOf(
    [
      prefix("shade", { duty: 36 / 72, flap: 0 }),
      prefix("mark", { duty: 37 / 72, flap: 0, steered: true, reason: "slow", stage: "on trial" }),
      prefix("far", { duty: 60 / 72, flap: 0 }),
    ],
    LIMITS,
  );
  const found = (at_x: number, at_y: number) => hit(cells, x, y, { x: at_x, y: at_y })?.prefixes[0]?.prefix ?? null;
  expect(found(370, 300)).toBe("mark");
  expect(found(362, 300)).toBe("mark");
  expect(found(357, 298)).toBe("shade");
  expect(found(598, 297)).toBe("far");
  expect(found(480, 300)).toBeNull();
  expect(found(360, 200)).toBeNull();
});

it("groups fifty thousand prefixes in a few thousand cells", () => {
  const many = Array.from({ length: 50_000 }, (_, n) => prefix(String(n), { duty: (n % 73) / 72, flap: ((n * 7) % 72) / 71 }));
  const { cells } = cellsOf(many, LIMITS);
  expect(cells.length).toBeLessThanOrEqual(73 * 72);
  expect(cells.reduce((sum, { prefixes }) => sum + prefixes.length, 0)).toBe(50_000);
});
