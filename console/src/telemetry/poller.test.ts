import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { Poller } from "./poller";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A poller whose questions are answered by hand. */
function rig() {
  const asked: { answer(text: string): void; refuse(reason: Error): void; signal: AbortSignal }[] = [];
  const told: string[] = [];
  const poller = new Poller<string>({
    ask: (signal) => new Promise((answer, refuse) => void asked.push({ answer, refuse, signal })),
    answered: (text) => void told.push(text),
    failed: (reason) => void told.push(`failed: ${reason}`),
  });
  return { asked, told, poller };
}

it("asks again only after an answer, and tells a failure and goes on", async () => {
  const { asked, told, poller } = rig();
  poller.start(2000);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(asked).toHaveLength(1);
  asked[0]?.answer("first");
  await vi.advanceTimersByTimeAsync(1999);
  expect(asked).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(asked).toHaveLength(2);
  asked[1]?.refuse(new Error("500"));
  await vi.advanceTimersByTimeAsync(2000);
  expect(told).toEqual(["first", "failed: 500"]);
  expect(asked).toHaveLength(3);
});

it("gives up what is under way for a new question, and keeps its answer from everybody", async () => {
  const { asked, told, poller } = rig();
  poller.start(2000);
  poller.start(null);
  expect(asked.map(({ signal }) => signal.aborted)).toEqual([true, false]);
  asked[0]?.answer("of the old question");
  asked[1]?.answer("of the new one");
  await vi.advanceTimersByTimeAsync(60_000);
  expect(told).toEqual(["of the new one"]);
  expect(asked).toHaveLength(2);
});

it("asks nothing once it is stopped, not even from within an answer", async () => {
  const { asked, told, poller } = rig();
  poller.start(2000);
  asked[0]?.answer("first");
  await vi.advanceTimersByTimeAsync(0);
  poller.stop();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(asked).toHaveLength(1);

  let own = 0;
  const once: Poller<null> = new Poller<null>({
    ask: () => Promise.resolve(null),
    answered: () => {
      own += 1;
      once.stop();
    },
    failed: () => undefined,
  });
  once.start(2000);
  await vi.advanceTimersByTimeAsync(60_000);
  expect([told, own]).toEqual([["first"], 1]);
});
