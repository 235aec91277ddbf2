import { expect, it } from "vitest";

import { edgeUrl } from "./api";
import { presentations, readAddress, resolve, writeAddress } from "./choice";
import { FIRST_CHOICE } from "./responses/choice";

const CATALOGUE = {
  vod: [{ name: "sample", hls: "/vod/sample/master.m3u8", dash: "/vod/sample/manifest.mpd", duration_s: 32 }],
  live: [{ name: "demo", hls: "/live/demo/master.m3u8", dash: "/live/demo/manifest.mpd", since: "2026-11-20T23:00:00Z" }],
};

it("round-trips the page's address", () => {
  for (const address of ["?play=live:demo&only=dash", "?play=vod:sample", "?only=hls", "?play=live:demo&show=networks", "?show=sockets", "?show=responses&by=path&group=a%26b", "?show=control", "?show=control&pop=fra1&tenant=video.example&prefix=2001:db8:0:100::/56", "?play=vod:a:b%26c", ""]) {
    expect(writeAddress(readAddress(address))).toBe(address);
  }
});

it("ignores unknown values in an address", () => {
  const nothing = { choice: null, only: null, show: "requests", responses: FIRST_CHOICE, control: { scope: null, prefix: null } };
  expect(readAddress("?play=demo&only=mss&show=all")).toEqual(nothing);
  expect(readAddress("?play=vod:")).toEqual(nothing);
});

it("plays the wanted presentation, waits for a missing one, and defaults to the first, live before vod", () => {
  const available = presentations(CATALOGUE);
  expect(resolve({ kind: "vod", name: "sample" }, available)?.dash).toBe("/vod/sample/manifest.mpd");
  expect(resolve({ kind: "live", name: "sample" }, available)).toBeNull();
  expect(resolve(null, available)).toMatchObject({ kind: "live", name: "demo" });
  expect(resolve(null, [])).toBeNull();
});

it("finds the edge by port on the console's host, or by the configured URL", () => {
  const location = { protocol: "http:", hostname: "edge.example" };
  expect(edgeUrl({ edge: { port: 8080 }, version: "", telemetry: false }, location)).toBe("http://edge.example:8080");
  expect(edgeUrl({ edge: { url: "https://cdn.example/" }, version: "", telemetry: false }, location)).toBe("https://cdn.example");
});
