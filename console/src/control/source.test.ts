import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { Source } from "./source";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A source whose questions are answered by hand. */
function rig() {
  const asked: { url: string; answer(text: string): void; refuse(reason: Error): void; signal: AbortSignal }[] = [];
  const told: string[] = [];
  const source = new Source<string>((url, signal) => new Promise((answer, refuse) => void asked.push({ url, answer, refuse, signal })), {
    asked: (url) => void told.push(`asked ${url}`),
    answered: (text) => void told.push(text),
    failed: (reason) => void told.push(`failed: ${reason}`),
  });
  const settle = () => vi.advanceTimersByTimeAsync(0);
  return { asked, told, source, settle };
}

it("asks once for each version, and again for one that failed", async () => {
  const { asked, told, source, settle } = rig();
  source.follow("a", "1");
  source.follow("a", "1");
  asked[0]?.refuse(new Error("500"));
  await settle();
  source.follow("a", "1");
  asked[1]?.answer("first");
  await settle();
  source.follow("a", "1");
  expect(asked).toHaveLength(2);
  source.follow("a", "2");
  asked[2]?.answer("second");
  await settle();
  expect(told).toEqual(["asked a", "failed: 500", "first", "second"]);
});

it("waits for an answer that is slower than versions come, and then asks for what came meanwhile", async () => {
  const { asked, told, source, settle } = rig();
  source.follow("a", "1");
  source.follow("a", "2");
  source.follow("a", "3");
  expect([asked.length, asked[0]?.signal.aborted]).toEqual([1, false]);
  asked[0]?.answer("of the first");
  await settle();
  source.follow("a", "3");
  expect(asked).toHaveLength(2);
  expect(told).toEqual(["asked a", "of the first"]);
});

it("gives an address up for another one, also where versions are alike, and keeps its answer from everybody", async () => {
  const { asked, told, source, settle } = rig();
  source.follow("a", "1");
  source.follow("b", "1");
  asked[0]?.answer("of a");
  asked[1]?.answer("of b");
  await settle();
  expect(asked.map(({ url, signal }) => [url, signal.aborted])).toEqual([
    ["a", true],
    ["b", false],
  ]);
  expect(told).toEqual(["asked a", "asked b", "of b"]);
});

it("goes on after a stop without forgetting what is shown, and anew once it was cleared", async () => {
  const { asked, told, source, settle } = rig();
  source.follow("a", "1");
  source.stop();
  await settle();
  source.follow("a", "1");
  asked[1]?.answer("first");
  await settle();
  source.stop();
  source.follow("a", "1");
  expect(asked).toHaveLength(2);
  source.clear();
  source.follow("a", "1");
  expect(asked).toHaveLength(3);
  expect(told).toEqual(["asked a", "first", "asked a"]);
});
