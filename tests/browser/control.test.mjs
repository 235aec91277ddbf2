// What a controller decides, looked at in the console: the browser's own network is tried, and the edge goes by it.

import assert from "node:assert/strict";
import { after, before, it } from "node:test";

import { launch, openConsole, picture, started } from "./page.mjs";
import { CONGESTION_CONTROL_TRIED, startThalweg } from "./thalweg.mjs";

const NETWORK = "127.0.0.0/24";

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

it("shows who is tried, why, and which edge goes by it", async () => {
  const { page, complaints } = await openConsole(browser, `${thalweg.console}?play=live:demo&only=hls&show=requests`);
  await started(page, "hls");
  await page.getByRole("button", { name: "Control" }).click();
  const row = page.getByTestId("control-list").locator("tr", { hasText: NETWORK });
  await row.waitFor();
  await row.getByRole("button").click();
  await page.getByTestId("control-said").filter({ hasText: "steered" }).waitFor();
  assert.match(page.url(), /prefix=127\.0\.0\.0%2F24/);
  const text = await page.getByTestId("control-text").textContent();
  assert.match(text, /^127\.0\.0\.0\/24: (slow|explored): steered/);
  assert.match(text, /windows +-*#+/);
  // The edge of the same process has asked for its bundle, and goes by it.
  const edge = page.getByTestId("control-edges-list").locator("tr[data-edge]");
  await edge.filter({ has: page.locator(":scope .has", { hasText: /^\d+$/ }) }).waitFor();
  // A new connection is steered, or held out.
  await page.getByTestId("hls-restart").click();
  await page.getByRole("button", { name: "Requests" }).click();
  const seen = page.getByTestId("records").locator("tr[data-cache] .cc");
  await seen.first().waitFor();
  const names = new Set(await seen.allTextContents());
  for (const name of names) assert.match(name, new RegExp(`^(reno|${CONGESTION_CONTROL_TRIED})$`));
  await page.getByRole("button", { name: "Control" }).click();
  await page.getByTestId("control-scatter").waitFor();
  await picture(page, "control");
  assert.deepEqual(complaints, []);
});
