import { expect, it } from "vitest";

import { ofPercent, ofPoints } from "./forest";

it("places doubling and halving equally far from no effect", () => {
  const { mark, low, high, to, says, is_cut } = ofPercent({ percent: 0, low: -50, high: 100 });
  expect([mark, low + high, says, is_cut]).toEqual([0, 0, "nothing", [false, false]]);
  expect(to).toBeGreaterThan(high);
});

it("states a direction only if the whole interval is on one side", () => {
  const says = (low: number, high: number) => ofPercent({ percent: (low + high) / 2, low, high }).says;
  expect([says(3, 22), says(-22, -3), says(-3, 22), says(0, 22)]).toEqual(["more", "less", "nothing", "nothing"]);
  expect(ofPoints({ points: 1.05, low: 0.45, high: 2.56 }).says).toBe("more");
});

it("cuts extreme intervals, even below -100 %, and keeps the mark on the axis", () => {
  const wild = ofPercent({ percent: 20_000, low: -140, high: 1e9 });
  expect(wild.is_cut).toEqual([true, true]);
  expect([wild.low, wild.high, wild.mark]).toEqual([-wild.to, wild.to, wild.to]);
  for (const value of [wild.to, wild.low, wild.mark]) expect(Number.isFinite(value)).toBe(true);
});

it("labels the values that fit within the axis, including no effect", () => {
  const labels = (low: number, high: number) => ofPercent({ percent: 0, low, high }).ticks.map(({ label }) => label);
  expect(labels(-1, 1)).toEqual(["−10 %", "−5 %", "0", "+5 %", "+11 %"]);
  for (const [low, high] of [[-1, 1], [-25.6, 123.9], [-90, 900], [3, 22]] as const) {
    const { ticks, to } = ofPercent({ percent: 0, low, high });
    expect(ticks.map(({ label }) => label)).toContain("0");
    expect(ticks.length).toBeGreaterThanOrEqual(3);
    for (const { at } of ticks) expect(Math.abs(at)).toBeLessThanOrEqual(to);
    ticks.slice(1).forEach(({ at }, index) => expect(at - (ticks[index]?.at ?? 0)).toBeGreaterThan(to / 4));
  }
  expect(ofPoints({ points: 1, low: -0.45, high: 2.56 }).ticks.map(({ label }) => label)).toEqual(["−2", "−1", "0", "+1", "+2"]);
  expect(ofPoints({ points: 0, low: -0.1, high: 0.1 }).ticks.map(({ label }) => label)).toEqual(["−1.0", "−0.5", "0", "+0.5", "+1.0"]);
});
