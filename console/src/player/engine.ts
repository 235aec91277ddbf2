// The interface of a player library.

/** The rendition being loaded or shown. */
export interface Rendition {
  height: number;
  bits_per_s: number;
}

/** A player's figures at one instant. */
export interface Sample {
  /** Wall clock minus the time of the shown frame; null for on-demand media. */
  live_latency_s: number | null;
  /** The player's bandwidth estimate; null before the first one. */
  estimate_bits_per_s: number | null;
  rendition: Rendition | null;
}

/** A player attached to a media element, from construction to `destroy`. */
export interface Engine {
  sample(): Sample;
  destroy(): void;
}

/** The input of an engine. */
export interface Task {
  video: HTMLVideoElement;
  /** The multivariant playlist or the MPD. */
  url: string;
  live: boolean;
  /** Returns the edge's clock, in ms since the Unix epoch. */
  now_ms(): number;
  /** Reports a failure from which the player cannot recover. */
  failed(message: string): void;
  /** Reports a failure from which the player has recovered. */
  troubled(message: string): void;
}

/** Starts a player. Throws an `Error` with a message for the viewer if it cannot. */
export type EngineStarter = (task: Task) => Engine;

/** Loads a player's library, at most once. */
export type LibraryLoader = () => Promise<EngineStarter>;

/** Returns the path of an absolute URL, for messages with little room. */
export function shortUrl(url: string | undefined): string {
  if (!url) return "";
  try {
    return new URL(url).pathname;
  } catch {
    return url;
  }
}
