// Player engine based on hls.js.

import type { ErrorData } from "hls.js";

import { type Engine, type LibraryLoader, type Sample, shortUrl, type Task } from "./engine";

/** Maximum media errors per presentation from which hls.js may recover. */
const RECOVERIES_MAX = 2;

type Library = typeof import("hls.js").default;

export const loadHls: LibraryLoader = async () => {
  const { default: Hls } = await import("hls.js");
  return (task) => start(Hls, task);
};

function start(Hls: Library, task: Task): Engine {
  if (!Hls.isSupported()) throw new Error("this browser has no Media Source Extensions");

  const hls = new Hls({
    // CMAF needs no transmuxing, so a worker would be idle.
    enableWorker: false,
    // If playback has fallen behind the live edge, it catches up by playing slightly faster.
    maxLiveSyncPlaybackRate: 1.1,
    // Enough to show the buffer at work without keeping a whole film in memory.
    backBufferLength: 30,
  });
  let recoveries = 0;

  hls.on(Hls.Events.ERROR, (_event, data) => {
    if (!data.fatal) {
      // Stalls are counted from the media element's events instead.
      if (data.details !== Hls.ErrorDetails.BUFFER_STALLED_ERROR) task.troubled(inWords(data));
      return;
    }
    if (data.type === Hls.ErrorTypes.MEDIA_ERROR && recoveries < RECOVERIES_MAX) {
      recoveries += 1;
      const at_s = task.video.currentTime;
      hls.recoverMediaError();
      // hls.js 1.7.4 stops all loading after a fatal error (`error-controller`), and
      // `recoverMediaError` (`hls.ts`) does not restart loading that was stopped. Without this
      // call, a player at the live edge would never request another playlist.
      hls.startLoad(at_s);
      task.video.play().catch(() => undefined);
      return;
    }
    task.failed(inWords(data));
  });
  hls.on(Hls.Events.MANIFEST_PARSED, () => {
    // If the browser refuses to play, the media element stays paused, which the page shows.
    task.video.play().catch(() => undefined);
  });
  hls.loadSource(task.url);
  hls.attachMedia(task.video);

  return {
    sample(): Sample {
      const shown = hls.playingDate;
      const level = hls.levels[hls.currentLevel] ?? hls.levels[hls.loadLevel];
      return {
        live_latency_s: task.live && shown ? (task.now_ms() - shown.getTime()) / 1000 : null,
        estimate_bits_per_s: Number.isFinite(hls.bandwidthEstimate) ? hls.bandwidthEstimate : null,
        rendition: level ? { height: level.height, bits_per_s: level.bitrate } : null,
      };
    },
    destroy: () => hls.destroy(),
  };
}

/** Formats errors such as `manifestLoadError` as words, with status and path if known. */
function inWords(data: ErrorData): string {
  const words = data.details.replace(/([A-Z])/g, " $1").toLowerCase();
  const status = data.response?.code ? ` ${data.response.code}` : "";
  const path = shortUrl(data.url ?? data.frag?.url ?? data.response?.url);
  return `${words}${status}${path ? ` ${path}` : ""}`;
}
