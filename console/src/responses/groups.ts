// The table of TTFB distributions, with a histogram for each group on a common axis.

import * as format from "../format";
import type { TtfbGroup } from "../telemetry/api";
import { el, replaceChildren, setAttribute } from "../ui/element";
import { emptyRow } from "../ui/table";
import { type Axis, axisOf, type Bar, bars, bucketLabel, position, ticks } from "./axis";
import type { ResponsesChoice } from "./choice";

const PERCENTILES = [
  ["p50_us", "p50", "median"],
  ["p95_us", "p95", "95th percentile"],
  ["p99_us", "p99", "99th percentile"],
] as const;

const COLUMNS = 3 + PERCENTILES.length;

/** Called with the clicked group, and with the bar if one was clicked. */
type Opened = (group: { name: string | null }, bucket: number | null) => void;

export class GroupsTable {
  readonly element: HTMLElement;

  readonly #opened: Opened;
  readonly #axis = el("th", { scope: "col", class: "plot", "aria-label": "distribution of the time to the first byte" });
  readonly #rows = el("tbody", { "data-testid": "groups" });

  constructor(opened: Opened) {
    this.#opened = opened;
    const heads = [
      el("th", { scope: "col", class: "group" }, "group"),
      this.#axis,
      ...PERCENTILES.map(([, label, title]) => el("th", { scope: "col", class: label, title: `TTFB, ${title}` }, label)),
      el("th", { scope: "col", class: "asked", title: "responses with a first byte" }, "responses"),
    ];
    const table = el("table", {}, el("thead", {}, el("tr", {}, ...heads)), this.#rows);
    this.element = el("div", { class: "scroll groups", tabindex: "0" }, table);
  }

  /** Shows the groups; `nothing` is the text to show without groups. */
  show(groups: readonly TtfbGroup[], nothing: string): void {
    const axis = axisOf(groups);
    const marks = groups.length > 0 ? ticks(axis) : [];
    this.#axis.replaceChildren(...marks.map(({ at, label }) => el("span", { style: left(at) }, label)));
    const rows = groups.map((group) => this.#row(group, axis));
    replaceChildren(this.#rows, ...(rows.length > 0 ? rows : [emptyRow(COLUMNS, nothing)]));
  }

  /** Marks the open group and bar. */
  mark({ group, bucket }: ResponsesChoice): void {
    for (const row of this.#rows.querySelectorAll<HTMLElement>("tr[data-group]")) {
      const is_open = group !== null && row.dataset.group === groupKey(group.name);
      row.toggleAttribute("data-open", is_open);
      for (const button of row.querySelectorAll<HTMLElement>("button")) {
        const is_this = button.dataset.bucket === (bucket === null ? undefined : String(bucket));
        setAttribute(button, "aria-pressed", String(is_open && is_this));
      }
    }
  }

  #row(group: TtfbGroup, axis: Axis): HTMLElement {
    const { name, responses } = group;
    const open = el("button", { type: "button", "data-key": groupKey(name), title: `${groupLabel(name)}: its responses` }, groupLabel(name));
    const line = el(
      "tr",
      { "data-group": groupKey(name) },
      el("td", { class: "group" }, open),
      el("td", { class: "plot" }, ...this.#plot(group, axis)),
      ...PERCENTILES.map(([key, label]) => el("td", { class: label }, format.micros(group[key]))),
      el("td", { class: "asked" }, String(responses)),
    );
    // A bar selects its bucket; the rest of the row selects the whole group.
    line.onclick = ({ target }) => {
      const bucket = target instanceof HTMLElement ? target.dataset.bucket : undefined;
      this.#opened({ name }, bucket === undefined ? null : Number(bucket));
    };
    return line;
  }

  #plot(group: TtfbGroup, axis: Axis): HTMLElement[] {
    return [
      ...ticks(axis).map(({ at }) => el("span", { class: "tick", style: left(at) })),
      ...bars(axis, group).map((bar) => barButton(group.name, bar)),
      ...PERCENTILES.map(([key, label]) => {
        const title = `${label}: ${format.micros(group[key])}`;
        return el("span", { class: `mark ${label}`, style: left(position(axis, group[key])), title });
      }),
    ];
  }
}

function barButton(name: string | null, { bucket, count, at, width, height }: Bar): HTMLElement {
  const label = `${bucketLabel(bucket)}: ${count} ${count === 1 ? "response" : "responses"}`;
  return el("button", {
    type: "button",
    class: "bar",
    style: `${left(at)};width:${(width * 100).toFixed(3)}%;--height:${(height * 100).toFixed(1)}%`,
    title: label,
    "aria-label": label,
    "data-bucket": String(bucket),
    "data-key": `${groupKey(name)} ${bucket}`,
  });
}

function left(at: number): string {
  return `left:${(at * 100).toFixed(3)}%`;
}

/** Returns a key that distinguishes a group without a name from a group of any name. */
function groupKey(name: string | null): string {
  return name === null ? "null" : `=${name}`;
}

/** Returns the label of a group. */
export function groupLabel(name: string | null): string {
  return name === null ? "unknown" : name === "" ? "empty" : name;
}
