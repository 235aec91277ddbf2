// A pane of the control panel: its title, state, request and content.

import { QueryDisclosure } from "../telemetry/query";
import { el, setAttribute, setText } from "../ui/element";
import { showState } from "../ui/table";

/** Text shown until data arrives. */
export const WAITING = "Waiting for data.";

/** The state of a pane. */
export type Phase = "playing" | "starting" | "failed" | "idle";

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
    this.setState("idle", "");
  }

  title(text: string): void {
    setText(this.#title, text);
  }

  /** Elements at the end of the head. */
  tools(...elements: HTMLElement[]): void {
    this.#tools.replaceChildren(...elements);
  }

  setState(phase: Phase, words: string): void {
    showState(this.#state, phase, words);
    setAttribute(this.#state, "title", words || null);
  }

  /**
   * Shows the pane's request: first the equivalent `commands`, then a curl command. Shows nothing
   * if `url` is null.
   */
  showRequest(url: string | null, ...commands: string[]): void {
    this.#query.show(url === null ? null : [...commands, curlCommand(url)].join("\n"));
  }
}

/** Formats a request as a curl command. */
export function curlCommand(url: string): string {
  return `curl '${new URL(url, document.baseURI).href.replaceAll("'", "%27")}'`;
}
