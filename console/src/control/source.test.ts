import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { Source } from "./source";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Creates a source whose requests the test completes. */
function rig() {
  const requests: { url: string; answer(text: string): void; refuse(reason: Error): void; signal: AbortSignal }[] = [];
  const events: string[] = [];
  const source = new Source<string>((url, signal) => new Promise((answer, refuse) => void requests.push({ url, answer, refuse, signal })), {
    requested: (url) => void events.push(`asked ${url}`),
    answered: (text) => void events.push(text),
    failed: (reason) => void events.push(`failed: ${reason}`),
  });
  const settle = () => vi.advanceTimersByTimeAsync(0);
  return { requests, events, source, settle };
}

it("requests each version once, and again after a failure", async () => {
  const { requests, events, source, settle } = rig();
  source.follow("a", "1");
  source.follow("a", "1");
  requests[0]?.refuse(new Error("500"));
  await settle();
  source.follow("a", "1");
  requests[1]?.answer("first");
  await settle();
  source.follow("a", "1");
  expect(requests).toHaveLength(2);
  source.follow("a", "2");
  requests[2]?.answer("second");
  await settle();
  expect(events).toEqual(["asked a", "failed: 500", "first", "second"]);
});

it("waits for a pending reply while newer versions appear, then requests the newest", async () => {
  const { requests, events, source, settle } = rig();
  source.follow("a", "1");
  source.follow("a", "2");
  source.follow("a", "3");
  expect([requests.length, requests[0]?.signal.aborted]).toEqual([1, false]);
  requests[0]?.answer("of the first");
  await settle();
  source.follow("a", "3");
  expect(requests).toHaveLength(2);
  expect(events).toEqual(["asked a", "of the first"]);
});

it("switches to another URL, even with the same version, and discards the old reply", async () => {
  const { requests, events, source, settle } = rig();
  source.follow("a", "1");
  source.follow("b", "1");
  requests[0]?.answer("of a");
  requests[1]?.answer("of b");
  await settle();
  expect(requests.map(({ url, signal }) => [url, signal.aborted])).toEqual([
    ["a", true],
    ["b", false],
  ]);
  expect(events).toEqual(["asked a", "asked b", "of b"]);
});

it("continues after a stop without repeating the request, and starts over once cleared", async () => {
  const { requests, events, source, settle } = rig();
  source.follow("a", "1");
  source.stop();
  await settle();
  source.follow("a", "1");
  requests[1]?.answer("first");
  await settle();
  source.stop();
  source.follow("a", "1");
  expect(requests).toHaveLength(2);
  source.clear();
  source.follow("a", "1");
  expect(requests).toHaveLength(3);
  expect(events).toEqual(["asked a", "first", "asked a"]);
});
