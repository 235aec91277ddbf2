// A scope's prefixes, as a chart and a table. Selecting a prefix in one marks it in the other.

import { type PrefixesAnswer, type ScopeName, scopeUrl } from "./api";
import { cellsOf } from "./cells";
import { count } from "./figures";
import { Followed } from "./followed";
import { PrefixList } from "./list";
import { Pane } from "./pane";
import { Scatter } from "./scatter";

export class PrefixesPane {
  readonly element: HTMLElement;

  readonly #scatter: Scatter;
  readonly #list: PrefixList;
  readonly #followed: Followed<PrefixesAnswer>;
  #open: string | null = null;

  constructor(opened: (prefix: string) => void) {
    this.#scatter = new Scatter(({ prefixes: [first], prefixes }) => {
      this.#list.restrict(prefixes.length > 1 ? prefixes : null);
      if (first) opened(first.prefix);
    });
    this.#list = new PrefixList({ opened, pointed: (prefix) => this.#scatter.point(prefix) });
    const pane = new Pane("control-prefixes", "Prefixes", this.#scatter.element, this.#list.element);
    this.element = pane.element;
    this.#followed = new Followed<PrefixesAnswer>(pane, {
      nothing: "No prefix seen yet.",
      show: (answer, nothing) => this.#show(answer, nothing),
      state: ({ prefixes }) => ["playing", count(prefixes.length)],
    });
  }

  follow(scope: ScopeName, version: string): void {
    this.#followed.follow(scopeUrl("prefixes", scope), version);
  }

  stop(): void {
    this.#followed.stop();
  }

  clear(): void {
    this.#followed.clear();
  }

  mark(prefix: string | null): void {
    this.#open = prefix;
    this.#scatter.mark(prefix);
    this.#list.mark(prefix);
  }

  #show(answer: PrefixesAnswer | null, nothing: string): void {
    this.#scatter.show(answer && cellsOf(answer.prefixes, answer.limits), answer?.limits ?? null);
    this.#list.show(answer?.prefixes ?? null, nothing);
    this.mark(this.#open);
  }
}
