import { describe, expect, it } from "vitest";

import { type Account, idle, report, type Signal, step } from "./quality";

/** Replays signals `[signal, at_ms]` and returns the final figures. */
function play(...script: [Signal, number][]) {
  let account: Account = idle(0);
  for (const [signal, at_ms] of script) account = step(account, signal, at_ms);
  return account;
}

describe("startup time", () => {
  it("runs from the request to the first frame", () => {
    const account = play(["request", 100], ["waiting", 150], ["playing", 300], ["frame", 420]);
    expect(report(account, 1000)).toEqual({
      phase: "playing",
      startup_ms: 320,
      stalls: 0,
      stalled_ms: 0,
      played_ms: 580,
    });
  });

  it("is unknown if the viewer paused before the first frame", () => {
    const account = play(["request", 0], ["pause", 50], ["play", 5000], ["frame", 5100]);
    expect(report(account, 5200)).toMatchObject({ phase: "playing", startup_ms: null, stalls: 0, played_ms: 100 });
  });

  it("restarts with each request, as do all figures", () => {
    const account = play(
      ["request", 0],
      ["frame", 200],
      ["waiting", 300],
      ["playing", 400],
      ["request", 1000],
      ["frame", 1050],
    );
    expect(report(account, 1050)).toEqual({
      phase: "playing",
      startup_ms: 50,
      stalls: 0,
      stalled_ms: 0,
      played_ms: 0,
    });
  });
});

describe("a stall", () => {
  const started: [Signal, number][] = [
    ["request", 0],
    ["frame", 100],
  ];

  it("runs from waiting to playing", () => {
    const account = play(...started, ["waiting", 1100], ["playing", 1600], ["waiting", 2600], ["playing", 2700]);
    expect(report(account, 3000)).toMatchObject({ stalls: 2, stalled_ms: 600, played_ms: 1000 + 1000 + 300 });
  });

  it("counts while it lasts", () => {
    const account = play(...started, ["waiting", 1000]);
    expect(report(account, 1250)).toMatchObject({ phase: "stalled", stalls: 1, stalled_ms: 250, played_ms: 900 });
  });

  it("is one stall, however often the element reports waiting", () => {
    const account = play(...started, ["waiting", 1000], ["waiting", 1100], ["frame", 1150], ["playing", 1200]);
    expect(report(account, 1200)).toMatchObject({ stalls: 1, stalled_ms: 200 });
  });

  it("continues when the player seeks to escape it", () => {
    const account = play(...started, ["waiting", 1000], ["seeking", 1500], ["seeked", 1600], ["playing", 1700]);
    expect(report(account, 1700)).toMatchObject({ phase: "playing", stalls: 1, stalled_ms: 700 });
  });

  it("ends when the viewer pauses", () => {
    const account = play(...started, ["waiting", 1000], ["pause", 1300], ["play", 9000], ["waiting", 9001], ["playing", 9500]);
    expect(report(account, 9500)).toMatchObject({ stalls: 1, stalled_ms: 300, played_ms: 900 });
  });

  it("is not caused by a seek", () => {
    const account = play(
      ...started,
      ["seeking", 1000],
      ["waiting", 1001],
      ["seeked", 1500],
      ["waiting", 1501],
      ["playing", 1600],
    );
    expect(report(account, 1700)).toMatchObject({ phase: "playing", stalls: 0, stalled_ms: 0, played_ms: 1000 });
  });

  it("does not happen before the first frame", () => {
    const account = play(["request", 0], ["playing", 10], ["waiting", 20], ["playing", 30], ["frame", 40]);
    expect(report(account, 40)).toMatchObject({ startup_ms: 40, stalls: 0 });
  });
});

it("counts nothing after the end or a failure", () => {
  const ended = play(["request", 0], ["frame", 100], ["pause", 1000], ["ended", 1000], ["waiting", 1001]);
  expect(report(ended, 9000)).toMatchObject({ phase: "ended", stalls: 0, played_ms: 900 });
  const failed = play(["request", 0], ["frame", 100], ["failure", 600], ["waiting", 700], ["playing", 800]);
  expect(report(failed, 9000)).toMatchObject({ phase: "failed", stalls: 0, played_ms: 500 });
});

it("plays again after the end", () => {
  const account = play(["request", 0], ["frame", 100], ["ended", 1100], ["play", 2000], ["seeking", 2000], ["seeked", 2050], ["frame", 2060]);
  expect(report(account, 3060)).toMatchObject({ phase: "playing", startup_ms: 100, stalls: 0, played_ms: 2000 });
});
