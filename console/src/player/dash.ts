// dash.js behind the page's idea of a player.

import type { MediaPlayerErrorEvent } from "dashjs";

import { type Engine, type LibraryLoader, type Sample, shortUrl, type Task } from "./engine";

/** `LogLevel.LOG_LEVEL_NONE`, a constant of the types alone. */
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
      // The target and the limits of latency are the MPD's, by its ServiceDescription.
      applyServiceDescription: true,
      liveCatchup: { enabled: true },
      buffer: { fastSwitchEnabled: true, bufferToKeep: 30 },
    },
  });
  player.initialize();
  // The clock is the edge's, named by the MPD's UTCTiming; dash.js would else ask a server of its makers' choice.
  player.clearDefaultUTCTimingSources();
  player.on(dashjs.MediaPlayer.events.ERROR, (event) => {
    const { code, message } = (event as MediaPlayerErrorEvent).error;
    // Before it is ready it has nothing to go on with; afterwards it tries again by itself, but for these two.
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

/** dash.js's messages are sentences with whole URLs; the host is known here. */
function inWords(message: string): string {
  return message.replace(/https?:\/\/[^\s"']+/g, shortUrl).replace(/[.\s]+$/, "");
}
