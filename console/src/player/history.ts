// The last minute of a figure, as a ring of equally spaced samples. Pure.

/** How far back the curves reach, and how far apart their samples are. */
export const HISTORY_S = 60;
export const HISTORY_STEP_MS = 500;
const SAMPLES_MAX = (HISTORY_S * 1000) / HISTORY_STEP_MS;

/** Samples, oldest first; null where the figure had no value. At most `SAMPLES_MAX`. */
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

  /** How many samples a full ring has. */
  get capacity(): number {
    return SAMPLES_MAX;
  }

  /** The least and the greatest value; null without one. */
  range(): { min: number; max: number } | null {
    const values = this.#samples.filter((value) => value !== null);
    return values.length > 0 ? { min: Math.min(...values), max: Math.max(...values) } : null;
  }
}
