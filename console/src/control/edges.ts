// The edges of a scope's PoP and the rollout: the bundle in use on each edge, and refused bundles.

import * as format from "../format";
import { el, setText } from "../ui/element";
import { emptyRow, scrolling } from "../ui/table";
import { type EdgesAnswer, type ScopeName, scopeUrl } from "./api";
import { dateTime } from "./figures";
import { Followed } from "./followed";
import { Pane, type Phase } from "./pane";
import { type BundleState, LATE_S, type EdgeStatus, edgeStatuses, summary } from "./rollout";

const COLUMNS = [
  ["edge", "edge", "name"],
  ["has", "bundle", "bundle in use at its last poll"],
  ["heard", "last poll", "local time of its last poll"],
] as const;

const HAS: Record<BundleState, string> = {
  stable: "the stable bundle",
  candidate: "the candidate",
  another: "neither the stable bundle nor the candidate",
  none: "no bundle",
};

export class EdgesPane {
  readonly element: HTMLElement;

  readonly #summary = el("p", { "data-testid": "control-rollout" });
  readonly #rows = el("tbody", { "data-testid": "control-edges-list" });
  readonly #followed: Followed<EdgesAnswer>;

  constructor() {
    const pane = new Pane("control-edges", "Edges and rollout", this.#summary, scrolling(COLUMNS, this.#rows));
    this.element = pane.element;
    this.#followed = new Followed<EdgesAnswer>(pane, {
      nothing: "No edge has requested a bundle yet.",
      show: (answer, nothing) => this.#show(answer, nothing),
      state: rolloutState,
    });
  }

  follow({ pop }: ScopeName, version: string): void {
    // Edges use their PoP's bundle, which covers all tenants.
    this.#followed.follow(scopeUrl("edges", { pop, tenant: null }), version);
  }

  stop(): void {
    this.#followed.stop();
  }

  clear(): void {
    this.#followed.clear();
  }

  #show(answer: EdgesAnswer | null, nothing: string): void {
    const all = answer ? edgeStatuses(answer) : [];
    setText(this.#summary, answer ? summary(answer) : "");
    this.#rows.replaceChildren(...(all.length > 0 ? all.flatMap(rows) : [emptyRow(COLUMNS.length, nothing)]));
  }
}

/** Returns an edge's row and, if the edge refused a bundle, a second row about it. */
function rows(edge: EdgeStatus): HTMLElement[] {
  const { name, bundle, heard_unix_s, is_canary, refused, has, is_late } = edge;
  const canary = is_canary ? [el("i", { title: "receives bundles first" }, "canary"), " "] : [];
  const heard = heard_unix_s === null ? format.NONE : format.clock(new Date(heard_unix_s * 1000).toISOString()).slice(0, 8);
  const heard_title = heard_unix_s === null ? "never" : dateTime(heard_unix_s) + (is_late ? `, at least ${LATE_S} s before the newest poll` : "");
  const line = el(
    "tr",
    { "data-edge": name, "data-has": has },
    el("td", { class: "edge", title: name }, ...canary, name),
    el("td", { class: "has", title: HAS[has] }, bundle === null ? format.NONE : String(bundle)),
    el("td", { class: "heard", title: heard_title }, heard),
  );
  line.toggleAttribute("data-late", is_late);
  if (!refused) return [line];
  return [line, el("tr", { class: "refused" }, el("td", { colspan: String(COLUMNS.length) }, `refused: ${refused.reason}`))];
}

function rolloutState({ candidate, edges }: EdgesAnswer): [Phase, string] {
  const refused = edges.filter(({ refused }) => refused !== null).length;
  if (refused > 0) return ["failed", `refused by ${refused}`];
  return candidate ? ["starting", "rollout in progress"] : ["playing", "settled"];
}
