// Asks a question again and again while somebody looks at its answer.
//
// Invariants: there are never two requests at once; an answer to a question that was replaced reaches nobody.

/** How long an answer may take. */
const ANSWER_MS_MAX = 15_000;

export interface Asker<Answer> {
  ask(signal: AbortSignal): Promise<Answer>;
  answered(answer: Answer): void;
  /** It will be asked again if it was to be. */
  failed(message: string): void;
}

export class Poller<Answer> {
  readonly #asker: Asker<Answer>;
  #under_way: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(asker: Asker<Answer>) {
    this.#asker = asker;
  }

  /** Asks now, and then `every_ms` after each answer; null: only now. */
  start(every_ms: number | null): void {
    this.stop();
    const under_way = new AbortController();
    this.#under_way = under_way;
    void this.#run(under_way.signal, every_ms);
  }

  /** Whatever is under way is given up. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#under_way?.abort();
    this.#under_way = null;
  }

  async #run(stopped: AbortSignal, every_ms: number | null): Promise<void> {
    const late = AbortSignal.timeout(ANSWER_MS_MAX);
    const answer = await this.#asker.ask(AbortSignal.any([stopped, late])).then(
      (answer) => () => this.#asker.answered(answer),
      (error: unknown) => () => this.#asker.failed(late.aborted ? `no answer within ${ANSWER_MS_MAX / 1000} s` : message(error)),
    );
    if (stopped.aborted) return;
    if (every_ms !== null) this.#timer = setTimeout(() => void this.#run(stopped, every_ms), every_ms);
    answer();
  }
}

function message(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
