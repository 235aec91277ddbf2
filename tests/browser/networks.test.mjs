// Browser test of the console's networks panel: networks with empty buffers come first.

import assert from "node:assert/strict";
import { request } from "node:http";
import { after, before, it } from "node:test";

import { launch, openConsole, picture } from "./page.mjs";
import { startThalweg } from "./thalweg.mjs";

let thalweg;
let browser;

before(async () => {
  thalweg = await startThalweg();
  browser = await launch();
});

after(async () => {
  await browser?.close();
  assert.equal(await thalweg?.stop(), 0);
});

/** Requests a playlist from a loopback address, as a player with these CMCD values. */
function fetchFrom(from, cmcd) {
  return new Promise((done, failed) => {
    const options = { localAddress: from, headers: { "CMCD-Request": cmcd } };
    const sent = request(`${thalweg.edge}/vod/sample/master.m3u8`, options, (response) => {
      assert.equal(response.statusCode, 200);
      response.resume().on("end", done);
    });
    sent.on("error", failed).end();
  });
}

it("shows the worst networks first", async () => {
  const { page, complaints } = await openConsole(browser, `${thalweg.console}?play=vod:none&show=networks`);
  const rows = page.getByTestId("networks").locator("tr");
  await page.getByTestId("networks-state").filter({ hasText: "last" }).waitFor();
  await fetchFrom("127.0.8.1", "bl=12000,mtp=25000");
  await fetchFrom("127.0.9.1", "bl=4000,mtp=900");
  await fetchFrom("127.0.7.1", "bl=8000,mtp=1200");
  await fetchFrom("127.0.7.2", "bl=100,bs,mtp=300");
  await rows.filter({ hasText: "50 %" }).waitFor();
  const networks = await rows.evaluateAll((all) => all.map((row) => row.dataset.network));
  // The page itself requests the catalogue, without CMCD.
  assert.deepEqual(networks, ["127.0.7.0/24", "127.0.9.0/24", "127.0.8.0/24", "127.0.0.0/24"]);
  const cells = await rows.first().locator("td").allTextContents();
  assert.deepEqual(cells.slice(1, 5), ["50 %", "1 of 2", "0.1 s", "300 kbit/s"]);
  await picture(page, "networks");

  await page.getByRole("button", { name: "Requests" }).click();
  await page.getByTestId("records").locator("tr").filter({ hasText: "master.m3u8" }).first().waitFor();
  assert.equal(await rows.first().isVisible(), false);
  assert.doesNotMatch(page.url(), /show=/);
  await page.close();
  assert.deepEqual(complaints, []);
});

it("explains that it is waiting for requests", async () => {
  const page = await browser.newPage();
  // Without its configuration, the page requests nothing from the edge.
  await page.route("**/api/config", (route) => route.abort());
  await page.goto(`${thalweg.console}?show=networks`);
  const empty = page.getByTestId("networks").locator(".empty");
  assert.match(await empty.textContent(), /^No request since this page was opened/);
  await page.close();
});
