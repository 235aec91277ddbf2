import { expect, it } from "vitest";

import type { Edge, EdgesAnswer } from "./api";
import { LATE_S, edgeStatuses, summary } from "./rollout";

function edge(name: string, bundle: number | null, more: Partial<Edge> = {}): Edge {
  return { name, bundle, heard_unix_s: 1000, is_canary: false, refused: null, ...more };
}

const since_unix_s = new Date(2026, 10, 22, 9, 5).getTime() / 1000;

const ANSWER: EdgesAnswer = {
  stable: 41,
  candidate: { number: 42, stage: "canary", since_unix_s },
  edges: [
    edge("e10", 41),
    edge("e9", 42),
    edge("e3", 38, { heard_unix_s: 1000 - LATE_S - 1, refused: { reason: "checksum" } }),
    edge("e2", 42, { is_canary: true }),
    edge("e1", null, { heard_unix_s: null }),
  ],
};

it("sorts refusals first, then canaries, then names by numeric value, with each edge's bundle state", () => {
  expect(edgeStatuses(ANSWER).map(({ name, has }) => `${name} ${has}`)).toEqual(["e3 another", "e2 candidate", "e1 none", "e9 candidate", "e10 stable"]);
});

it("finds late edges by the others' polls, not by the viewer's clock", () => {
  const late = (answer: EdgesAnswer) => edgeStatuses(answer).filter(({ is_late }) => is_late).map(({ name }) => name);
  expect(late(ANSWER)).toEqual(["e3", "e1"]);
  expect(late({ ...ANSWER, edges: [edge("e1", 41, { heard_unix_s: 5 })] })).toEqual([]);
});

it("does not count an edge without a bundle as stable while there is no stable bundle", () => {
  expect(edgeStatuses({ stable: null, candidate: null, edges: [edge("e1", null)] })[0]?.has).toBe("none");
});

it("describes the rollout in words", () => {
  expect(summary(ANSWER)).toBe("stable: 41, on 1 of 5 edges · candidate: 42, canary since 09:05, on 2 of 5 edges");
  expect(summary({ stable: 41, candidate: null, edges: [edge("e1", 41)] })).toBe("stable: 41, on 1 of 1 edge");
  expect(summary({ stable: null, candidate: null, edges: [] })).toBe("no bundle yet");
});
