// The viewer's choice of media, players and panel, and pure functions that encode the choice in the
// page's address.

import type { Catalogue } from "./api";
import { type ControlChoice, readControl, writeControl } from "./control/choice";
import { readResponses, type ResponsesChoice, writeResponses } from "./responses/choice";

export type Kind = "live" | "vod";

/** A format, which identifies the player: hls.js plays HLS, dash.js plays DASH. */
export type Format = "hls" | "dash";

export interface Choice {
  kind: Kind;
  name: string;
}

export interface Address {
  choice: Choice | null;
  /** The only player to start; null for both players. */
  only: Format | null;
  /** The panel shown below the players. */
  show: Below;
  responses: ResponsesChoice;
  control: ControlChoice;
}

/**
 * The panels below the players: live requests, networks, stored sockets and responses, and the
 * controller's decisions.
 */
export const BELOW = ["requests", "networks", "sockets", "responses", "control"] as const;
export type Below = (typeof BELOW)[number];

/** A choice found in the catalogue. */
export interface Presentation extends Choice {
  /** Absolute paths on the edge. */
  hls: string;
  dash: string;
  /** Duration of on-demand media; null if live. */
  durationS: number | null;
}

/** Parses `?play=live:demo&only=dash&show=responses&group=hit`; unknown values are ignored. */
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

/**
 * Returns the query that `readAddress` parses. Choices within the responses or control panel are
 * included only while that panel is shown.
 */
export function writeAddress({ choice, only, show, responses, control }: Address): string {
  const parameters = new URLSearchParams();
  if (choice) parameters.set("play", choiceKey(choice));
  if (only) parameters.set("only", only);
  if (show !== "requests") parameters.set("show", show);
  if (show === "responses") writeResponses(parameters, responses);
  if (show === "control") writeControl(parameters, control);
  // A query may contain colons and slashes unescaped (RFC 3986 section 3.4), and is easier to read
  // that way.
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

/** Lists all presentations, live ones first. */
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

/**
 * Returns the wanted presentation; null if it is missing, because it may appear later. Without a
 * choice, returns the first presentation.
 */
export function resolve(wanted: Choice | null, available: Presentation[]): Presentation | null {
  if (!wanted) return available[0] ?? null;
  return available.find(({ kind, name }) => kind === wanted.kind && name === wanted.name) ?? null;
}
