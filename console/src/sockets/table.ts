// Which sockets are shown, in which order, what they come to, and their curves. Pure.

import type { Socket, SocketSample } from "../telemetry/api";
import type { Order } from "../ui/head";

/** What can be sorted by. */
export type SortKey =
  | "client"
  | "prefix"
  | "state"
  | "congestion_control"
  | "rtt_us"
  | "min_rtt_us"
  | "snd_cwnd"
  | "delivery_rate_bytes_per_s"
  | "pacing_rate_bytes_per_s"
  | "acked_bytes_per_s"
  | "bytes_acked"
  | "retransmits"
  | "last_us";

export type Sort = Order<SortKey>;

/** Names go up from A, figures down from the greatest, unless chosen again. */
export function resort(sort: Sort, key: SortKey): Sort {
  if (sort.key === key) return { key, descending: !sort.descending };
  return { key, descending: !["client", "prefix", "state", "congestion_control"].includes(key) };
}

/** A copy in order. What is not known comes last either way; equals stay as they are. */
export function sorted(sockets: readonly Socket[], { key, descending }: Sort): Socket[] {
  return [...sockets].sort((one, other) => {
    const [a, b] = [one[key], other[key]];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    const order = typeof a === "number" && typeof b === "number" ? a - b : NAMES.compare(String(a), String(b));
    return descending ? -order : order;
  });
}

/** Numbers within names by their value: 10.0.0.9 before 10.0.0.10. */
const NAMES = new Intl.Collator("en", { numeric: true });

/** Those that have every word of `text` in their network, addresses, congestion control or state, in any case. */
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
  /** Of the open ones. */
  acked_bytes_per_s: number;
  /** Open ones by congestion control, the most first; null where it is not known. */
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

/** The two curves of a socket's samples. */
export const RATE = 1;
export const RTT = 2;

/** The box that curves are drawn in. A curve has a point at each whole unit of its width at most. */
export const CURVE = { width: 100, height: 20 } as const;

/**
 * The path of a curve (SVG) over the window that ends at `to_us`: zero at the foot, the greatest value near the top,
 * a gap where samples have no value. A value between two gaps is a dot. Empty without a value.
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
    // A line of no length is drawn by its round ends.
    return first ? `M${x} ${y}h0` : `L${x} ${y}`;
  });
  return parts.join("");
}

/** The greatest value at each place of the curve's width that has samples, from the left. */
function greatest(history: readonly SocketSample[], which: typeof RATE | typeof RTT, to_us: number, window_us: number): Map<number, number | null> {
  const values = new Map<number, number | null>();
  for (const sample of history) {
    const x = Math.round(CURVE.width * Math.min(1, Math.max(0, 1 - (to_us - sample[0]) / window_us)));
    const [before, value] = [values.get(x) ?? null, sample[which]];
    values.set(x, value === null || before === null ? (value ?? before) : Math.max(before, value));
  }
  return values;
}
