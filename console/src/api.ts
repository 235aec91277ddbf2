// The shapes that the console server and the edge answer with, and the requests for them.
//
// Kept by hand beside their sources: the configuration and the stream of records are the console server's, the
// catalogue is the origin's, a record's JSON line is crates/record/src/wire.rs, schema version 1.

/** `GET /api/config` of the console server. */
export interface Config {
  /** Where browsers reach the edge: a port on the console's own host, or a whole URL if one is configured; null: there is none. */
  edge: { port: number } | { url: string } | null;
  version: string;
  /** Whether an agent of the same process keeps sockets and responses in SQLite, which can be asked. */
  telemetry: boolean;
  /** Whether a controller runs in the same process, which can be asked; absent: no. */
  control?: boolean;
}

/** A presentation on demand; `hls` and `dash` are absolute paths on the edge. */
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
  /** RFC 3339. */
  since: string;
}

/** A presentation that the origin cannot serve, and why. */
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

/** What the cache made of a request. */
export type CacheResult = "hit" | "join" | "miss" | "validated" | "stale" | "pass" | "purge" | "error";

/** One response of the edge. */
export interface ResponseRecord {
  v: number;
  /** RFC 3339 with milliseconds, UTC. */
  time: string;
  client: string;
  method: string;
  host: string;
  path: string;
  status: number;
  bytes: number;
  /** Absent if no byte of the response was sent. */
  ttfb_us?: number;
  duration_us: number;
  goodput_bytes_per_s: number;
  cache: CacheResult;
  /** Why that, in a word or a few. */
  detail?: string;
  /** Under a policy: the backend that was asked last. */
  backend?: string;
  protocol: string;
  complete: boolean;
  /** Why the response was not sent whole. */
  cut?: string;
  tcp?: TcpState;
  /** Absent if the player says nothing of this. */
  cmcd?: Cmcd;
  /** Under a policy: the number of the request, and how often it began again. */
  xid?: number;
  restarts?: number;
  /** What the policy logged of the request, in order. */
  lines?: { tag: string; text: string }[];
  /** Lines that found no room. */
  lines_lost?: number;
}

/** What the player said of itself with the request (CTA-5004). */
export interface Cmcd {
  sid?: string;
  /** Live, or on demand. */
  st?: "l" | "v";
  br_kbps?: number;
  bl_ms?: number;
  mtp_kbps?: number;
  bs?: boolean;
}

/** The kernel's view of the connection when the response ended. */
export interface TcpState {
  congestion_control: string;
  /** When the connection was accepted, before anybody decided. */
  congestion_control_start?: string;
  decider?: "default" | "rule" | "experiment" | "policy";
  rtt_us: number;
  min_rtt_us?: number;
  snd_cwnd: number;
  delivery_rate_bytes_per_s?: number;
  retransmits: number;
  lost: number;
  pacing_rate_bytes_per_s?: number;
}

/** Fails with what the server says of it, `{"error": …}`, if it says anything. */
export async function getJson<T>(url: string, signal: AbortSignal | null = null): Promise<T> {
  const response = await fetch(url, { cache: "no-store", signal });
  if (response.ok) return (await response.json()) as T;
  const said = (await response.json().catch(() => null)) as { error?: string } | null;
  throw new Error(said?.error ?? `${url}: ${response.status} ${response.statusText}`.trim());
}

export function fetchConfig(): Promise<Config> {
  return getJson("api/config");
}

/** The edge's base URL without a trailing slash, as a page at `location` reaches it; null: there is none. */
export function edgeUrl({ edge }: Config, location: { protocol: string; hostname: string }): string | null {
  if (!edge) return null;
  if ("url" in edge) return edge.url.replace(/\/+$/, "");
  return `${location.protocol}//${location.hostname}:${edge.port}`;
}

export function fetchCatalogue(edge: string): Promise<Catalogue> {
  return getJson(`${edge}/catalog.json`);
}

/**
 * How far this machine's clock is behind the edge's, in ms: add it to `Date.now()`. Half the round trip is allowed
 * for the way back; the truth is within that half. `GET /time` answers with UTC in ISO 8601.
 */
export async function fetchClockOffsetMs(edge: string): Promise<number> {
  const sent = performance.now();
  const response = await fetch(`${edge}/time`, { cache: "no-store" });
  if (!response.ok) throw new Error(`${edge}/time: ${response.status}`);
  const serverMs = Date.parse((await response.text()).trim());
  if (Number.isNaN(serverMs)) throw new Error(`${edge}/time: not a time`);
  return serverMs + (performance.now() - sent) / 2 - Date.now();
}

/** What the stream of records tells its listener. */
export interface RecordListener {
  record(record: ResponseRecord): void;
  /** So many records were left out because this page was too slow for them. */
  lost(count: number): void;
  /** Whether the stream is up; the browser reconnects by itself. */
  connected(up: boolean): void;
}

/** Follows the records until the page goes. A line that is not a record is left out. */
export function followRecords(listeners: readonly RecordListener[]): void {
  const source = new EventSource("api/records");
  const tell = (what: (listener: RecordListener) => void) => listeners.forEach(what);
  source.onopen = () => tell((listener) => listener.connected(true));
  source.onerror = () => tell((listener) => listener.connected(false));
  source.onmessage = (event: MessageEvent<string>) => {
    const record = parseRecord(event.data);
    if (record) tell((listener) => listener.record(record));
  };
  source.addEventListener("lost", (event: MessageEvent<string>) => {
    const { count } = JSON.parse(event.data) as { count: number };
    tell((listener) => listener.lost(count));
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
