// An answer that is asked for anew when there is a newer one: once for each address and version.
//
// Invariant: what is told is of the address that was told as asked last.

import { Poller } from "../telemetry/poller";

export interface Listener<Answer> {
  /** From now on all is about this address; what was shown is of another one. */
  asked(url: string): void;
  answered(answer: Answer): void;
  failed(message: string): void;
}

export class Source<Answer> {
  readonly #poller: Poller<Answer>;
  #url: string | null = null;
  #asked_version = "";
  #answered_version: string | null = null;
  #is_under_way = false;
  readonly #listener: Listener<Answer>;

  constructor(ask: (url: string, signal: AbortSignal) => Promise<Answer>, listener: Listener<Answer>) {
    this.#listener = listener;
    this.#poller = new Poller<Answer>({
      ask: (signal) => ask(this.#url ?? "", signal),
      answered: (answer) => {
        this.#is_under_way = false;
        this.#answered_version = this.#asked_version;
        listener.answered(answer);
      },
      failed: (message) => {
        this.#is_under_way = false;
        listener.failed(message);
      },
    });
  }

  /**
   * Asks if the address is another one, or its answer is of another version. One that is slower than versions come is waited
   * for, and one that failed is asked for again.
   */
  follow(url: string, version: string): void {
    const is_new = url !== this.#url;
    if (!is_new && (this.#is_under_way || version === this.#answered_version)) return;
    if (is_new) {
      this.#url = url;
      this.#answered_version = null;
      this.#listener.asked(url);
    }
    this.#asked_version = version;
    this.#is_under_way = true;
    this.#poller.start(null);
  }

  /** What is under way is given up. The next `follow` of a new version goes on. */
  stop(): void {
    this.#is_under_way = false;
    this.#poller.stop();
  }

  /** Forgets the address: there is nothing to ask. */
  clear(): void {
    this.stop();
    this.#url = null;
  }
}
