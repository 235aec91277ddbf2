// What is played: a live channel or a presentation on demand, and by which of the two players; how the page's
// address says it. Pure.

import type { Catalogue } from "./api";
import { type ControlChoice, readControl, writeControl } from "./control/choice";
import { readResponses, type ResponsesChoice, writeResponses } from "./responses/choice";

export type Kind = "live" | "vod";

/** The format stands for its player: hls.js plays HLS, dash.js plays DASH. */
export type Format = "hls" | "dash";

export interface Choice {
  kind: Kind;
  name: string;
}

export interface Address {
  choice: Choice | null;
  /** The one player that starts; null: both. */
  only: Format | null;
  /** Which panel is below the players. */
  show: Below;
  responses: ResponsesChoice;
  control: ControlChoice;
}

/** What can be below the players: requests as they happen, who suffers, what the agent has kept, and what is decided of it. */
export const BELOW = ["requests", "networks", "sockets", "responses", "control"] as const;
export type Below = (typeof BELOW)[number];

/** A choice that the catalogue has. */
export interface Presentation extends Choice {
  /** Absolute paths on the edge. */
  hls: string;
  dash: string;
  /** On demand only. */
  durationS: number | null;
}

/** Reads `?play=live:demo&only=dash&show=responses&group=hit`; what is not understood is left out. */
export function readAddress(search: string): Address {
  const parameters = new URLSearchParams(search);
  const only = parameters.get("only");
  return {
    choice: parseChoice(parameters.get("play") ?? ""),
    only: only === "hls" || only === "dash" ? only : null,
    show: BELOW.find((below) => below === parameters.get("show")) ?? "requests",
    responses: readResponses(parameters),
    control: readControl(parameters),
  };
}

/** The query that `readAddress` reads back. What is chosen among the responses, or of control, is part of it while that is shown. */
export function writeAddress({ choice, only, show, responses, control }: Address): string {
  const parameters = new URLSearchParams();
  if (choice) parameters.set("play", choiceKey(choice));
  if (only) parameters.set("only", only);
  if (show !== "requests") parameters.set("show", show);
  if (show === "responses") writeResponses(parameters, responses);
  if (show === "control") writeControl(parameters, control);
  // Colon and slash need no escape in a query, RFC 3986 section 3.4, and it reads better without.
  return parameters.size > 0 ? `?${parameters.toString().replaceAll("%3A", ":").replaceAll("%2F", "/")}` : "";
}

export function choiceKey(choice: Choice): string {
  return `${choice.kind}:${choice.name}`;
}

export function parseChoice(key: string): Choice | null {
  const colon = key.indexOf(":");
  const kind = key.slice(0, colon);
  const name = key.slice(colon + 1);
  return (kind === "live" || kind === "vod") && name !== "" ? { kind, name } : null;
}

/** Everything that can be played, live first. */
export function presentations(catalogue: Catalogue): Presentation[] {
  const live = catalogue.live.map(({ name, hls, dash }) => ({ kind: "live" as const, name, hls, dash, durationS: null }));
  const vod = catalogue.vod.map(({ name, hls, dash, duration_s }) => ({
    kind: "vod" as const,
    name,
    hls,
    dash,
    durationS: duration_s,
  }));
  return [...live, ...vod];
}

/** The wanted presentation if it is there; without a wish, the first. A wish that is not there yet is waited for. */
export function resolve(wanted: Choice | null, available: Presentation[]): Presentation | null {
  if (!wanted) return available[0] ?? null;
  return available.find(({ kind, name }) => kind === wanted.kind && name === wanted.name) ?? null;
}
