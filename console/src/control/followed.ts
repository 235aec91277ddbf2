// A pane that shows one of a scope's resources and requests it again when a newer version exists.

import { getJson } from "../api";
import { type Pane, type Phase, WAITING } from "./pane";
import { Source } from "./source";

export interface Content<Answer> {
  /** Text to show if the resource is empty. */
  readonly nothing: string;
  /** Shows the resource, or the text `nothing` if `answer` is null. */
  show(answer: Answer | null, nothing: string): void;
  /** Returns the pane's state for a resource. */
  state(answer: Answer): [Phase, string];
}

export class Followed<Answer> {
  readonly #pane: Pane;
  readonly #content: Content<Answer>;
  readonly #source: Source<Answer>;

  constructor(pane: Pane, content: Content<Answer>) {
    this.#pane = pane;
    this.#content = content;
    this.#source = new Source<Answer>(getJson, {
      requested: (url) => {
        content.show(null, WAITING);
        pane.setState("starting", "loading");
        pane.showRequest(url);
      },
      answered: (answer) => {
        content.show(answer, content.nothing);
        pane.setState(...content.state(answer));
      },
      failed: (message) => pane.setState("failed", message),
    });
    content.show(null, WAITING);
  }

  follow(url: string, version: string): void {
    this.#source.follow(url, version);
  }

  /** Stops updates while the panel is hidden. */
  stop(): void {
    this.#source.stop();
  }

  /** Shows that no scope is selected. */
  clear(): void {
    this.#source.clear();
    this.#pane.setState("idle", "");
    this.#content.show(null, this.#content.nothing);
  }
}
