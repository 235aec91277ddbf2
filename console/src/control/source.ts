// A resource that is requested once per URL and version.
//
// Invariant: the listener receives only results for the URL last passed to `requested`.

import { Poller } from "../telemetry/poller";

export interface Listener<Answer> {
  /** Called when a new URL is requested. Content shown until then belongs to the old URL. */
  requested(url: string): void;
  answered(answer: Answer): void;
  failed(message: string): void;
}

export class Source<Answer> {
  readonly #poller: Poller<Answer>;
  #url: string | null = null;
  #requested_version = "";
  #answered_version: string | null = null;
  #is_under_way = false;
  readonly #listener: Listener<Answer>;

  constructor(ask: (url: string, signal: AbortSignal) => Promise<Answer>, listener: Listener<Answer>) {
    this.#listener = listener;
    this.#poller = new Poller<Answer>({
      ask: (signal) => ask(this.#url ?? "", signal),
      answered: (answer) => {
        this.#is_under_way = false;
        this.#answered_version = this.#requested_version;
        listener.answered(answer);
      },
      failed: (message) => {
        this.#is_under_way = false;
        listener.failed(message);
      },
    });
  }

  /**
   * Requests the URL if the URL or the version is new. A pending request for an older version is
   * completed first; a failed request is repeated.
   */
  follow(url: string, version: string): void {
    const is_new = url !== this.#url;
    if (!is_new && (this.#is_under_way || version === this.#answered_version)) return;
    if (is_new) {
      this.#url = url;
      this.#answered_version = null;
      this.#listener.requested(url);
    }
    this.#requested_version = version;
    this.#is_under_way = true;
    this.#poller.start(null);
  }

  /** Cancels the pending request. The next `follow` continues. */
  stop(): void {
    this.#is_under_way = false;
    this.#poller.stop();
  }

  /** Cancels the pending request and clears the URL. */
  clear(): void {
    this.stop();
    this.#url = null;
  }
}
