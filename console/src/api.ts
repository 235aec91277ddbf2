// Types and requests of the console server and the edge.
//
// These types are kept in sync by hand with the console server (configuration, record stream) and
// the origin (catalogue). The record type in record.ts is generated.

import type { ResponseRecord } from "./record";

/** `GET /api/config` of the console server. */
export interface Config {
  /**
   * The edge's address for browsers: a port on the console's host, or a configured URL; null if
   * there is no edge.
   */
  edge: { port: number } | { url: string } | null;
  version: string;
  /** Whether an agent in the same process stores sockets and responses in SQLite for queries. */
  telemetry: boolean;
  /** Whether a controller runs in the same process; false if absent. */
  control?: boolean;
}

/** An on-demand presentation; `hls` and `dash` are absolute paths on the edge. */
export interface OnDemand {
  name: string;
  hls: string;
  dash: string;
  duration_s: number;
}

/** A live channel. */
export interface LiveChannel {
  name: string;
  hls: string;
  dash: string;
  /** Start of the channel, in RFC 3339 format. */
  since: string;
}

/** A presentation that the origin cannot serve, and the reason. */
export interface Fault {
  name: string;
  message: string;
}

/** `GET /catalog.json` of the origin, through the edge. */
export interface Catalogue {
  vod: OnDemand[];
  live: LiveChannel[];
  faults?: Fault[];
}

/**
 * Fetches JSON. On failure, throws the message in the server's `{"error": …}`, or the status if
 * there is no message.
 */
export async function getJson<T>(url: string, signal: AbortSignal | null = null): Promise<T> {
  const response = await fetch(url, { cache: "no-store", signal });
  if (response.ok) return (await response.json()) as T;
  const body = (await response.json().catch(() => null)) as { error?: string } | null;
  throw new Error(body?.error ?? `${url}: ${response.status} ${response.statusText}`.trim());
}

export function fetchConfig(): Promise<Config> {
  return getJson("api/config");
}

/**
 * Returns the edge's base URL without a trailing slash, for a page at `location`; null if there is
 * no edge.
 */
export function edgeUrl({ edge }: Config, location: { protocol: string; hostname: string }): string | null {
  if (!edge) return null;
  if ("url" in edge) return edge.url.replace(/\/+$/, "");
  return `${location.protocol}//${location.hostname}:${edge.port}`;
}

export function fetchCatalogue(edge: string): Promise<Catalogue> {
  return getJson(`${edge}/catalog.json`);
}

/**
 * Returns the edge's clock minus this machine's, in ms, to add to `Date.now()`. Assumes that the
 * response takes half the round trip, so the error is at most half the round trip. `GET /time`
 * returns UTC in ISO 8601.
 */
export async function fetchClockOffsetMs(edge: string): Promise<number> {
  const sent = performance.now();
  const response = await fetch(`${edge}/time`, { cache: "no-store" });
  if (!response.ok) throw new Error(`${edge}/time: ${response.status}`);
  const serverMs = Date.parse((await response.text()).trim());
  if (Number.isNaN(serverMs)) throw new Error(`${edge}/time: not a time`);
  return serverMs + (performance.now() - sent) / 2 - Date.now();
}

/** Receives events from the record stream. */
export interface RecordListener {
  record(record: ResponseRecord): void;
  /** Reports that the server dropped this many records because the page was too slow. */
  lost(count: number): void;
  /** Reports whether the stream is connected; the browser reconnects automatically. */
  connected(up: boolean): void;
}

/** Follows the record stream until the page closes. Lines that are not records are skipped. */
export function followRecords(listeners: readonly RecordListener[]): void {
  const source = new EventSource("api/records");
  const notify = (event: (listener: RecordListener) => void) => listeners.forEach(event);
  source.onopen = () => notify((listener) => listener.connected(true));
  source.onerror = () => notify((listener) => listener.connected(false));
  source.onmessage = (event: MessageEvent<string>) => {
    const record = parseRecord(event.data);
    if (record) notify((listener) => listener.record(record));
  };
  source.addEventListener("lost", (event: MessageEvent<string>) => {
    const { count } = JSON.parse(event.data) as { count: number };
    notify((listener) => listener.lost(count));
  });
}

function parseRecord(line: string): ResponseRecord | undefined {
  try {
    const value = JSON.parse(line) as Partial<ResponseRecord> | null;
    const is_record = [value?.path, value?.time, value?.client].every((field) => typeof field === "string");
    return is_record ? (value as ResponseRecord) : undefined;
  } catch {
    return undefined;
  }
}
