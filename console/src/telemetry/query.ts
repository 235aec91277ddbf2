// The query that produced the data, to read and to copy, so that every figure can be traced.

import { el, setText } from "../ui/element";

export class QueryDisclosure {
  readonly element: HTMLElement;
  readonly #text = el("pre");

  constructor() {
    this.element = el("details", { class: "query", "data-testid": "query", hidden: "" }, el("summary", {}, "query"), this.#text);
  }

  /** Shows the query; null hides it. */
  show(query: string | null): void {
    setText(this.#text, query ?? "");
    this.element.hidden = query === null;
  }
}
