import { expect, it } from "vitest";

import type { CacheResult, ResponseRecord } from "../record";
import { LastRecords, percentile, RECORDS_MAX, totals } from "./totals";

function record(path: string, cache: CacheResult, ttfb_us?: number): ResponseRecord {
  return {
    v: 1,
    time: "2026-11-20T23:00:00.123Z",
    client: "127.0.0.1:50000",
    method: "GET",
    host: "127.0.0.1:8080",
    path,
    status: 200,
    bytes: 10,
    ...(ttfb_us === undefined ? {} : { ttfb_us }),
    written_us: 1900,
    goodput_bytes_per_s: 5263,
    cache,
    protocol: "HTTP/1.1",
    complete: true,
  };
}

it("keeps the newest records, newest first, and finds them by part of the path", () => {
  const last = new LastRecords();
  for (let n = 0; n <= RECORDS_MAX; n += 1) last.push(record(n % 2 ? `/live/Demo/${n}` : `/vod/${n}`, "hit"));
  const all = last.matching("");
  expect(all).toHaveLength(RECORDS_MAX);
  expect([all[0]?.path, all[RECORDS_MAX - 1]?.path]).toEqual(["/vod/100", "/live/Demo/1"]);
  expect(last.matching(" DEMO/97 ").map(({ path }) => path)).toEqual(["/live/Demo/97"]);
});

it("counts a join as a hit, but not a validation, and no TTFB without a first byte", () => {
  const shown = [record("/a", "hit", 100), record("/b", "join", 300), record("/c", "validated", 200), record("/d", "error")];
  expect(totals(shown)).toEqual({ count: 4, bytes: 40, hit_ratio: 0.5, ttfb_us_p50: 200, ttfb_us_p99: 300 });
  expect(totals([])).toEqual({ count: 0, bytes: 0, hit_ratio: null, ttfb_us_p50: null, ttfb_us_p99: null });
});

it("computes nearest-rank percentiles", () => {
  const hundred = Array.from({ length: 100 }, (_, n) => n + 1);
  expect([0, 0.5, 0.99, 1].map((p) => percentile(hundred, p))).toEqual([1, 50, 99, 100]);
  expect(percentile([7], 0.99)).toBe(7);
});
