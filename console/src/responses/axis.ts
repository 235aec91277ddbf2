// Pure functions for the logarithmic axis shared by all TTFB distributions, and for the bars on the
// axis.
//
// Bucket b covers 2^(b/2) µs up to, but excluding, 2^((b+1)/2) µs: the axis is linear in buckets.

import * as format from "../format";
import type { TtfbGroup } from "../telemetry/api";

/** Minimum span, so that a single bucket does not fill the axis. */
const SPAN_MIN = 8;

export interface Axis {
  /** The first bucket, and the bucket after the last. */
  from: number;
  to: number;
}

/** Returns the axis for all groups, with one empty bucket on either side. */
export function axisOf(groups: readonly TtfbGroup[]): Axis {
  const buckets = groups.flatMap(({ buckets }) => buckets.map(([bucket]) => bucket));
  if (buckets.length === 0) return { from: 0, to: SPAN_MIN };
  const from = Math.max(0, Math.min(...buckets) - 1);
  return { from, to: Math.max(Math.max(...buckets) + 2, from + SPAN_MIN) };
}

/** Returns the position of a time on the axis, from 0 to 1. */
export function position({ from, to }: Axis, us: number): number {
  const at = (2 * Math.log2(Math.max(1, us)) - from) / (to - from);
  return Math.min(1, Math.max(0, at));
}

/** Returns the powers of ten on the axis. */
export function ticks(axis: Axis): { us: number; at: number; label: string }[] {
  const all = Array.from({ length: 16 }, (_, power) => 10 ** power);
  const within = all.filter((us) => 2 * Math.log2(us) >= axis.from && 2 * Math.log2(us) <= axis.to);
  return within.map((us) => ({ us, at: position(axis, us), label: tickLabel(us) }));
}

function tickLabel(us: number): string {
  if (us >= 1e6) return `${us / 1e6} s`;
  return us >= 1000 ? `${us / 1000} ms` : `${us} µs`;
}

/**
 * A bar: position and width on the axis, and height relative to the group's highest bar; each from
 * 0 to 1.
 */
export interface Bar {
  bucket: number;
  count: number;
  at: number;
  width: number;
  height: number;
}

export function bars({ from, to }: Axis, { buckets }: TtfbGroup): Bar[] {
  const most = Math.max(...buckets.map(([, count]) => count));
  return buckets.map(([bucket, count]) => ({
    bucket,
    count,
    at: (bucket - from) / (to - from),
    width: 1 / (to - from),
    height: count / most,
  }));
}

/** Returns the whole microseconds in a bucket: at least `min_us`, below `max_us`. */
export function bucketRange(bucket: number): { min_us: number; max_us: number } {
  // Bucket 0 also contains times below a microsecond.
  return { min_us: bucket === 0 ? 0 : Math.ceil(2 ** (bucket / 2)), max_us: Math.ceil(2 ** ((bucket + 1) / 2)) };
}

/** Returns the label of a bucket. */
export function bucketLabel(bucket: number): string {
  return `${format.micros(bucket === 0 ? 0 : 2 ** (bucket / 2))} to ${format.micros(2 ** ((bucket + 1) / 2))}`;
}
