import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { Poller } from "./poller";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Creates a poller whose requests the test completes. */
function rig() {
  const requests: { answer(text: string): void; refuse(reason: Error): void; signal: AbortSignal }[] = [];
  const events: string[] = [];
  const poller = new Poller<string>({
    ask: (signal) => new Promise((answer, refuse) => void requests.push({ answer, refuse, signal })),
    answered: (text) => void events.push(text),
    failed: (reason) => void events.push(`failed: ${reason}`),
  });
  return { requests, events, poller };
}

it("polls again only after a reply, and continues after a failure", async () => {
  const { requests, events, poller } = rig();
  poller.start(2000);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(requests).toHaveLength(1);
  requests[0]?.answer("first");
  await vi.advanceTimersByTimeAsync(1999);
  expect(requests).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(requests).toHaveLength(2);
  requests[1]?.refuse(new Error("500"));
  await vi.advanceTimersByTimeAsync(2000);
  expect(events).toEqual(["first", "failed: 500"]);
  expect(requests).toHaveLength(3);
});

it("cancels a pending request when a new one starts, and discards its reply", async () => {
  const { requests, events, poller } = rig();
  poller.start(2000);
  poller.start(null);
  expect(requests.map(({ signal }) => signal.aborted)).toEqual([true, false]);
  requests[0]?.answer("of the old question");
  requests[1]?.answer("of the new one");
  await vi.advanceTimersByTimeAsync(60_000);
  expect(events).toEqual(["of the new one"]);
  expect(requests).toHaveLength(2);
});

it("requests nothing once stopped, even while handling a reply", async () => {
  const { requests, events, poller } = rig();
  poller.start(2000);
  requests[0]?.answer("first");
  await vi.advanceTimersByTimeAsync(0);
  poller.stop();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(requests).toHaveLength(1);

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
  expect([events, own]).toEqual([["first"], 1]);
});
