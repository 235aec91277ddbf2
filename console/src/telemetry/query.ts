// The query behind an answer, to read and to copy: every figure can be traced.

import { el, setText } from "../ui/element";

export class QueryDisclosure {
  readonly element: HTMLElement;
  readonly #text = el("pre");

  constructor() {
    this.element = el("details", { class: "query", "data-testid": "query", hidden: "" }, el("summary", {}, "query"), this.#text);
  }

  /** Null: there is none. */
  show(query: string | null): void {
    setText(this.#text, query ?? "");
    this.element.hidden = query === null;
  }
}
