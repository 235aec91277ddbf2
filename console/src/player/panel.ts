// One player of the page: its video, state and figures, and curves of the last minute.
//
// Invariant: signals and samples of a replaced player are ignored, because each run has its own
// number.

import type { Format, Presentation } from "../choice";
import * as format from "../format";
import { el, setAttribute, setText } from "../ui/element";
import type { Engine, LibraryLoader, Sample } from "./engine";
import { loadDash } from "./dash";
import { HISTORY_S, HISTORY_STEP_MS, History } from "./history";
import { loadHls } from "./hls";
import { type Account, idle, type Phase, report, type Signal, step } from "./quality";
import { drawSparkline } from "./sparkline";

const PLAYERS: Record<Format, { library: string; label: string; load: LibraryLoader }> = {
  hls: { library: "hls.js", label: "HLS", load: loadHls },
  dash: { library: "dash.js", label: "DASH", load: loadDash },
};

/** Events of the media element that are quality signals. */
const SIGNALS = ["playing", "waiting", "play", "pause", "seeking", "seeked", "ended"] as const;

/** Minimum value at a curve's full height, in seconds. */
const CURVE_FLOOR_S = 2;

/** How long to show a failure from which the player has recovered. */
const TROUBLE_SHOWN_MS = 8000;

/** Phases with a frame on the screen. In other phases, no latency is shown. */
const SHOWING: readonly Phase[] = ["playing", "stalled", "seeking", "resuming", "paused"];

const NO_SAMPLE: Sample = { live_latency_s: null, estimate_bits_per_s: null, rendition: null };

/** The input of one run: what to play, and from where. */
interface Source {
  presentation: Presentation;
  /** The edge's base URL. */
  edge: string;
  now_ms(): number;
}

export class PlayerPanel {
  readonly element: HTMLElement;

  readonly #format: Format;
  readonly #video: HTMLVideoElement;
  readonly #state: HTMLElement;
  readonly #power: HTMLButtonElement;
  readonly #figures: Record<"latency" | "startup" | "stalls" | "bandwidth" | "rendition" | "buffer", HTMLElement>;
  readonly #curves: { latency: Curve; buffer: Curve };

  #run = 0;
  #engine: Engine | null = null;
  #source: Source | null = null;
  #account: Account = idle(performance.now());
  #on: boolean;
  #failure = "";
  #trouble: { message: string; until_ms: number } | null = null;

  /** `switched` is called when the viewer turns the player on or off. */
  constructor(which: Format, on: boolean, switched: (on: boolean) => void) {
    const { library, label } = PLAYERS[which];
    this.#format = which;
    this.#on = on;
    const id = (name: string) => ({ "data-testid": `${which}-${name}` });

    this.#video = el("video", { ...id("video"), playsinline: "" });
    // Set the property, because browsers read the attribute only while parsing a page.
    this.#video.muted = true;
    this.#state = el("span", { class: "state", role: "status", ...id("state") });
    this.#power = el("button", { type: "button", ...id("power") });
    this.#power.onclick = () => {
      this.#on = !this.#on;
      switched(this.#on);
      this.#restart();
    };
    const restart = el("button", { type: "button", title: "reload", ...id("restart") }, "Restart");
    restart.onclick = () => this.#restart();

    const figure = (name: string) => el("dd", id(name));
    this.#figures = {
      latency: figure("latency"),
      startup: figure("startup"),
      stalls: figure("stalls"),
      bandwidth: figure("bandwidth"),
      rendition: figure("rendition"),
      buffer: figure("buffer"),
    };
    this.#curves = { latency: new Curve("live latency"), buffer: new Curve("buffer") };

    const tile = (name: string, value: HTMLElement) => el("div", {}, el("dt", {}, name), value);
    this.element = el(
      "section",
      { class: "player", "aria-label": `${label}, ${library}`, "data-testid": which },
      el("header", {}, el("h2", {}, label), el("span", { class: "library" }, library), this.#state, restart, this.#power),
      el("div", { class: "screen" }, this.#video),
      el(
        "dl",
        { class: "figures" },
        tile("live latency", this.#figures.latency),
        tile("startup", this.#figures.startup),
        tile("stalls", this.#figures.stalls),
        tile("bandwidth", this.#figures.bandwidth),
        tile("rendition", this.#figures.rendition),
        tile("buffer", this.#figures.buffer),
      ),
      el("div", { class: "curves" }, this.#curves.latency.element, this.#curves.buffer.element),
    );

    for (const name of SIGNALS) this.#video.addEventListener(name, () => this.#signal(name));
    this.#video.addEventListener("error", () => this.#mediaFailed());
    this.#watchFrames();
    this.#showPower();
    // Load the library early. A failure is reported when the player starts.
    if (on) PLAYERS[which].load().catch(() => undefined);
  }

  get on(): boolean {
    return this.#on;
  }

  /** Plays `source` from now on; null stops playback. */
  play(source: Source | null): void {
    this.#source = source;
    this.#curves.latency.element.hidden = source?.presentation.kind !== "live";
    this.#restart();
  }

  /** Updates the figures. */
  show(): void {
    const now_ms = performance.now();
    const quality = report(this.#account, now_ms);
    const sample = this.#sample();
    const { latency, startup, stalls, bandwidth, rendition, buffer } = this.#figures;
    const buffer_s = this.#engine ? bufferAhead(this.#video) : null;

    figure(latency, format.seconds(sample.live_latency_s), sample.live_latency_s);
    figure(startup, format.millis(quality.startup_ms), quality.startup_ms);
    figure(stalls, this.#engine ? String(quality.stalls) : format.NONE, quality.stalls);
    setAttribute(stalls, "data-beside", quality.stalls > 0 ? format.millis(quality.stalled_ms) : null);
    setAttribute(stalls, "data-stalled-ms", quality.stalled_ms.toFixed(0));
    setAttribute(stalls, "data-alert", quality.stalls > 0 ? "" : null);
    const estimate = sample.estimate_bits_per_s;
    figure(bandwidth, estimate === null ? format.NONE : format.bitsPerS(estimate), estimate);
    const chosen = sample.rendition;
    figure(rendition, chosen ? `${chosen.height}p` : format.NONE, chosen?.height ?? null);
    setAttribute(rendition, "data-beside", chosen ? format.bitsPerS(chosen.bits_per_s) : null);
    figure(buffer, format.seconds(buffer_s, 1), buffer_s);
    this.#showState(quality.phase, now_ms);
  }

  /** Adds a sample to the curves and draws them; called every `HISTORY_STEP_MS`. */
  remember(): void {
    this.#curves.latency.push(this.#sample().live_latency_s);
    this.#curves.buffer.push(this.#engine ? bufferAhead(this.#video) : null);
  }

  #sample(): Sample {
    const sample = this.#engine?.sample() ?? NO_SAMPLE;
    return SHOWING.includes(this.#account.phase) ? sample : { ...sample, live_latency_s: null };
  }

  #restart(): void {
    this.#stop();
    this.#showPower();
    if (this.#on && this.#source) void this.#start(this.#source);
  }

  #stop(): void {
    this.#run += 1;
    this.#engine?.destroy();
    this.#engine = null;
    this.#video.controls = false;
    this.#video.removeAttribute("src");
    this.#video.load();
    this.#failure = "";
    this.#trouble = null;
    this.#account = idle(performance.now());
    this.#curves.latency.clear();
    this.#curves.buffer.clear();
  }

  async #start(source: Source): Promise<void> {
    const run = this.#run;
    try {
      // The figures measure delivery, so the clock starts only after the library has been loaded.
      const begin = await PLAYERS[this.#format].load();
      if (run !== this.#run) return;
      this.#video.controls = true;
      this.#signal("request");
      this.#engine = begin({
        video: this.#video,
        url: source.edge + source.presentation[this.#format],
        live: source.presentation.kind === "live",
        now_ms: source.now_ms,
        failed: (message) => run === this.#run && this.#fail(message),
        troubled: (message) => {
          if (run === this.#run) this.#trouble = { message, until_ms: performance.now() + TROUBLE_SHOWN_MS };
        },
      });
    } catch (error) {
      if (run === this.#run) this.#fail(error instanceof Error ? error.message : String(error));
    }
  }

  #signal(signal: Signal): void {
    this.#account = step(this.#account, signal, performance.now());
  }

  #fail(message: string): void {
    this.#failure = message;
    this.#signal("failure");
  }

  #mediaFailed(): void {
    // An element without a source also reports an error, which is not a playback failure.
    const message = this.#video.error?.message;
    if (this.#engine && message) this.#fail(message);
  }

  /**
   * Turns shown frames into signals. In browsers without frame callbacks, `playing` counts as the
   * first frame.
   */
  #watchFrames(): void {
    if (!("requestVideoFrameCallback" in this.#video)) {
      (this.#video as HTMLVideoElement).addEventListener("playing", () => this.#signal("frame"));
      return;
    }
    const shown = () => {
      this.#signal("frame");
      this.#video.requestVideoFrameCallback(shown);
    };
    this.#video.requestVideoFrameCallback(shown);
  }

  #showState(phase: Phase, now_ms: number): void {
    setText(this.#state, this.#on ? this.#stateInWords(phase, now_ms) : "off");
    setAttribute(this.#state, "data-phase", this.#on ? phase : "off");
    setAttribute(this.#state, "title", this.#failure || this.#trouble?.message || null);
  }

  #stateInWords(phase: Phase, now_ms: number): string {
    if (phase === "failed") return this.#failure;
    if (phase === "idle") return this.#source ? "loading" : "nothing to play";
    if (this.#trouble && now_ms < this.#trouble.until_ms) return `${phase}: ${this.#trouble.message}`;
    this.#trouble = null;
    const rate = this.#video.playbackRate;
    return phase === "playing" && rate !== 1 ? `playing × ${rate.toFixed(2)}` : phase;
  }

  #showPower(): void {
    setText(this.#power, this.#on ? "Turn off" : "Turn on");
    setAttribute(this.element, "data-off", this.#on ? null : "");
  }
}

/** A named curve and its current range. */
class Curve {
  readonly element: HTMLElement;
  readonly #history = new History();
  readonly #canvas = el("canvas");
  readonly #range = el("span", { class: "range" });

  constructor(name: string) {
    const caption = el("figcaption", {}, `${name}, last ${HISTORY_S} s`, this.#range);
    this.element = el("figure", {}, caption, this.#canvas);
  }

  push(value: number | null): void {
    this.#history.push(value);
    const range = this.#history.range();
    setText(this.#range, range ? `${range.min.toFixed(2)} – ${range.max.toFixed(2)} s` : "");
    drawSparkline(this.#canvas, this.#history, CURVE_FLOOR_S);
  }

  clear(): void {
    this.#history.clear();
  }
}

/** Shows a figure as text, with the plain value in an attribute for scripts. */
function figure(element: HTMLElement, words: string, value: number | null): void {
  setText(element, words);
  setAttribute(element, "data-value", value === null ? null : String(value));
}

/** Returns the seconds of media that can be played from the playhead without a gap. */
function bufferAhead({ buffered, currentTime }: HTMLVideoElement): number {
  for (let index = 0; index < buffered.length; index += 1) {
    if (buffered.start(index) <= currentTime && currentTime < buffered.end(index)) {
      return buffered.end(index) - currentTime;
    }
  }
  return 0;
}

export { HISTORY_STEP_MS };
