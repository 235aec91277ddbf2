// Polls a resource while it is shown.
//
// Invariants: at most one request is in flight; replies to superseded requests are discarded.

/** Maximum time to wait for a reply. */
const ANSWER_MS_MAX = 15_000;

export interface Asker<Answer> {
  ask(signal: AbortSignal): Promise<Answer>;
  answered(answer: Answer): void;
  /** Reports a failed request. Polling continues. */
  failed(message: string): void;
}

export class Poller<Answer> {
  readonly #asker: Asker<Answer>;
  #pending: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(asker: Asker<Answer>) {
    this.#asker = asker;
  }

  /** Requests now, and again `every_ms` after each reply; if `every_ms` is null, only once. */
  start(every_ms: number | null): void {
    this.stop();
    const pending = new AbortController();
    this.#pending = pending;
    void this.#run(pending.signal, every_ms);
  }

  /** Cancels a pending request. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#pending?.abort();
    this.#pending = null;
  }

  async #run(stopped: AbortSignal, every_ms: number | null): Promise<void> {
    const late = AbortSignal.timeout(ANSWER_MS_MAX);
    const answer = await this.#asker.ask(AbortSignal.any([stopped, late])).then(
      (answer) => () => this.#asker.answered(answer),
      (error: unknown) => () => this.#asker.failed(late.aborted ? `no reply within ${ANSWER_MS_MAX / 1000} s` : message(error)),
    );
    if (stopped.aborted) return;
    if (every_ms !== null) this.#timer = setTimeout(() => void this.#run(stopped, every_ms), every_ms);
    answer();
  }
}

function message(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
