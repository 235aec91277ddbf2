// The last minute of one figure, as equally spaced samples.

/** Length of a history, and the interval between its samples. */
export const HISTORY_S = 60;
export const HISTORY_STEP_MS = 500;
const SAMPLES_MAX = (HISTORY_S * 1000) / HISTORY_STEP_MS;

/** Up to `SAMPLES_MAX` samples, oldest first; null if the figure had no value. */
export class History {
  readonly #samples: (number | null)[] = [];

  push(value: number | null): void {
    this.#samples.push(value);
    if (this.#samples.length > SAMPLES_MAX) this.#samples.shift();
  }

  clear(): void {
    this.#samples.length = 0;
  }

  get samples(): readonly (number | null)[] {
    return this.#samples;
  }

  /** Maximum number of samples in a history. */
  get capacity(): number {
    return SAMPLES_MAX;
  }

  /** Returns the minimum and maximum value; null without values. */
  range(): { min: number; max: number } | null {
    const values = this.#samples.filter((value) => value !== null);
    return values.length > 0 ? { min: Math.min(...values), max: Math.max(...values) } : null;
  }
}
