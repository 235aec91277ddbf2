// The prefixes of a scope, as a picture and as a table beneath it: what is chosen in one is marked in the other.

import { getJson } from "../api";
import { type PrefixesAnswer, type ScopeName, scopeUrl } from "./api";
import { cellsOf } from "./cells";
import { count } from "./figures";
import { PrefixList } from "./list";
import { Pane, WAITING } from "./pane";
import { Scatter } from "./scatter";
import { Source } from "./source";

const NOTHING = "No prefix has been seen yet.";

export class PrefixesPane {
  readonly element: HTMLElement;

  readonly #scatter: Scatter;
  readonly #list: PrefixList;
  readonly #pane: Pane;
  readonly #source: Source<PrefixesAnswer>;
  #open: string | null = null;

  constructor(opened: (prefix: string) => void) {
    this.#scatter = new Scatter(({ prefixes: [first], prefixes }) => {
      this.#list.restrict(prefixes.length > 1 ? prefixes : null);
      if (first) opened(first.prefix);
    });
    this.#list = new PrefixList({ opened, pointed: (prefix) => this.#scatter.point(prefix) });
    this.#pane = new Pane("control-prefixes", "Prefixes", this.#scatter.element, this.#list.element);
    this.element = this.#pane.element;
    this.#source = new Source<PrefixesAnswer>(getJson, {
      asked: (url) => {
        this.#show(null, WAITING);
        this.#pane.tell("starting", "loading");
        this.#pane.comesFrom(url);
      },
      answered: (answer) => {
        this.#show(answer, NOTHING);
        this.#pane.tell("playing", count(answer.prefixes.length));
      },
      failed: (message) => this.#pane.tell("failed", message),
    });
    this.#show(null, WAITING);
  }

  follow(scope: ScopeName, version: string): void {
    this.#source.follow(scopeUrl("prefixes", scope), version);
  }

  /** Nobody looks. */
  stop(): void {
    this.#source.stop();
  }

  /** There is no scope. */
  clear(): void {
    this.#source.clear();
    this.#pane.tell("idle", "");
    this.#show(null, NOTHING);
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
