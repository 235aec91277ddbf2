// Live sources pushed by ffmpeg: DASH and HLS objects, or one long PUT per CMAF track.
//
// Frames are small and the preset is the fastest, because the tests are about delivery and the
// browser needs the CPU.

import { spawn } from "node:child_process";
import { once } from "node:events";

const INPUT = [
  ...["-hide_banner", "-nostdin", "-loglevel", "warning"],
  ...["-re", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25"],
  ...["-re", "-f", "lavfi", "-i", "sine=440:sample_rate=48000"],
];
const VIDEO = [
  ...["-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-threads", "1", "-pix_fmt", "yuv420p"],
  ...["-b:v", "300k", "-bf", "0", "-g", "50", "-keyint_min", "50", "-sc_threshold", "0"],
];
const AUDIO = ["-c:a", "aac", "-b:a", "64k"];

/** Pushes MPD, playlists and segments, each as one PUT: 2 s segments of 0.5 s chunks. */
export function pushObjects({ origin, ingest }, channel) {
  const dash = [
    ...["-f", "dash", "-ldash", "1", "-streaming", "1", "-use_template", "1", "-use_timeline", "0"],
    ...["-seg_duration", "2", "-frag_type", "duration", "-frag_duration", "0.5", "-target_latency", "3"],
    ...["-utc_timing_url", `${origin}/time`, "-write_prft", "1", "-format_options", "movflags=cmaf"],
    ...["-adaptation_sets", "id=0,streams=v id=1,streams=a", "-window_size", "10", "-hls_playlist", "1"],
    ...["-method", "PUT", "-http_persistent", "0", "-ignore_io_errors", "1"],
  ];
  const url = `${ingest}/ingest/${channel}/live.mpd`;
  return push([...INPUT, "-map", "0:v", "-map", "1:a", ...VIDEO, ...AUDIO, ...dash, url]);
}

/** Pushes each track as one PUT for the channel's whole life, in chunks of 0.5 s. */
export function pushTracks({ ingest }, channel) {
  const cmaf = (name) => [
    ...["-f", "mp4", "-movflags", "+cmaf+empty_moov+default_base_moof+frag_keyframe", "-frag_duration", "500000"],
    ...["-write_prft", "wallclock", "-method", "PUT", `${ingest}/ingest/${channel}/Streams(${name})`],
  ];
  return push([
    ...INPUT,
    ...["-map", "0:v", ...VIDEO, ...cmaf("video.cmfv")],
    ...["-map", "1:a", ...AUDIO, ...cmaf("audio.cmfa")],
  ]);
}

function push(options) {
  const child = spawn("ffmpeg", options, { stdio: ["ignore", "inherit", "pipe"] });
  const log = [];
  child.stderr.setEncoding("utf8").on("data", (text) => log.push(text));
  return {
    log,
    get running() {
      return child.exitCode === null && child.signalCode === null;
    },
    /** Stops the source with the key `q`, so that ffmpeg sends pending data first. */
    async stop() {
      if (!this.running) return;
      const exited = once(child, "exit");
      child.kill("SIGINT");
      await exited;
    },
  };
}
