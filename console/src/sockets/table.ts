// Pure functions that filter, sort and summarize the displayed sockets, and draw their curves.

import type { Socket, SocketSample } from "../telemetry/api";
import type { Order } from "../ui/head";

/** Columns by which sockets can be sorted. */
export type SortKey = Exclude<keyof Socket, "history">;

export type Sort = Order<SortKey>;

/**
 * Returns the new order: names ascend and figures descend first; choosing the column again reverses
 * the order.
 */
export function resort(sort: Sort, key: SortKey): Sort {
  if (sort.key === key) return { key, descending: !sort.descending };
  return { key, descending: !["client", "prefix", "state", "congestion_control"].includes(key) };
}

/** Returns a sorted copy. Unknown values come last in both directions; the sort is stable. */
export function sorted(sockets: readonly Socket[], { key, descending }: Sort): Socket[] {
  return [...sockets].sort((one, other) => {
    const [a, b] = [one[key], other[key]];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    const order = typeof a === "number" && typeof b === "number" ? a - b : NAMES.compare(String(a), String(b));
    return descending ? -order : order;
  });
}

/** Compares numbers in names by value: 10.0.0.9 before 10.0.0.10. */
const NAMES = new Intl.Collator("en", { numeric: true });

/**
 * Returns the sockets whose network, addresses, congestion control or state contain every word of
 * `text`, ignoring case.
 */
export function matching(sockets: readonly Socket[], text: string): Socket[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return sockets.filter((socket) => {
    const all = haystack(socket);
    return words.every((word) => all.includes(word));
  });
}

function haystack({ client, local, prefix, asn, region, state, congestion_control, is_ended }: Socket): string {
  const network = [prefix, asn === null ? "" : `AS${asn}`, region ?? ""];
  return [client, local, ...network, state, congestion_control ?? "", is_ended ? "ended" : ""].join(" ").toLowerCase();
}

export interface Summary {
  open: number;
  ended: number;
  /** Total rate of the open sockets. */
  acked_bytes_per_s: number;
  /** Open sockets by congestion control, largest count first; null if unknown. */
  by_congestion_control: [string | null, number][];
}

export function summary(sockets: readonly Socket[]): Summary {
  const open = sockets.filter(({ is_ended }) => !is_ended);
  const counts = new Map<string | null, number>();
  for (const { congestion_control: name } of open) counts.set(name, (counts.get(name) ?? 0) + 1);
  return {
    open: open.length,
    ended: sockets.length - open.length,
    acked_bytes_per_s: open.reduce((sum, { acked_bytes_per_s }) => sum + (acked_bytes_per_s ?? 0), 0),
    by_congestion_control: [...counts].sort(([, a], [, b]) => b - a),
  };
}

/** Indices of the two curves in a socket's samples. */
export const RATE = 1;
export const RTT = 2;

/** View box of a curve, which has at most one point per unit of width. */
export const CURVE = { width: 100, height: 20 } as const;

/**
 * Returns the SVG path of a curve over the window that ends at `to_us`; empty without values. Zero
 * is at the bottom, the maximum near the top. Samples without a value make a gap; a value between
 * two gaps is a dot.
 */
export function curve(history: readonly SocketSample[], which: typeof RATE | typeof RTT, to_us: number, window_us: number): string {
  const points = [...greatest(history, which, to_us, window_us)];
  const max = Math.max(1, ...points.map(([, value]) => value ?? 0)) * 1.1;
  let drawing = false;
  const parts = points.map(([x, value]) => {
    const first = !drawing;
    drawing = value !== null;
    if (value === null) return "";
    const y = (CURVE.height * (1 - value / max)).toFixed(1);
    // Round caps make a line of zero length visible as a dot.
    return first ? `M${x} ${y}h0` : `L${x} ${y}`;
  });
  return parts.join("");
}

/** Returns the maximum value at each position of the curve that has samples, from the left. */
function greatest(history: readonly SocketSample[], which: typeof RATE | typeof RTT, to_us: number, window_us: number): Map<number, number | null> {
  const values = new Map<number, number | null>();
  for (const sample of history) {
    const x = Math.round(CURVE.width * Math.min(1, Math.max(0, 1 - (to_us - sample[0]) / window_us)));
    const [before, value] = [values.get(x) ?? null, sample[which]];
    values.set(x, value === null || before === null ? (value ?? before) : Math.max(before, value));
  }
  return values;
}
