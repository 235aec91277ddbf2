// Player engine based on dash.js.

import type { MediaPlayerErrorEvent } from "dashjs";

import { type Engine, type LibraryLoader, type Sample, shortUrl, type Task } from "./engine";

/** Value of `LogLevel.LOG_LEVEL_NONE`, which exists only in the type declarations. */
const LOG_LEVEL_NONE = 0;

type Library = typeof import("dashjs");

export const loadDash: LibraryLoader = async () => {
  const dashjs = await import("dashjs");
  return (task) => start(dashjs, task);
};

function start(dashjs: Library, task: Task): Engine {
  const player = dashjs.MediaPlayer().create();
  player.updateSettings({
    debug: { logLevel: LOG_LEVEL_NONE },
    streaming: {
      // The MPD's ServiceDescription sets the latency target and limits.
      applyServiceDescription: true,
      liveCatchup: { enabled: true },
      buffer: { fastSwitchEnabled: true, bufferToKeep: 30 },
    },
  });
  player.initialize();
  // The MPD's UTCTiming names the edge's clock. By default, dash.js would also query a public time
  // server.
  player.clearDefaultUTCTimingSources();
  player.on(dashjs.MediaPlayer.events.ERROR, (event) => {
    const { code, message } = (event as MediaPlayerErrorEvent).error;
    // Before dash.js is ready, any error is fatal. Afterwards, dash.js retries after all errors but
    // these two.
    const { APPEND_ERROR_CODE, CAPABILITY_MEDIASOURCE_ERROR_CODE } = dashjs.MediaPlayer.errors;
    const fatal = !player.isReady() || code === APPEND_ERROR_CODE || code === CAPABILITY_MEDIASOURCE_ERROR_CODE;
    if (fatal) task.failed(inWords(message));
    else task.troubled(inWords(message));
  });
  player.setAutoPlay(true);
  player.attachView(task.video);
  player.attachSource(task.url);

  return {
    sample(): Sample {
      if (!player.isReady()) return { live_latency_s: null, estimate_bits_per_s: null, rendition: null };
      const latency_s = task.live ? player.getCurrentLiveLatency() : Number.NaN;
      const kbits_per_s = player.getAverageThroughput("video");
      const representation = player.getCurrentRepresentationForType("video");
      return {
        live_latency_s: Number.isFinite(latency_s) && latency_s > 0 ? latency_s : null,
        estimate_bits_per_s: Number.isFinite(kbits_per_s) && kbits_per_s > 0 ? kbits_per_s * 1000 : null,
        rendition: representation
          ? { height: representation.height, bits_per_s: representation.bandwidth }
          : null,
      };
    },
    destroy: () => player.destroy(),
  };
}

/** Shortens the URLs in dash.js's messages to their paths, and removes the final full stop. */
function inWords(message: string): string {
  return message.replace(/https?:\/\/[^\s"']+/g, shortUrl).replace(/[.\s]+$/, "");
}
