// Browser tests of playback through the edge: a media file and live sources.
//
// Latency tests run one player at a time: two would share the remaining CPU.

import assert from "node:assert/strict";
import { after, afterEach, before, describe, it } from "node:test";

import { pushObjects, pushTracks } from "./ffmpeg.mjs";
import { launch, openConsole, picture, started, watch } from "./page.mjs";
import { BROKEN, startThalweg } from "./thalweg.mjs";

/** Duration of media to play without a stall. */
const PLAYED_S = 20;

/** Maximum latency on loopback, and length of the final period in which it must not be exceeded. */
const DASH_LATENCY_S_MAX = 3;
const LATENCY_HELD_S = 15;

/**
 * Time for the latency to settle. On a busy machine, a player's clock may fall behind; the player
 * then catches up by at most 40 ms per second (PlaybackRate in the MPD).
 */
const LATENCY_SETTLED_S_MAX = 90;

/**
 * Maximum latency of HLS with whole segments: three 2 s segments behind the live edge, the segment
 * being produced, and 2 s of margin.
 */
const HLS_LATENCY_S_MAX = 10;

/**
 * Maximum time for open players to resume once a returned source is playable; the MPD is fetched
 * every 2 s.
 */
const RESUMED_MS_MAX = 8000;

/** Maximum latency that the MPD allows if a player cannot reach its target. */
const DASH_LATENCY_LIMIT_S = 4.5;

/** Seconds of media to play: more than an HLS player has buffered when the source returns. */
const AFTER_HLS_S = 10;

let thalweg;
let browser;
let open = null;

before(async () => {
  thalweg = await startThalweg();
  browser = await launch();
});

after(async () => {
  await browser?.close();
  const status = await thalweg?.stop();
  assert.equal(status, 0, `thalweg did not end cleanly:\n${thalweg?.log.join("\n")}`);
});

/** Closes the page opened by a test, and asserts that it logged no error. */
afterEach(async () => {
  const { page, complaints } = open ?? {};
  open = null;
  await page?.close();
  assert.deepEqual(complaints ?? [], []);
});

async function openPage(query, options) {
  open = await openConsole(browser, thalweg.console + query, options);
  return open.page;
}

/** Asserts that enough media was played and no stall was counted. */
function assertPlayed(looks) {
  const [first, last] = [looks[0], looks.at(-1)];
  const advanced_s = last.playhead_s - first.playhead_s;
  const progress = `${last.state} after ${advanced_s.toFixed(2)} s of media in ${((last.at_ms - first.at_ms) / 1000).toFixed(2)} s`;
  assert.ok(advanced_s >= PLAYED_S, progress);
  assert.equal(last.stalls, 0, `${last.stalls} stalls, ${last.stalled_ms} ms: ${progress}`);
}

/** Returns whether the latency stayed below the limit during the last `LATENCY_HELD_S`. */
function isLatencyHeld(looks, latency_s_max) {
  const end_ms = looks.at(-1).at_ms;
  const held = looks.filter(({ at_ms }) => end_ms - at_ms <= LATENCY_HELD_S * 1000);
  assert.ok(held.length > LATENCY_HELD_S, `only ${held.length} samples`);
  return held.every(({ latency_s }) => latency_s !== null && latency_s > 0 && latency_s < latency_s_max);
}

/** Watches until the latency has settled. */
async function settled(page, looks, isSettled) {
  while (!isSettled()) {
    const watched_s = (looks.at(-1).at_ms - looks[0].at_ms) / 1000;
    assert.ok(watched_s < LATENCY_SETTLED_S_MAX, latencies(looks));
    looks.push(...(await watch(page, looks[0].format, 1)));
  }
}

function latencies(looks) {
  return `live latency: ${looks.map(({ latency_s }) => latency_s?.toFixed(2) ?? "none").join(" ")}`;
}

function latencyRange(looks) {
  const values = looks.flatMap(({ latency_s }) => latency_s ?? []);
  return `live latency ${Math.min(...values).toFixed(2)} to ${Math.max(...values).toFixed(2)} s`;
}

/** Plays a channel with one player and reports its latency. */
async function playLive(test, channel, format, latency_s_max) {
  const page = await openPage(`?play=live:${channel}&only=${format}`);
  await started(page, format);
  const looks = await watch(page, format, PLAYED_S);
  await settled(page, looks, () => isLatencyHeld(looks, latency_s_max));
  assertPlayed(looks);
  await picture(page, `live-${channel}-${format}`);
  test.diagnostic(latencyRange(looks));
}

describe("on demand", () => {
  it("plays as HLS and as DASH", async () => {
    const page = await openPage("?play=vod:sample");
    await Promise.all([started(page, "hls"), started(page, "dash")]);
    const [hls, dash] = await Promise.all([watch(page, "hls", PLAYED_S), watch(page, "dash", PLAYED_S)]);
    await picture(page, "vod-sample");
    assertPlayed(hls);
    assertPlayed(dash);
  });
});

describe("the sample as a live channel", () => {
  it("plays as low-latency DASH", (test) => playLive(test, "demo", "dash", DASH_LATENCY_S_MAX));
  it("plays as HLS", (test) => playLive(test, "demo", "hls", HLS_LATENCY_S_MAX));
});

for (const [form, channel, push] of [
  ["objects", "objects", pushObjects],
  ["one long track each", "tracks", pushTracks],
]) {
  describe(`a channel that ffmpeg pushes as ${form}`, () => {
    let source;
    before(() => {
      source = push(thalweg, channel);
    });
    after(async () => {
      const running = source.running;
      await source.stop();
      assert.ok(running, `ffmpeg ended early:\n${source.log.join("")}`);
    });
    it("plays as low-latency DASH", (test) => playLive(test, channel, "dash", DASH_LATENCY_S_MAX));
    it("plays as HLS", (test) => playLive(test, channel, "hls", HLS_LATENCY_S_MAX));
  });
}

for (const [away_s, form, push] of [
  [1, "one long track each", pushTracks],
  [5, "objects", pushObjects],
  [20, "one long track each", pushTracks],
]) {
  describe(`a source of ${form} that pauses for ${away_s} s and restarts at zero`, () => {
    const channel = `away${away_s}`;
    let source;
    before(() => {
      source = push(thalweg, channel);
    });
    after(() => source.stop());
    it("keeps open players playing, and a new one", async () => {
      const page = await openPage(`?play=live:${channel}`);
      await Promise.all([started(page, "hls"), started(page, "dash")]);
      await watch(page, "dash", 4);
      assert.deepEqual(open.complaints, []);
      await source.stop();
      await new Promise((passed) => setTimeout(passed, away_s * 1000));
      source = push(thalweg, channel);
      const resumed_s = await secondPeriod(channel);
      // The playhead of dash.js is media time, which starts with the channel.
      const dash = playhead(page, "dash", resumed_s + 1, RESUMED_MS_MAX);
      const hls = watch(page, "hls", AFTER_HLS_S);
      await Promise.all([dash, hls]);
      dropMissingSegments(open.complaints);
      assertAdvanced(await hls, AFTER_HLS_S);
      const looks = await watch(page, "dash", 5);
      assertAdvanced(looks, 5);
      assert.ok(looks.at(-1).latency_s <= DASH_LATENCY_LIMIT_S, `${looks.at(-1).latency_s} s behind live`);

      await page.goto(`${thalweg.console}?play=live:${channel}&only=dash`);
      await started(page, "dash", 5_000);
      const fresh = await watch(page, "dash", 5);
      assertAdvanced(fresh, 5);
      await settled(page, fresh, () => fresh.at(-1).latency_s <= DASH_LATENCY_S_MAX);
      assert.equal(fresh.at(-1).stalls, 0);
    });
  });
}

/** Drops errors about segments that the source did not produce while it was away. */
function dropMissingSegments(complaints) {
  const others = complaints.filter((complaint) => !/404 .*\/live\/.*\.m4s\)$/.test(complaint));
  complaints.splice(0, complaints.length, ...others);
}

/** Waits until the channel's MPD has a second Period; returns its start in seconds. */
async function secondPeriod(channel) {
  const give_up = Date.now() + 20_000;
  while (Date.now() < give_up) {
    const mpd = await (await fetch(`${thalweg.origin}/live/${channel}/manifest.mpd`)).text();
    const start = mpd.match(/<Period id="1" start="PT([0-9.]+)S"/);
    if (start) return Number(start[1]);
    await new Promise((passed) => setTimeout(passed, 100));
  }
  throw new Error(`the source of ${channel} did not return`);
}

/** Waits until a player's playhead is past `at_s`. */
function playhead(page, format, at_s, timeout) {
  const passed = ([format, at_s]) => document.querySelector(`[data-testid=${format}-video]`).currentTime > at_s;
  return page.waitForFunction(passed, [format, at_s], { timeout, polling: 100 });
}

function assertAdvanced(looks, by_s) {
  const advanced_s = looks.at(-1).playhead_s - looks[0].playhead_s;
  const progress = `${looks.at(-1).state} after ${advanced_s.toFixed(2)} s of media`;
  const { format } = looks[0];
  assert.ok(advanced_s >= by_s, `${format} ${progress}:\n${story(looks)}\nlast fetched: ${open.asked[format].join(", ")}`);
}

/**
 * Returns a player's history: the first and last sample, and each sample with a new state or with a
 * playhead that jumped back.
 */
function story(looks) {
  const doing = ({ state }) => state.replace(/ × .*/, "");
  const turns = looks.filter((now, i) => {
    const before = looks[i - 1];
    return !before || i === looks.length - 1 || doing(now) !== doing(before) || now.playhead_s < before.playhead_s;
  });
  const since_s = ({ at_ms }) => ((at_ms - looks[0].at_ms) / 1000).toFixed(2);
  return turns.map((look) => `${since_s(look)} s: ${look.state}, ${look.element}`).join("\n");
}

describe("the console", () => {
  it("shows requests live", async () => {
    const page = await openPage("?play=vod:sample&only=hls");
    await started(page, "hls");
    const rows = page.getByTestId("records").locator("tr");
    const playlist = rows.filter({ hasText: "/vod/sample/master.m3u8" }).first();
    await playlist.waitFor();
    // The congestion control is shown under the kernel's name for it, as read from the socket.
    assert.match(await playlist.locator(".cc").textContent(), /^[a-z][a-z0-9_]*$/);
    assert.match(await playlist.locator(".cache").textContent(), /^(hit|join|miss|validated)$/);
    assert.equal(await playlist.locator(".status").textContent(), "200");

    await page.getByTestId("records-filter").fill("master.m3u8");
    assert.equal(await rows.filter({ hasNotText: "master.m3u8" }).count(), 0);
    await page.getByTestId("records-pause").click();
    const paused = await rows.count();
    const again = page.waitForResponse((response) => response.url().endsWith("/master.m3u8"));
    await page.getByTestId("hls-restart").click();
    await again;
    await page.getByTestId("records-state").filter({ hasText: "since" }).waitFor();
    assert.equal(await rows.count(), paused);
  });

  it("lists broken presentations, and switches between presentations", async () => {
    const page = await openPage("?only=hls");
    await page.getByTestId("faults").click();
    assert.match(await page.getByTestId("faults").locator("li").textContent(), new RegExp(`^${BROKEN} .*video\\.mp4`));
    await page.getByTestId("choice").selectOption("vod:sample");
    assert.match(page.url(), /\?play=vod:sample&only=hls$/);
    await started(page, "hls");
    assert.equal(await page.getByTestId("link-dash").getAttribute("href"), `${thalweg.edge}/vod/sample/manifest.mpd`);
  });

  it("follows the system's colour scheme, and fits a 1280 by 800 window", async () => {
    const grounds = [];
    for (const colorScheme of ["light", "dark"]) {
      const page = await openPage("?play=live:demo", { colorScheme });
      await Promise.all([started(page, "hls"), started(page, "dash")]);
      // Let the curves grow for some seconds, for the screenshot.
      await watch(page, "dash", 8);
      await picture(page, `console-${colorScheme}`);
      grounds.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
      const overflow = await page.evaluate(() => document.documentElement.scrollHeight - innerHeight);
      assert.ok(overflow <= 0, `${overflow} px below the fold`);
      assert.deepEqual(open.complaints, []);
      await page.close();
    }
    const [light, dark] = grounds.map((ground) => Math.max(...ground.match(/\d+/g).slice(0, 3).map(Number)));
    assert.ok(light > 200 && dark < 60, grounds.join(" "));
  });
});
