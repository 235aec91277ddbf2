// What the page asks of a player, whichever library it is.

/** The rendition that is being loaded or shown. */
export interface Rendition {
  height: number;
  bits_per_s: number;
}

/** What a player knows of itself at one moment. */
export interface Sample {
  /** Wall clock minus the time of the frame at the playhead; null on demand. */
  live_latency_s: number | null;
  /** The player's estimate of the bandwidth; null before the first. */
  estimate_bits_per_s: number | null;
  rendition: Rendition | null;
}

/** A player at work on a media element, from its construction to `destroy`. */
export interface Engine {
  sample(): Sample;
  destroy(): void;
}

/** What an engine is made with. */
export interface Task {
  video: HTMLVideoElement;
  /** The multivariant playlist or the MPD. */
  url: string;
  live: boolean;
  /** The edge's time in ms since the Unix epoch. */
  now_ms(): number;
  /** A failure the player cannot get over, in words. */
  failed(message: string): void;
  /** A failure it goes on after, or tries to. */
  troubled(message: string): void;
}

/** Starts a player. Throws an `Error` with words for the viewer where it cannot. */
export type EngineStarter = (task: Task) => Engine;

/** Loads a player's library: once, however often it is asked for. */
export type LibraryLoader = () => Promise<EngineStarter>;

/** Path of an absolute URL, for a message that has no room for all of it. */
export function shortUrl(url: string | undefined): string {
  if (!url) return "";
  try {
    return new URL(url).pathname;
  } catch {
    return url;
  }
}
