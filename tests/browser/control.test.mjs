// What a controller decides, looked at in the console: client networks are tried, and the edge goes by it.

import assert from "node:assert/strict";
import { request } from "node:http";
import { after, before, it } from "node:test";

import { launch, openConsole, picture } from "./page.mjs";
import { startThalweg } from "./thalweg.mjs";

/** Clients, each of a network of its own: as many as a bottom group needs, and one. */
const CLIENTS = [1, 2, 3, 4, 5, 6].map((network) => `127.0.${network}.1`);
/** Between two connections of a client. */
const PAUSE_MS = 20;
/** One of them. */
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

/** A client at this address of loopback asks for something, on a connection of its own. */
function ask(from) {
  return new Promise((done, failed) => {
    const options = { localAddress: from, agent: false };
    const asked = request(`${thalweg.edge}/vod/sample/manifest.mpd`, options, (response) => {
      assert.equal(response.statusCode, 200);
      response.resume().on("end", done);
    });
    asked.on("error", failed).end();
  });
}

it("shows who is tried, why, and which edge goes by it", async () => {
  let isOver = false;
  const asking = CLIENTS.map(async (client) => {
    while (!isOver) {
      await ask(client);
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
    await text.filter({ hasText: /connections [1-9]\d* steered, [1-9]\d* held out/ }).waitFor();
    assert.match(await text.textContent(), /^127\.0\.3\.0\/24: (slow|explored): steered/);
    // The edge of the same process has asked for its bundle, and goes by it.
    const edge = page.getByTestId("control-edges-list").locator("tr[data-edge]");
    await edge.filter({ has: page.locator(".has", { hasText: /^\d+$/ }) }).waitFor();
    // What is tried, the rounds' bars and lines, and the effect with its interval are drawn.
    const drawn = (testid, shape) => page.getByTestId(testid).locator(shape).first().waitFor({ state: "attached" });
    await drawn("control-scatter", "circle.trial");
    for (const bars of ["kept", "entered"]) await drawn("control-bars", `svg path.${bars}[d*="h"], svg path.${bars}[d*="H"]`);
    // So small responses tell of no delivery rate.
    await drawn("control-goodput", 'path.line.steered[d*="L"]');
    await drawn("control-effect-goodput", "path.interval");
    // A round further back is told.
    const told = page.getByTestId("control-round");
    const newest = await told.textContent();
    await page.getByTestId("control-bars").press("Home");
    await told.filter({ hasNotText: newest }).waitFor();
    await picture(page, "control");
    assert.deepEqual(complaints, []);
  } finally {
    isOver = true;
    await Promise.all(asking);
  }
});
