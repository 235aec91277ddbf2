// The console in a browser: opens it, watches players, and collects the browser's errors.

import { mkdir } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

const OUT = resolve(dirname(fileURLToPath(import.meta.url)), "../out");

/**
 * Flags for a silent, offline browser with an empty profile that may play without a click.
 */
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--autoplay-policy=no-user-gesture-required",
];

/** Interval between samples of a player. */
const LOOK_EVERY_MS = 250;

export function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
}

/** Number of latest requests kept per player, to explain why a player has stopped. */
const ASKED_MAX = 60;

/**
 * Opens the console. `complaints` collects all errors on the page; `asked` collects the requests of
 * each player.
 */
export async function openConsole(browser, url, { colorScheme = "light" } = {}) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme });
  const complaints = [];
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(`${message.text()} (${message.location().url})`);
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  const asked = { hls: [], dash: [] };
  page.on("response", (response) => {
    const { pathname } = new URL(response.url());
    // hls.js fetches with XMLHttpRequest, dash.js fetches media with fetch; MPDs are ignored.
    const last = { xhr: asked.hls, fetch: asked.dash }[response.request().resourceType()];
    if (!last || !/\.(m3u8|m4s|mp4)$/.test(pathname)) return;
    last.push(`${response.status()} ${pathname.split("/").slice(-2).join("/")}`);
    if (last.length > ASKED_MAX) last.shift();
  });
  await page.goto(url);
  return { page, complaints, asked };
}

/** Saves a screenshot to tests/out. */
export async function picture(page, name) {
  await mkdir(OUT, { recursive: true });
  await page.screenshot({ path: join(OUT, `${name}.png`) });
}

/** Waits for a player's first frame. */
export async function started(page, format, timeout_ms = 20_000) {
  const startup = page.locator(`[data-testid=${format}-startup][data-value]`);
  await startup.waitFor({ timeout: timeout_ms }).catch(async () => {
    throw new Error(`no first frame within ${timeout_ms} ms: ${await page.getByTestId(`${format}-state`).textContent()}`);
  });
}

/**
 * Samples a player until its playhead has advanced by `advance_s`, or for at most twice that time
 * plus 10 s. Returns one sample per `LOOK_EVERY_MS`: time, playhead, and the figures below the
 * player.
 */
export function watch(page, format, advance_s) {
  return page.evaluate(
    ({ format, advance_s, every_ms }) => {
      const find = (name) => document.querySelector(`[data-testid=${format}-${name}]`);
      const value = (name) => {
        const text = find(name).getAttribute("data-value");
        return text === null ? null : Number(text);
      };
      // Distinguishes a player that fetches nothing, one that appends nothing, and one that waits
      // at a gap.
      const element = ({ currentTime, buffered, readyState, seeking, paused }) => {
        const ranges = Array.from(buffered, (_, i) => `${buffered.start(i).toFixed(3)}-${buffered.end(i).toFixed(3)}`);
        const is = [seeking && "seeking", paused && "paused"].filter(Boolean);
        return [`at ${currentTime.toFixed(3)} s`, `ready ${readyState}`, ...is, `buffered ${ranges.join(" ")}`].join(", ");
      };
      const look = () => ({
        format,
        at_ms: performance.now(),
        playhead_s: find("video").currentTime,
        phase: find("state").getAttribute("data-phase"),
        state: find("state").textContent,
        latency_s: value("latency"),
        stalls: value("stalls"),
        stalled_ms: Number(find("stalls").getAttribute("data-stalled-ms")),
        height: value("rendition"),
        element: element(find("video")),
      });
      const first = look();
      const looks = [first];
      return new Promise((done) => {
        const timer = setInterval(() => {
          const now = look();
          looks.push(now);
          const advanced = now.playhead_s - first.playhead_s >= advance_s;
          const late = now.at_ms - first.at_ms > (advance_s * 2 + 10) * 1000;
          if (!advanced && !late && now.phase !== "failed" && now.phase !== "ended") return;
          clearInterval(timer);
          done(looks);
        }, every_ms);
      });
    },
    { format, advance_s, every_ms: LOOK_EVERY_MS },
  );
}
