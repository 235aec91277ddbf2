// Playback quality: startup time and stalls, from the signals of a media element. Uses no clock of
// its own: each signal carries its time, in ms of a monotonic clock.
//
// Startup time runs from the request to play to the first frame shown. A stall is a wait for data
// not caused by the viewer seeking or pausing. It is counted when it starts, and ends when playback
// continues.
//
// Invariant: time counts as played or stalled only in the phases of that name, so the two never
// overlap.

/** Events of a media element or its player. */
export type Signal =
  | "request" // play was requested; starts new metrics
  | "frame" // a frame was shown
  | "playing"
  | "waiting"
  | "play"
  | "pause"
  | "seeking"
  | "seeked"
  | "ended"
  | "failure";

export type Phase =
  | "idle" // nothing requested
  | "starting" // requested, nothing shown yet
  | "playing"
  | "stalled"
  | "seeking"
  | "paused"
  | "resuming" // after a pause or a seek, until playback continues
  | "ended"
  | "failed";

/** Metrics of one playback, from the request on. */
export interface Account {
  phase: Phase;
  /** Time at which the phase started. */
  since_ms: number;
  requested_ms: number;
  /** Startup time; null before the first frame, and if the viewer paused before it. */
  startup_ms: number | null;
  /** Number of stalls started. */
  stalls: number;
  /** Duration of finished stalls. */
  stalled_ms: number;
  /** Duration of playback before the current phase. */
  played_ms: number;
}

/** The figures at one instant, including the current phase. */
export interface Report {
  phase: Phase;
  startup_ms: number | null;
  stalls: number;
  stalled_ms: number;
  played_ms: number;
}

/**
 * Transitions between phases; signals not listed change nothing. Three rules are not obvious. A
 * seek does not end a stall, because players seek on their own to escape from one. While seeking,
 * paused or resuming, `waiting` is caused by the viewer and is not a stall. A stall ends at
 * `playing` rather than at the next frame, because frames decoded earlier may still be shown after
 * `waiting`.
 */
const NEXT: Record<Phase, Partial<Record<Signal, Phase>>> = {
  idle: {},
  starting: { frame: "playing", pause: "paused", failure: "failed" },
  playing: { waiting: "stalled", pause: "paused", seeking: "seeking", ended: "ended", failure: "failed" },
  stalled: { playing: "playing", pause: "paused", ended: "ended", failure: "failed" },
  seeking: { seeked: "resuming", pause: "paused", ended: "ended", failure: "failed" },
  resuming: { frame: "playing", playing: "playing", pause: "paused", seeking: "seeking", ended: "ended", failure: "failed" },
  paused: { play: "resuming", ended: "ended", failure: "failed" },
  ended: { play: "resuming", seeking: "seeking", failure: "failed" },
  failed: {},
};

/** Returns metrics before any request. */
export function idle(now_ms: number): Account {
  return {
    phase: "idle",
    since_ms: now_ms,
    requested_ms: now_ms,
    startup_ms: null,
    stalls: 0,
    stalled_ms: 0,
    played_ms: 0,
  };
}

/** Returns the metrics after a signal. */
export function step(account: Account, signal: Signal, now_ms: number): Account {
  if (signal === "request") return { ...idle(now_ms), phase: "starting" };
  const phase = NEXT[account.phase][signal];
  if (phase === undefined) return account;

  const { stalled_ms, played_ms } = report(account, now_ms);
  const first = account.phase === "starting" && phase === "playing";
  return {
    phase,
    since_ms: now_ms,
    requested_ms: account.requested_ms,
    startup_ms: first ? now_ms - account.requested_ms : account.startup_ms,
    stalls: account.stalls + (phase === "stalled" ? 1 : 0),
    stalled_ms,
    played_ms,
  };
}

/** Returns the figures at `now_ms`. */
export function report(account: Account, now_ms: number): Report {
  const running_ms = Math.max(0, now_ms - account.since_ms);
  return {
    phase: account.phase,
    startup_ms: account.startup_ms,
    stalls: account.stalls,
    stalled_ms: account.stalled_ms + (account.phase === "stalled" ? running_ms : 0),
    played_ms: account.played_ms + (account.phase === "playing" ? running_ms : 0),
  };
}
