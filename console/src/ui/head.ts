// The header row of a sortable table.

import { el, setAttribute } from "./element";

/** The sort order of rows. */
export interface Order<K extends string> {
  key: K;
  descending: boolean;
}

/** A column: sort key (null if not sortable), class, label and title. */
export type Column<K extends string> = readonly [K | null, string, string, string];

/** The row of headings. Clicking a sortable heading reports its key. */
export class SortableHead<K extends string> {
  readonly element: HTMLElement;
  readonly #headings: (readonly [K | null, HTMLElement])[];

  constructor(columns: readonly Column<K>[], pressed: (key: K) => void) {
    this.#headings = columns.map(([key, name, label, title]) => {
      if (key === null) return [key, el("th", { scope: "col", class: name, title }, label)];
      const button = el("button", { type: "button", title }, label);
      button.onclick = () => pressed(key);
      return [key, el("th", { scope: "col", class: name }, button)];
    });
    this.element = el("thead", {}, el("tr", {}, ...this.#headings.map(([, heading]) => heading)));
  }

  /** Marks the current order. */
  mark({ key, descending }: Order<K>): void {
    for (const [by, heading] of this.#headings) setAttribute(heading, "aria-sort", by === key ? (descending ? "descending" : "ascending") : null);
  }
}
