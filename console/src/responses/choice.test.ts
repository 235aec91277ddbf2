import { expect, it } from "vitest";

import { responsesQuery } from "../telemetry/api";
import { FIRST_CHOICE, readResponses, type ResponsesChoice, writeResponses } from "./choice";

function written(choice: ResponsesChoice): string {
  const parameters = new URLSearchParams();
  writeResponses(parameters, choice);
  return parameters.toString();
}

it("round-trips every choice, down to a single response", () => {
  const choices: [Partial<ResponsesChoice>, string][] = [
    [{}, ""],
    [{ by: "path", window_s: 3600 }, "by=path&window=3600"],
    [{ group: { name: "hit" } }, "group=hit"],
    [{ group: { name: "" } }, "group="],
    [{ by: "congestion_control", group: { name: null }, bucket: 21 }, "by=congestion_control&unnamed=&bucket=21"],
    [{ by: "path", group: { name: "/a?b=c&d" }, bucket: 0, response: "1700000000000001-12" }, "by=path&group=%2Fa%3Fb%3Dc%26d&bucket=0&response=1700000000000001-12"],
  ];
  for (const [part, query] of choices) {
    const choice = { ...FIRST_CHOICE, ...part };
    expect(written(choice)).toBe(query);
    expect(readResponses(new URLSearchParams(query))).toEqual(choice);
  }
});

it("ignores unknown values, and those that depend on a missing group", () => {
  for (const query of ["by=size&window=7", "bucket=3&response=1-2", "window=-1"]) {
    expect(readResponses(new URLSearchParams(query))).toEqual(FIRST_CHOICE);
  }
  expect(readResponses(new URLSearchParams("group=a&bucket=1e3")).bucket).toBeNull();
});

it("requests a group by name or as unnamed, and a bucket by its time range", () => {
  const asked = (name: string | null, ttfb: { min_us: number; max_us: number } | null) =>
    responsesQuery({ by: "cache", name, ttfb }, 900);
  expect(asked("hit", null)).toBe("window_s=900&limit=200&by=cache&name=hit");
  expect(asked(null, { min_us: 32, max_us: 46 })).toBe(
    "window_s=900&limit=200&by=cache&name_is_null=true&ttfb_min_us=32&ttfb_max_us=46",
  );
});
