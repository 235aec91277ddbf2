import { expect, it } from "vitest";

import type { Prefix } from "./api";
import { matching, resort, type Sort, sorted } from "./table";

function prefix(name: string, more: Partial<Prefix> = {}): Prefix {
  return { prefix: name, duty: 0.5, flap: 0.2, observed: 72, connections: 10, steered: false, reason: "not_slow", stage: null, effect: null, ...more };
}

const names = (prefixes: readonly Prefix[]) => prefixes.map(({ prefix }) => prefix).join(" ");

const THOSE = [
  prefix("a", { connections: 1, duty: 0.1 }),
  prefix("b", { steered: true, stage: "on trial", reason: "slow", effect: { percent: -3, low: -9, high: 4, p10: null } }),
  prefix("c", { steered: true, stage: "helped as a whole", reason: "helped", effect: { percent: 12, low: 3, high: 22, p10: null }, connections: 5 }),
  prefix("d", { steered: true, stage: "by duty cycle alone", reason: "slow", connections: 20, duty: 0.9 }),
];

it("sorts helped prefixes first, unknown values last in both directions, ties by connections", () => {
  const by = (key: Sort["key"], descending: boolean) => names(sorted(THOSE, { key, descending }));
  expect([by("stage", true), by("stage", false)]).toEqual(["c d b a", "a d b c"]);
  expect([by("effect", true), by("effect", false)]).toEqual(["c b d a", "b c d a"]);
  expect(by("duty", false)).toBe("a b c d");
  expect(names(THOSE)).toBe("a b c d");
});

it("sorts a column descending first, then reverses it", () => {
  const duty = resort({ key: "stage", descending: true }, "duty");
  expect([duty, resort(duty, "duty")]).toEqual([
    { key: "duty", descending: true },
    { key: "duty", descending: false },
  ]);
});

it("matches prefixes by every word of prefix, reason, stage and steered", () => {
  const those = [prefix("203.0.113.0/24"), prefix("203.0.114.0/24", { steered: true, reason: "slow", stage: "on trial" })];
  const found = (text: string) => names(matching(those, text));
  expect([found(""), found("203.0 STEERED"), found("trial"), found("not slow"), found("113"), found("113 steered")]).toEqual([
    "203.0.113.0/24 203.0.114.0/24",
    "203.0.114.0/24",
    "203.0.114.0/24",
    "203.0.113.0/24",
    "203.0.113.0/24",
    "",
  ]);
});
