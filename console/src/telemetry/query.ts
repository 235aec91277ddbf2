// The query that produced the data, which the viewer can read and copy to trace every figure.

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
