// Browser tests of the console's views of the agent's data: the browser's own connections and
// responses.

import assert from "node:assert/strict";
import { after, before, it } from "node:test";

import { launch, openConsole, picture, started } from "./page.mjs";
import { CONGESTION_CONTROL, startThalweg } from "./thalweg.mjs";

let thalweg;
let browser;

before(async () => {
  thalweg = await startThalweg({ agent: true });
  browser = await launch();
});

after(async () => {
  await browser?.close();
  assert.equal(await thalweg?.stop(), 0);
});

/** Opens the console with a player that has started the sample. */
async function openPlaying(show) {
  const opened = await openConsole(browser, `${thalweg.console}?play=vod:sample&only=hls&show=${show}`);
  await started(opened.page, "hls");
  return opened;
}

/**
 * Returns the browser's addresses from which the edge has received requests, according to its
 * records.
 */
async function clients(page) {
  await page.getByRole("button", { name: "Requests" }).click();
  const rows = page.getByTestId("records").locator("tr[data-cache]");
  await rows.filter({ hasText: ".m4s" }).first().waitFor();
  const titles = await rows.evaluateAll((all) => all.map((row) => row.title));
  return new Set(titles.map((title) => title.match(/ from (\S+)/)[1]));
}

it("shows the browser's own connections with the kernel's figures", async () => {
  const { page, complaints } = await openPlaying("requests");
  const answered = await clients(page);
  await page.getByRole("button", { name: "Sockets" }).click();
  assert.match(page.url(), /&show=sockets$/);
  const edge = new URL(thalweg.edge).host;
  // The kernel's last event for a connection does not name the congestion control.
  const row = (client) => `tr[data-local="${edge}"][data-client="${client}"]:not([data-ended])`;
  const rows = [...answered].map(row).join(",");
  const own = page.getByTestId("sockets").locator(rows);
  // A sample taken before the edge has accepted the connection shows the kernel's default.
  await page.waitForFunction(
    ([rows, congestionControl]) => {
      const shown = [...document.querySelectorAll(rows)];
      return shown.length > 0 && shown.every((row) => row.querySelector("td.cc").textContent === congestionControl);
    },
    [rows, CONGESTION_CONTROL],
  );
  const shown = await own.evaluateAll((all) => all.map((row) => Array.from(row.cells, (cell) => cell.textContent)));
  assert.ok(shown.length > 0);
  for (const [client, network, , congestion_control, rtt] of shown) {
    assert.ok(answered.has(client));
    assert.deepEqual([network, congestion_control], ["127.0.0.0/24", CONGESTION_CONTROL]);
    assert.match(rtt, /^[\d.]+ (µs|ms|s)$/);
  }
  // The samples of a long-lived connection form a curve.
  await own.locator('path[d*="L"]').first().waitFor({ state: "attached" });

  await page.getByTestId("sockets-filter").fill(`${edge} ${CONGESTION_CONTROL.toUpperCase()}`);
  const ccs = await page.getByTestId("sockets").locator("td.cc").allTextContents();
  assert.deepEqual([...new Set(ccs)], [CONGESTION_CONTROL]);
  assert.match(await page.getByTestId("sockets-summary").textContent(), new RegExp(`acked together.* .*bit/s${CONGESTION_CONTROL}\\d+$`));
  const query = page.locator(".sockets").getByTestId("query");
  await query.locator("summary").click();
  assert.match(await query.locator("pre").textContent(), /FROM sockets/);
  await query.locator("summary").click();
  await picture(page, "sockets");
  await page.close();
  assert.deepEqual(complaints, []);
});

it("leads from a TTFB distribution to a single response", async () => {
  const { page, complaints } = await openPlaying("responses");
  await page.getByTestId("groups").locator("tr[data-group]").first().waitFor();
  await page.getByTestId("responses-by").selectOption("path");
  const groups = page.getByTestId("groups");
  const path = (await groups.locator('tr[data-group*=".m4s"]').first().getAttribute("data-group")).slice(1);
  // The first bar may change until a bar is open.
  const bars = groups.locator(`tr[data-group="=${path}"] .bar`);
  const bar = bars.and(page.locator(`[data-bucket="${await bars.first().getAttribute("data-bucket")}"]`));
  const [, low, low_unit, high, high_unit, count] = (await bar.getAttribute("aria-label")).match(/^([\d.]+) (\S+) to ([\d.]+) (\S+): (\d+) /);
  await bar.click();

  const singles = page.getByTestId("singles").locator("tr[data-cache]");
  await singles.first().waitFor();
  assert.ok((await singles.count()) >= Number(count));
  assert.deepEqual([...new Set(await singles.locator("td.path").allTextContents())], [path]);
  const us = (number, unit) => Number(number) * { µs: 1, ms: 1e3, s: 1e6 }[unit];
  for (const text of await singles.locator("td.ttfb").allTextContents()) {
    const ttfb_us = us(...text.split(" "));
    // Values are shown with three digits.
    assert.ok(ttfb_us >= us(low, low_unit) * 0.99 && ttfb_us <= us(high, high_unit) * 1.01, text);
  }

  await singles.first().click();
  const field = (name) => page.getByTestId("details").locator(`[data-field=${name}] dd`).textContent();
  assert.equal(await field("path"), path);
  assert.equal(await field("request_host"), new URL(thalweg.edge).host);
  assert.equal(await field("congestion_control"), CONGESTION_CONTROL);
  assert.match(await field("ttfb_us"), /^[\d.]+ (µs|ms|s)( \(\d+ µs\))?$/);
  assert.match(await field("snd_cwnd"), /^\d+ TCP segments?$/);
  await picture(page, "responses");

  // Reloading the page's address must restore the view, and going back must close the details.
  const opened = await field("time_us");
  await page.reload();
  await page.getByTestId("details").waitFor();
  assert.equal(await field("time_us"), opened);
  await page.goBack();
  await page.getByTestId("details").waitFor({ state: "detached" });
  assert.ok((await singles.count()) > 0);
  await page.goBack();
  await page.getByTestId("singles-close").waitFor({ state: "hidden" });
  assert.match(page.url(), /&show=responses&by=path$/);
  await page.close();
  assert.deepEqual(complaints, []);
});

it("shows sockets without an edge in the process", async () => {
  const beside = await startThalweg({ agent: true, delivery: false });
  try {
    const { page, complaints } = await openConsole(browser, beside.console);
    // The browser's connection to the console is one of the machine's sockets.
    const own = page.getByTestId("sockets").locator(`tr[data-local="${new URL(beside.console).host}"]`);
    await own.first().waitFor();
    const tabs = page.locator(".tabs button:visible");
    assert.deepEqual(await tabs.allTextContents(), ["Sockets", "Responses"]);
    assert.equal(await page.locator("video:visible").count(), 0);
    await picture(page, "beside");
    await page.close();
    assert.deepEqual(complaints, []);
  } finally {
    assert.equal(await beside.stop(), 0);
  }
});

it("reports a missing agent", async () => {
  const page = await browser.newPage();
  const without = (route) => route.fulfill({ json: { edge: { url: thalweg.edge }, version: "", telemetry: false } });
  await page.route("**/api/config", without);
  await page.goto(`${thalweg.console}?play=vod:none&show=sockets`);
  const words = /^no agent: add an \[agent\] section to the config file$/;
  await page.getByTestId("sockets-state").filter({ hasText: words }).waitFor();
  await page.getByRole("button", { name: "Responses" }).click();
  await page.getByTestId("responses-state").filter({ hasText: words }).waitFor();
  await page.close();
});

it("reports a failed request and continues with the next", async () => {
  const page = await browser.newPage();
  const refuse = (route) => route.fulfill({ status: 500, json: { error: "the database is away" } });
  await page.route("**/api/telemetry/sockets*", refuse, { times: 1 });
  await page.goto(`${thalweg.console}?play=vod:none&show=sockets`);
  await page.getByTestId("sockets-state").filter({ hasText: "the database is away" }).waitFor();
  await page.getByTestId("sockets-state").filter({ hasText: "last" }).waitFor();
  await page.close();
});
