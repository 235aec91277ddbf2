// Figures by client network over the last minutes, from the edge's measurements and players'
// reports. Pure.

import type { ResponseRecord } from "../record";
import { percentile } from "../requests/totals";

/** Length of the response window. */
export const WINDOW_MS = 5 * 60_000;

/** Maximum responses kept; on a busy edge, this shortens the window. */
export const RESPONSES_MAX = 20_000;
/** Maximum weight of a response, as in the tables. */
const SAMPLE_ONE_IN_MAX = 1000;

/** The stored fields of a response. */
interface Response {
  at_ms: number;
  network: string;
  /**
   * Acknowledged bytes, and the time during which bytes were unacknowledged; both 0 if not
   * measured.
   */
  acked_bytes: number;
  busy_us: number;
  ttfb_us: number | null;
  rtt_us: number | null;
  delivery_bytes_per_s: number | null;
  cmcd: ResponseRecord["cmcd"];
  /** The session ID, or the player's address if it reports no session. */
  session: string;
  /** Number of responses for which this one stands, because the edge samples clients. */
  weight: number;
}

/** The figures of one network. Unknown values are null. */
export interface Network {
  /** A prefix: /24 for IPv4, /56 for IPv6. */
  name: string;
  /** Number of requests; an estimate if the edge samples clients, as are the sessions. */
  requests: number;
  /** Number of sessions that report CMCD, and number of those whose buffer ran empty. */
  sessions: number;
  sessions_starved: number;
  /** Share of player reports with an empty buffer, from 0 to 1. */
  starvation: number | null;
  /** Medians of the buffer length and throughput reported by players. */
  buffer_ms: number | null;
  throughput_kbps: number | null;
  /** Acknowledged bytes per second of busy time, over all measured responses. */
  goodput_bytes_per_s: number | null;
  /** Median of the kernel's delivery rate samples, including those limited by the application. */
  delivery_bytes_per_s: number | null;
  ttfb_us_p50: number | null;
  ttfb_us_p95: number | null;
  rtt_us_p50: number | null;
}

/** The latest responses, bounded in number and time. */
export class LastResponses {
  #responses: Response[] = [];

  push(record: ResponseRecord, now_ms: number): void {
    const { client, delivery, ttfb_us, tcp, cmcd, sample_one_in } = record;
    const network = networkOf(client);
    if (network === null) return;
    this.#responses.push({
      at_ms: now_ms,
      network,
      acked_bytes: delivery?.acked_bytes ?? 0,
      busy_us: delivery?.busy_us ?? 0,
      ttfb_us: ttfb_us ?? null,
      rtt_us: tcp?.rtt_us ?? null,
      delivery_bytes_per_s: tcp?.delivery_rate_bytes_per_s ?? null,
      cmcd,
      // Remove the port, because a player may use several connections.
      session: cmcd?.sid ?? client.replace(/:\d+$/, ""),
      weight: Math.min(sample_one_in ?? 1, SAMPLE_ONE_IN_MAX),
    });
    // Trim only at twice the limit, so that not every push moves the whole array.
    if (this.#responses.length >= 2 * RESPONSES_MAX) this.#responses.splice(0, this.#responses.length - RESPONSES_MAX);
  }

  /** Returns the figures of all networks, worst first, and the length of the window. */
  networks(now_ms: number): { networks: Network[]; since_ms: number } {
    const oldest_ms = now_ms - WINDOW_MS;
    this.#responses = this.#responses.slice(-RESPONSES_MAX).filter(({ at_ms }) => at_ms >= oldest_ms);
    const by_network = new Map<string, Response[]>();
    for (const response of this.#responses) {
      const those = by_network.get(response.network);
      if (those) those.push(response);
      else by_network.set(response.network, [response]);
    }
    const networks = [...by_network].map(([name, responses]) => figures(name, responses));
    return { networks: networks.sort(worstFirst), since_ms: now_ms - (this.#responses[0]?.at_ms ?? now_ms) };
  }
}

function figures(name: string, responses: readonly Response[]): Network {
  const reported = responses.filter(({ cmcd }) => cmcd !== undefined);
  const starved = reported.filter(({ cmcd }) => cmcd?.bs === true);
  const total = (weights: Iterable<number>) => [...weights].reduce((sum, weight) => sum + weight, 0);
  const count = (those: readonly Response[]) =>
    total(new Map(those.map(({ session, weight }) => [session, weight])).values());
  const measured = responses.filter(({ acked_bytes, busy_us }) => acked_bytes > 0 && busy_us > 0);
  const sum = (of: (response: Response) => number) => total(measured.map(of));
  const ttfb_us = sorted(responses, ({ ttfb_us }) => ttfb_us);
  return {
    name,
    requests: total(responses.map(({ weight }) => weight)),
    sessions: count(reported),
    sessions_starved: count(starved),
    starvation: reported.length > 0 ? starved.length / reported.length : null,
    buffer_ms: percentile(sorted(reported, ({ cmcd }) => cmcd?.bl_ms), 0.5),
    throughput_kbps: percentile(sorted(reported, ({ cmcd }) => cmcd?.mtp_kbps), 0.5),
    goodput_bytes_per_s:
      measured.length > 0 ? sum(({ acked_bytes }) => acked_bytes) / (sum(({ busy_us }) => busy_us) / 1e6) : null,
    delivery_bytes_per_s: percentile(sorted(responses, ({ delivery_bytes_per_s }) => delivery_bytes_per_s), 0.5),
    ttfb_us_p50: percentile(ttfb_us, 0.5),
    ttfb_us_p95: percentile(ttfb_us, 0.95),
    rtt_us_p50: percentile(sorted(responses, ({ rtt_us }) => rtt_us), 0.5),
  };
}

function sorted(responses: readonly Response[], of: (response: Response) => number | null | undefined): number[] {
  return responses.flatMap((response) => of(response) ?? []).sort((a, b) => a - b);
}

/** Orders networks by share of empty buffers, then by shorter buffers, then by more requests. */
function worstFirst(a: Network, b: Network): number {
  return (
    (b.starvation ?? 0) - (a.starvation ?? 0) ||
    (a.buffer_ms ?? Number.MAX_VALUE) - (b.buffer_ms ?? Number.MAX_VALUE) ||
    b.requests - a.requests
  );
}

/**
 * Returns the prefix of an address such as `192.0.2.7:50000` or `[2001:db8::7]:50000`; null for any
 * other text.
 */
export function networkOf(client: string): string | null {
  const four = /^(\d+\.\d+\.\d+)\.\d+:\d+$/.exec(client);
  if (four) return `${four[1]}.0/24`;
  const six = /^\[([0-9a-f:.]+)(?:%\w+)?\]:\d+$/.exec(client);
  const groups = six?.[1] === undefined ? null : firstGroups(six[1]);
  if (!groups) return null;
  // 56 bits: three groups and half of the fourth.
  const kept = [...groups.slice(0, 3), (groups[3] ?? 0) & 0xff00];
  while (kept.at(-1) === 0) kept.pop();
  return `${kept.map((group) => group.toString(16)).join(":")}::/56`;
}

/** Parses the first four groups of an IPv6 address in text form (RFC 4291, section 2.2). */
function firstGroups(address: string): number[] | null {
  const [before = "", after] = address.split("::");
  // A trailing IPv4 address fills two groups.
  const groups = (text: string) =>
    text === "" ? [] : text.split(":").flatMap((group) => (group.includes(".") ? [0, 0] : [Number.parseInt(group, 16)]));
  const [head, tail] = [groups(before), groups(after ?? "")];
  const zeros = after === undefined ? 0 : 8 - head.length - tail.length;
  const all = zeros < 0 ? [] : [...head, ...Array<number>(zeros).fill(0), ...tail];
  return all.length === 8 && !all.some(Number.isNaN) ? all.slice(0, 4) : null;
}
