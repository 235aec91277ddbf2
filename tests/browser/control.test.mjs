// Browser test of the console's control panel: trials start on networks, and the edge uses the
// bundle.

import assert from "node:assert/strict";
import { request } from "node:http";
import { after, before, it } from "node:test";

import { launch, openConsole, picture } from "./page.mjs";
import { startThalweg } from "./thalweg.mjs";

/** Networks with clients, one more than a bottom group needs. */
const NETWORKS = [1, 2, 3, 4, 5, 6];
/** Clients of a network. Each is a unit of a trial, so a trial needs many. */
const CLIENTS = 200;
/** Pause between two connections from a network. */
const PAUSE_MS = 20;
/** Network of one of the clients. */
const NETWORK = "127.0.3.0/24";

let thalweg;
let browser;

before(async () => {
  thalweg = await startThalweg({ agent: true, controller: true });
  browser = await launch();
});

after(async () => {
  await browser?.close();
  assert.equal(await thalweg?.stop(), 0);
});

/** Requests a segment that is large enough to be measured, on a new connection from `from`. */
function fetchFrom(from) {
  return new Promise((done, failed) => {
    const options = { localAddress: from, agent: false };
    const sent = request(`${thalweg.edge}/vod/sample/video_540/0.m4s`, options, (response) => {
      assert.equal(response.statusCode, 200);
      response.resume().on("end", done);
    });
    sent.on("error", failed).end();
  });
}

it("shows the networks on trial, the reason, and the edge's bundle", async () => {
  let isOver = false;
  const clients = NETWORKS.map(async (network) => {
    for (let client = 0; !isOver; client = (client + 1) % CLIENTS) {
      await fetchFrom(`127.0.${network}.${client + 1}`);
      await new Promise((passed) => setTimeout(passed, PAUSE_MS));
    }
  });
  try {
    const { page, complaints } = await openConsole(browser, `${thalweg.console}?play=vod:none&show=control`);
    const row = page.getByTestId("control-list").locator(`tr[data-prefix="${NETWORK}"][data-stage="on trial"]`);
    await row.getByRole("button").click();
    await page.getByTestId("control-said").filter({ hasText: "steered" }).waitFor();
    assert.match(page.url(), /prefix=127\.0\.3\.0\/24$/);
    const text = page.getByTestId("control-text");
    await text.filter({ hasText: /clients +[1-9]\d* steered, [1-9]\d* held out/ }).waitFor();
    assert.match(await text.textContent(), /^127\.0\.3\.0\/24: (slow|explored): steered/);
    // The edge of the same process has fetched its bundle and uses it.
    const edge = page.getByTestId("control-edges-list").locator("tr[data-edge]");
    await edge.filter({ has: page.locator(".has", { hasText: /^\d+$/ }) }).waitFor();
    // The panel draws the trials, the bars and lines of the rounds, and the effect with its
    // interval.
    const drawn = (testid, shape) => page.getByTestId(testid).locator(shape).first().waitFor({ state: "attached" });
    await drawn("control-scatter", "circle.trial");
    for (const bars of ["kept", "entered"]) await drawn("control-bars", `svg path.${bars}[d*="h"], svg path.${bars}[d*="H"]`);
    // Responses this small have no delivery rate.
    await drawn("control-goodput", 'path.line.steered[d*="L"]');
    await drawn("control-effect-goodput-within-the-network", "path.interval");
    // Select an older round to describe it.
    const description = page.getByTestId("control-round");
    const newest = await description.textContent();
    await page.getByTestId("control-bars").press("Home");
    await description.filter({ hasNotText: newest }).waitFor();
    await picture(page, "control");
    assert.deepEqual(complaints, []);
  } finally {
    isOver = true;
    await Promise.all(clients);
  }
});
