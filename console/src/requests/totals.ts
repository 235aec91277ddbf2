// The latest requests, up to a limit, and their totals.

import type { CacheResult, ResponseRecord } from "../record";

/** Maximum number of records kept and shown. */
export const RECORDS_MAX = 100;

/** Records, newest first. */
export class LastRecords {
  #records: ResponseRecord[] = [];

  push(record: ResponseRecord): void {
    this.#records.unshift(record);
    if (this.#records.length > RECORDS_MAX) this.#records.length = RECORDS_MAX;
  }

  /** Returns the records whose path contains `part`, ignoring case. */
  matching(part: string): ResponseRecord[] {
    const wanted = part.trim().toLowerCase();
    return wanted ? this.#records.filter(({ path }) => path.toLowerCase().includes(wanted)) : [...this.#records];
  }
}

/** Totals over some records. */
export interface Totals {
  count: number;
  bytes: number;
  /** Share of requests that caused no fetch, from 0 to 1; null without records. */
  hit_ratio: number | null;
  ttfb_us_p50: number | null;
  ttfb_us_p99: number | null;
}

/** Cache results for which the request itself caused no fetch. */
const HITS: readonly CacheResult[] = ["hit", "join"];

export function totals(records: readonly ResponseRecord[]): Totals {
  const ttfb_us = records.flatMap((record) => record.ttfb_us ?? []).sort((a, b) => a - b);
  const hits = records.filter(({ cache }) => HITS.includes(cache)).length;
  return {
    count: records.length,
    bytes: records.reduce((sum, record) => sum + record.bytes, 0),
    hit_ratio: records.length > 0 ? hits / records.length : null,
    ttfb_us_p50: percentile(ttfb_us, 0.5),
    ttfb_us_p99: percentile(ttfb_us, 0.99),
  };
}

/**
 * Returns the nearest-rank percentile of sorted values: the smallest value that is at least as
 * large as a share `p` of all values.
 */
export function percentile(sorted: readonly number[], p: number): number | null {
  const rank = Math.max(1, Math.ceil(p * sorted.length));
  return sorted[rank - 1] ?? null;
}
