// The edges of a scope's PoP and the rollout: who has which bundle, and who has refused one.

import { getJson } from "../api";
import * as format from "../format";
import { el, setText } from "../ui/element";
import { type EdgesAnswer, type ScopeName, scopeUrl } from "./api";
import { dateTime } from "./figures";
import { Pane, WAITING } from "./pane";
import { type Has, LATE_S, type Standing, standings, summary } from "./rollout";
import { Source } from "./source";

const COLUMNS = [
  ["edge", "edge", "its name"],
  ["has", "bundle", "what it goes by, as its last poll said"],
  ["heard", "heard", "when it was last heard, local time"],
] as const;

const NOTHING = "No edge has asked for a bundle yet.";

const HAS: Record<Has, string> = {
  stable: "what all are to have",
  candidate: "the candidate",
  another: "neither the stable bundle nor the candidate",
  none: "no bundle",
};

export class EdgesPane {
  readonly element: HTMLElement;

  readonly #summary = el("p", { "data-testid": "control-rollout" });
  readonly #rows = el("tbody", { "data-testid": "control-edges-list" });
  readonly #pane: Pane;
  readonly #source: Source<EdgesAnswer>;

  constructor() {
    const names = COLUMNS.map(([name, label, title]) => el("th", { scope: "col", class: name, title }, label));
    const table = el("table", {}, el("thead", {}, el("tr", {}, ...names)), this.#rows);
    this.#pane = new Pane("control-edges", "Edges and rollout", this.#summary, el("div", { class: "scroll", tabindex: "0" }, table));
    this.element = this.#pane.element;
    this.#source = new Source<EdgesAnswer>(getJson, {
      asked: (url) => {
        this.#show(null, WAITING);
        this.#pane.tell("starting", "loading");
        this.#pane.comesFrom(url);
      },
      answered: (answer) => {
        this.#show(answer, NOTHING);
        this.#pane.tell(...rolloutState(answer));
      },
      failed: (message) => this.#pane.tell("failed", message),
    });
    this.#show(null, WAITING);
  }

  follow({ pop }: ScopeName, version: string): void {
    // Edges go by the PoP's bundle, whoever it was decided for.
    this.#source.follow(scopeUrl("edges", { pop, tenant: null }), version);
  }

  /** Nobody looks. */
  stop(): void {
    this.#source.stop();
  }

  /** There is no scope. */
  clear(): void {
    this.#source.clear();
    this.#pane.tell("idle", "");
    this.#show(null, NOTHING);
  }

  #show(answer: EdgesAnswer | null, nothing: string): void {
    const all = answer ? standings(answer) : [];
    setText(this.#summary, answer ? summary(answer) : "");
    const empty = el("tr", { class: "empty" }, el("td", { colspan: String(COLUMNS.length) }, nothing));
    this.#rows.replaceChildren(...(all.length > 0 ? all.flatMap(rows) : [empty]));
  }
}

/** An edge, and beneath it what it has refused. */
function rows(edge: Standing): HTMLElement[] {
  const { name, bundle, heard_unix_s, is_canary, refused, has, is_late } = edge;
  const canary = is_canary ? [el("i", { title: "bundles come here first" }, "canary"), " "] : [];
  const heard = heard_unix_s === null ? format.NONE : format.clock(new Date(heard_unix_s * 1000).toISOString()).slice(0, 8);
  const heard_title = heard_unix_s === null ? "never" : dateTime(heard_unix_s) + (is_late ? `, ${LATE_S} s and more before others` : "");
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

function rolloutState({ candidate, edges }: EdgesAnswer): ["playing" | "starting" | "failed", string] {
  const refused = edges.filter(({ refused }) => refused !== null).length;
  if (refused > 0) return ["failed", `refused by ${refused}`];
  return candidate ? ["starting", "a rollout is under way"] : ["playing", "settled"];
}
