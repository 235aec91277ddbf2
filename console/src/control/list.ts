// The table of prefixes: the chart's data, filterable and accessible by keyboard.

import * as format from "../format";
import { el, replaceChildren, setText } from "../ui/element";
import { type Column, SortableHead } from "../ui/head";
import { emptyRow } from "../ui/table";
import type { Prefix } from "./api";
import { count, percent, words } from "./figures";
import { matching, resort, type Sort, sorted, type SortKey } from "./table";

/** Maximum rows drawn. Other prefixes can be found with the filter. */
const ROWS_MAX = 200;

const COLUMNS: readonly Column<SortKey>[] = [
  [null, "prefix", "prefix", "client network: /24 for IPv4, /56 for IPv6"],
  ["stage", "reason", "reason", "why it is steered or not; sort order: helped as a whole, promising within the network, on trial, others"],
  ["duty", "share", "duty", "duty cycle: share of its windows in the bottom group"],
  ["flap", "share", "flap", "flap rate: changes per window"],
  ["connections", "conns", "conns", "connections"],
  ["effect", "effect", "effect", "effect on goodput: within the network while on trial, then as a whole"],
];

export interface ListListener {
  opened(prefix: string): void;
  /** Called with the prefix that is hovered or focused, or with null. */
  pointed(prefix: string | null): void;
}

export class PrefixList {
  readonly element: HTMLElement;

  readonly #listener: ListListener;
  readonly #filter = el("input", {
    type: "search",
    placeholder: "prefix, reason, stage …",
    "aria-label": "list prefixes that contain all of these words",
    "data-testid": "control-filter",
  });
  readonly #place = el("button", { type: "button", class: "place", title: "list all again", hidden: "" });
  readonly #count = el("span", { class: "count" });
  readonly #head = new SortableHead(COLUMNS, (key) => {
    this.#sort = resort(this.#sort, key);
    this.#draw();
  });
  readonly #rows = el("tbody", { "data-testid": "control-list" });
  #prefixes: readonly Prefix[] | null = null;
  /** Prefixes in the selected cell of the chart; null if none is selected. */
  #cell: readonly Prefix[] | null = null;
  #open: string | null = null;
  #sort: Sort = { key: "stage", descending: true };
  #nothing = "";

  constructor(listener: ListListener) {
    this.#listener = listener;
    this.#filter.oninput = () => this.#draw();
    this.#filter.onkeydown = ({ key }) => {
      const first = this.#rows.querySelector<HTMLElement>("tr[data-prefix]")?.dataset.prefix;
      if (key === "Enter" && first !== undefined) listener.opened(first);
    };
    this.#place.onclick = () => this.restrict(null);
    const table = el("table", {}, this.#head.element, this.#rows);
    this.element = el("div", { class: "list" }, el("div", { class: "head" }, this.#filter, this.#place, this.#count), el("div", { class: "scroll", tabindex: "0" }, table));
  }

  /** Shows the prefixes, or the text `nothing` if the list is empty or has not arrived. */
  show(prefixes: readonly Prefix[] | null, nothing: string): void {
    this.#prefixes = prefixes;
    this.#cell = null;
    this.#nothing = nothing;
    this.#draw();
  }

  /** Lists the prefixes in one cell; null lists all. */
  restrict(cell: readonly Prefix[] | null): void {
    this.#cell = cell;
    this.#draw();
  }

  mark(prefix: string | null): void {
    this.#open = prefix;
    for (const row of this.#rows.querySelectorAll<HTMLElement>("tr[data-prefix]")) row.toggleAttribute("data-open", row.dataset.prefix === prefix);
  }

  #draw(): void {
    this.#head.mark(this.#sort);
    const among = this.#cell ?? this.#prefixes ?? [];
    const found = sorted(matching(among, this.#filter.value), this.#sort);
    const rows = found.slice(0, ROWS_MAX).map((prefix) => this.#row(prefix));
    const words = this.#prefixes?.length ? "No matching prefix." : this.#nothing;
    replaceChildren(this.#rows, ...(rows.length > 0 ? rows : [emptyRow(COLUMNS.length, words)]));
    this.#place.hidden = this.#cell === null;
    setText(this.#place, `one cell: ${count(this.#cell?.length ?? 0)} ×`);
    setText(this.#count, found.length > ROWS_MAX ? `${ROWS_MAX} of ${count(found.length)}` : count(found.length));
  }

  #row(prefix: Prefix): HTMLElement {
    const { prefix: name, duty, flap, connections, reason, stage, effect, observed, steered } = prefix;
    const button = el("button", { type: "button", "data-key": name, title: `${name}: why` }, name);
    button.onfocus = () => this.#listener.pointed(name);
    button.onblur = () => this.#listener.pointed(null);
    const cells: (string | HTMLElement)[] = [button, words(reason), duty.toFixed(2), flap.toFixed(2), count(connections), effect ? percent(effect.percent) : format.NONE];
    const line = el("tr", { "data-prefix": name, "data-stage": steered ? (stage ?? "steered") : "none" });
    for (const [index, [, column]] of COLUMNS.entries()) line.append(el("td", { class: column }, cells[index] ?? ""));
    line.title = [
      `${name}: ${words(reason)}${stage === null ? "" : `, ${stage}`}`,
      `in the bottom group in ${(duty * 100).toFixed(0)} % of ${observed} windows`,
      ...(effect ? [`effect on goodput ${percent(effect.percent)} [${percent(effect.low)}, ${percent(effect.high)}]`] : []),
    ].join("\n");
    if (effect) line.dataset.effect = effect.low > 0 ? "more" : effect.high < 0 ? "less" : "nothing";
    line.toggleAttribute("data-open", name === this.#open);
    line.onpointerenter = () => this.#listener.pointed(name);
    line.onpointerleave = () => this.#listener.pointed(null);
    line.onclick = () => this.#listener.opened(name);
    return line;
  }
}
