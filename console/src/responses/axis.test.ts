import { expect, it } from "vitest";

import type { TtfbGroup } from "../telemetry/api";
import { axisOf, bars, bucketLabel, bucketRange, position, ticks } from "./axis";

function group(...buckets: [number, number][]): TtfbGroup {
  return { name: "a", responses: 0, p50_us: 0, p95_us: 0, p99_us: 0, buckets };
}

it("spans all groups, with a minimum span", () => {
  expect(axisOf([group([20, 1]), group([14, 1], [30, 2])])).toEqual({ from: 13, to: 32 });
  expect(axisOf([group([0, 1])])).toEqual({ from: 0, to: 8 });
  expect(axisOf([])).toEqual({ from: 0, to: 8 });
});

it("positions a time logarithmically, and at the edge beyond the axis", () => {
  const axis = { from: 10, to: 20 };
  expect([32, 181.019, 1024].map((us) => position(axis, us).toFixed(3))).toEqual(["0.000", "0.500", "1.000"]);
  expect([position(axis, 0), position(axis, 1e9)]).toEqual([0, 1]);
});

it("labels powers of ten", () => {
  expect(ticks({ from: 12, to: 48 }).map(({ label }) => label)).toEqual(["100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s"]);
  expect(ticks({ from: 0, to: 8 }).map(({ label, at }) => [label, at.toFixed(2)])).toEqual([
    ["1 µs", "0.00"],
    ["10 µs", "0.83"],
  ]);
});

it("draws a bar for each bucket, the largest at full height", () => {
  expect(bars({ from: 10, to: 20 }, group([10, 5], [15, 20]))).toEqual([
    { bucket: 10, count: 5, at: 0, width: 0.1, height: 0.25 },
    { bucket: 15, count: 20, at: 0.5, width: 0.1, height: 1 },
  ]);
});

it("requests each whole microsecond in exactly the bucket that counts it", () => {
  for (let us = 0; us < 5000; us += 1) {
    const within = Array.from({ length: 30 }, (_, bucket) => bucket).filter((bucket) => {
      const { min_us, max_us } = bucketRange(bucket);
      return us >= min_us && us < max_us;
    });
    expect(within).toEqual([Math.floor(2 * Math.log2(Math.max(1, us)))]);
  }
});

it("labels a bucket by its bounds", () => {
  expect([0, 20, 21].map(bucketLabel)).toEqual(["0 µs to 1 µs", "1.02 ms to 1.45 ms", "1.45 ms to 2.05 ms"]);
});
