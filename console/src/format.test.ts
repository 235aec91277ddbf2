import { expect, it } from "vitest";

import * as format from "./format";

it("keeps three digits and a fitting unit", () => {
  expect([0, 1023, 1024, 1_258_291].map(format.bytes)).toEqual(["0 B", "1023 B", "1.00 KiB", "1.20 MiB"]);
  expect([999, 98_765_432, 2e12].map(format.bitsPerS)).toEqual(["999 bit/s", "98.8 Mbit/s", "2.00 Tbit/s"]);
  expect([undefined, 850, 1900, 12e6].map(format.micros)).toEqual(["–", "850 µs", "1.90 ms", "12.0 s"]);
  expect([null, 320.4, 1500].map(format.millis)).toEqual(["–", "320 ms", "1.50 s"]);
  expect([32, 59.7, 3600].map(format.duration)).toEqual(["0:32", "1:00", "60:00"]);
});
