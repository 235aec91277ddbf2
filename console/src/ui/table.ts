// Shared parts of tables and lists of figures.

import { el, setAttribute, setText } from "./element";

/** Class, label and optional title of a column. */
type Heading = readonly [name: string, label: string, title?: string];

/** Creates a scrolling table with a row of headings. */
export function scrolling(columns: readonly Heading[], rows: HTMLElement): HTMLElement {
  const names = columns.map(([name, label, title]) => el("th", { scope: "col", class: name, ...(title === undefined ? {} : { title }) }, label));
  return el("div", { class: "scroll", tabindex: "0" }, el("table", {}, el("thead", {}, el("tr", {}, ...names)), rows));
}

/** Creates the row shown in an empty table. */
export function emptyRow(columns: number, words: string): HTMLTableRowElement {
  return el("tr", { class: "empty" }, el("td", { colspan: String(columns) }, words));
}

/** Creates a pair of name and figure for a `dl`. */
export function figure(name: string, value: string): HTMLElement {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value));
}

/** Shows a panel's state. */
export function showState(state: Element, phase: string, words: string): void {
  setText(state, words);
  setAttribute(state, "data-phase", phase);
}
