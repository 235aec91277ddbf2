// The explanation of one prefix: why it is steered or not, its history, trial and changes, and the
// output of the equivalent command.

import { getJson } from "../api";
import { bitsPerS } from "../format";
import { copyButton } from "../ui/copy";
import { el } from "../ui/element";
import { place, type Scale } from "../ui/scale";
import { svg } from "../ui/svg";
import { type Effect, type Evidence, explainCommand, type Explanation, type Scope, scopeUrl } from "./api";
import { count, dateTime, percent, signed, time, words } from "./figures";
import { type Forest, ofPercent, ofPoints } from "./forest";
import { Pane, WAITING } from "./pane";
import { Source } from "./source";

/** Class name and meaning of each character in a history. */
const SIGNS: Record<string, readonly [name: string, meaning: string]> = {
  "#": ["group", "bottom group"],
  ".": ["not", "not in it"],
  "-": ["unknown", "too few connections"],
};

const CHANGES = { entered: "entered", left: "left", promising: "promising within the network", proved: "helped as a whole" } as const;

/** View box of a forest plot, which is stretched to the available width. */
const FOREST = { width: 240, height: 32, middle: 9 } as const;

export class ExplanationPane {
  readonly element: HTMLElement;

  readonly #body = el("div", { class: "body", tabindex: "0" });
  readonly #pane = new Pane("control-explanation", "Prefix", this.#body);
  readonly #source: Source<Explanation>;
  #open: { scope: Scope; prefix: string } | null = null;

  constructor(closed: () => void) {
    this.element = this.#pane.element;
    const close = el("button", { type: "button", title: "close", "data-testid": "control-close" }, "Close");
    close.onclick = closed;
    this.#source = new Source<Explanation>(getJson, {
      requested: (url) => {
        if (!this.#open) return;
        const { scope, prefix } = this.#open;
        this.element.toggleAttribute("data-closed", false);
        this.#pane.title(prefix);
        this.#pane.setState("starting", "loading");
        this.#pane.showRequest(url, explainCommand(scope, prefix));
        this.#pane.tools(close);
        this.#body.replaceChildren(el("p", { class: "hint" }, WAITING));
      },
      answered: (answer) => {
        this.#pane.setState("playing", words(answer.reason));
        if (this.#open) this.#body.replaceChildren(...explanation(answer, this.#open.prefix, this.#open.scope));
      },
      failed: (message) => this.#pane.setState("failed", message),
    });
    this.#showNone();
  }

  follow(scope: Scope, prefix: string, version: string): void {
    this.#open = { scope, prefix };
    this.#source.follow(scopeUrl("explain", scope, { prefix }), version);
  }

  /** Stops updates while the panel is hidden. */
  stop(): void {
    this.#source.stop();
  }

  /** Closes the open prefix. */
  clear(): void {
    if (this.#open === null) return;
    this.#source.clear();
    this.#open = null;
    this.#showNone();
  }

  #showNone(): void {
    this.element.toggleAttribute("data-closed", true);
    this.#pane.title("Prefix");
    this.#pane.setState("idle", "none selected");
    this.#pane.tools();
    this.#pane.showRequest(null);
    this.#body.replaceChildren(el("p", { class: "hint" }, "Choose a prefix in the chart, the table or a round to see why it is steered or not, and what its trial shows."));
  }
}

function explanation({ said, history, entry, changes, text }: Explanation, prefix: string, scope: Scope): HTMLElement[] {
  const command = explainCommand(scope, prefix);
  return [
    el("p", { class: "said", "data-testid": "control-said" }, said),
    ...strip(history, scope),
    ...(entry ? trial(entry) : [el("p", { class: "hint" }, "No trial in progress.")]),
    ...(changes.length > 0 ? [changed(changes)] : []),
    el("div", { class: "text" }, el("code", {}, command), copyButton(() => text, `copy the output of ${command}`), el("pre", { "data-testid": "control-text" }, text)),
  ];
}

/** Draws a box for each window, newest on the right. */
function strip(history: string, { window, window_s }: Scope): HTMLElement[] {
  const all = [...history];
  if (all.length === 0) return [];
  const boxes = all.map((sign, index) => {
    const [name, meaning] = SIGNS[sign] ?? ["unknown", sign];
    const start_s = (window - (all.length - 1 - index)) * window_s;
    return el("span", { "data-was": name, title: `${dateTime(start_s)} to ${time(start_s + window_s)}: ${meaning}` });
  });
  const number = (sign: string) => all.filter((other) => other === sign).length;
  const label = Object.entries(SIGNS).map(([sign, [, meaning]]) => `${meaning}: ${number(sign)}`).join(", ");
  const row = el("div", { class: "strip", role: "img", "aria-label": `the last ${all.length} windows; ${label}`, "data-testid": "control-history" }, ...boxes);
  const from_s = (window - all.length + 1) * window_s;
  const keys = Object.values(SIGNS).map(([name, meaning]) => el("span", {}, el("i", { "data-was": name }), meaning));
  return [row, el("div", { class: "ends" }, el("span", {}, dateTime(from_s).slice(5)), el("span", { class: "legend" }, ...keys), el("span", {}, time((window + 1) * window_s)))];
}

/**
 * Compares steered with held-out connections: draws each effect with its interval on an axis of its
 * own.
 */
function trial({ treated, held_out, within, as_a_whole, pairs, retransmitted }: Evidence): HTMLElement[] {
  const points = ({ points, low, high }: NonNullable<Evidence["retransmitted"]>) => `${signed(points, 2)} points [${signed(low, 2)}, ${signed(high, 2)}]`;
  return [
    el("p", { class: "arms" }, el("b", {}, count(treated)), " outcomes of steered clients, ", el("b", {}, count(held_out)), " of held-out ones; effects with their anytime-valid intervals:"),
    goodputRow("goodput within the network", within),
    ...(pairs === null ? [] : [goodputRow(`goodput as a whole, ${pairs} pairs of blocks`, as_a_whole)]),
    forestRow("retransmitted", retransmitted && ofPoints(retransmitted), retransmitted && points(retransmitted), "less"),
  ];
}

function goodputRow(name: string, effect: Effect | null): HTMLElement {
  const row = forestRow(name, effect && ofPercent(effect), effect && `${percent(effect.percent)} [${percent(effect.low)}, ${percent(effect.high)}]`, "more");
  if (effect?.p10) row.append(el("span", { class: "p10 hint" }, p10(effect.p10)));
  return row;
}

/** Formats the 10th percentiles of goodput of both arms. */
function p10({ steered, held_out }: NonNullable<Effect["p10"]>): string {
  return `10th percentile: ${bitsPerS(steered * 8)} steered, ${bitsPerS(held_out * 8)} held out`;
}

/** Draws one effect; `good` is the desirable direction. */
function forestRow(name: string, forest: Forest | null, value: string | null, good: "more" | "less"): HTMLElement {
  const label = el("span", { class: forest ? "value" : "hint" }, value ?? "too few outcomes");
  const row = el("div", { class: "forest", "data-testid": `control-effect-${name.split(",")[0]?.replaceAll(" ", "-")}` }, el("div", {}, el("b", {}, name), label));
  if (!forest) return row;
  row.dataset.says = forest.says === "nothing" ? "nothing" : forest.says === good ? "better" : "worse";
  row.append(forestPicture(forest));
  return row;
}

function forestPicture({ to, mark, low, high, is_cut, ticks }: Forest): SVGElement {
  const { width, height, middle } = FOREST;
  const scale: Scale = { from: -to, to, from_px: 10, to_px: width - 10 };
  const [from, end, at] = [place(scale, low), place(scale, high), place(scale, mark)];
  // An interval end within the axis gets a cap; an end beyond the axis gets an arrow.
  const cap = (x: number, is_beyond: boolean, way: number) => (is_beyond ? `M${x - 5 * way} ${middle - 4}L${x} ${middle}L${x - 5 * way} ${middle + 4}` : `M${x} ${middle - 4}V${middle + 4}`);
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    ...ticks.map(({ at }) => svg("path", { class: at === 0 ? "none" : "grid", d: `M${place(scale, at)} 0V${height - 13}` })),
    ...ticks.map(({ at, label }) => svg("text", { x: place(scale, at), y: height - 3, "text-anchor": "middle" }, label)),
    svg("path", { class: "interval", d: `M${from} ${middle}H${end}${cap(from, is_cut[0], -1)}${cap(end, is_cut[1], 1)}` }),
    svg("rect", { class: "estimate", x: at - 4, y: middle - 4, width: 8, height: 8 }),
  );
}

/** Lists the prefix's changes, newest first. */
function changed(changes: Explanation["changes"]): HTMLElement {
  const items = changes.toReversed().map(({ unix_s, window, what, reason }) => {
    const line = el("li", { "data-what": what, title: `window ${window}` }, el("span", {}, dateTime(unix_s)), " ", el("b", {}, CHANGES[what]));
    if (reason !== null && what !== "proved" && what !== "promising") line.append(`: ${words(reason)}`);
    return line;
  });
  return el("ul", { class: "changes", "data-testid": "control-changes" }, ...items);
}
