// The accounting of playback quality: startup time and stalls, from the signals of a media element. Pure: the time
// of each signal is given, in ms of a monotonic clock.
//
// Startup time: from the request to play to the first frame shown. Stall: the media element waits for data that
// neither a seek nor a pause of the viewer has made it wait for; it counts once started and ends when playing goes on.
//
// Invariant: time is counted as played or as stalled in the phases of that name alone, so they never overlap.

/** What a media element, or its player, reports. */
export type Signal =
  | "request" // play was asked for; begins a new account
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
  | "idle" // nothing was asked for
  | "starting" // asked for, nothing shown yet
  | "playing"
  | "stalled"
  | "seeking"
  | "paused"
  | "resuming" // after a pause or a seek, until playing goes on
  | "ended"
  | "failed";

/** One account, from a request on. */
export interface Account {
  phase: Phase;
  /** When the phase began. */
  since_ms: number;
  requested_ms: number;
  /** Null until the first frame; it stays null if the viewer paused before. */
  startup_ms: number | null;
  /** Stalls begun. */
  stalls: number;
  /** Of stalls that have ended. */
  stalled_ms: number;
  /** Of stretches of playing that have ended. */
  played_ms: number;
}

/** The figures at one moment, what is still going on included. */
export interface Report {
  phase: Phase;
  startup_ms: number | null;
  stalls: number;
  stalled_ms: number;
  played_ms: number;
}

/**
 * The transitions; a signal that is not named changes nothing. Three need a reason:
 * a seek in a stall does not end it, for players seek by themselves to get out of one;
 * in a seek, while paused and until playing goes on again, waiting is the viewer's doing;
 * a stall ends with `playing` and not with a frame, for the last frames before it may be shown after `waiting`.
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

/** An account in which nothing was asked for. */
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

/** The account after a signal. */
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

/** The figures now. */
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
