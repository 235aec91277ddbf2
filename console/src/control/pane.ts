// A part of the screen of control: its title, how it stands, the request that it comes from, and its content.

import { QueryDisclosure } from "../telemetry/query";
import { el, setAttribute, setText } from "../ui/element";

/** What stands in place of an answer that is awaited. */
export const WAITING = "Not answered yet.";

export class Pane {
  readonly element: HTMLElement;

  readonly #title: HTMLElement;
  readonly #state = el("span", { class: "state", role: "status" });
  readonly #query = new QueryDisclosure();
  readonly #tools = el("span", { class: "tools" });

  constructor(testid: string, title: string, ...content: HTMLElement[]) {
    this.#title = el("h3", {}, title);
    this.#state.dataset.testid = `${testid}-state`;
    this.element = el(
      "div",
      { class: `pane ${testid}`, role: "region", "aria-label": title, "data-testid": testid },
      el("div", { class: "head" }, this.#title, this.#state, this.#query.element, this.#tools),
      ...content,
    );
    this.tell("idle", "");
  }

  title(text: string): void {
    setText(this.#title, text);
  }

  /** What stands at the end of the head. */
  tools(...elements: HTMLElement[]): void {
    this.#tools.replaceChildren(...elements);
  }

  tell(phase: "playing" | "starting" | "failed" | "idle", words: string): void {
    setText(this.#state, words);
    setAttribute(this.#state, "data-phase", phase);
    setAttribute(this.#state, "title", words || null);
  }

  /** The request that it comes from, as it can be typed, after any command that says the same; null: from none. */
  comesFrom(url: string | null, ...commands: string[]): void {
    this.#query.show(url === null ? null : [...commands, typed(url)].join("\n"));
  }
}

/** A request as it can be typed. */
export function typed(url: string): string {
  return `curl '${new URL(url, document.baseURI).href.replaceAll("'", "%27")}'`;
}
