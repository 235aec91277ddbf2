import { expect, it } from "vitest";

import type { Cmcd, Delivery, ResponseRecord } from "../record";
import { LastResponses, networkOf, RESPONSES_MAX, WINDOW_MS } from "./figures";

function record(client: string, cmcd?: Cmcd, more: Partial<ResponseRecord> = {}): ResponseRecord {
  return {
    v: 1,
    time: "2026-11-20T23:00:00.123Z",
    client,
    method: "GET",
    host: "127.0.0.1:8080",
    path: "/a",
    status: 200,
    bytes: 1000,
    ttfb_us: 1000,
    written_us: 2000,
    delivery: delivery(1000, 1000),
    cache: "hit",
    protocol: "HTTP/1.1",
    complete: true,
    ...(cmcd ? { cmcd } : {}),
    ...more,
  };
}

function delivery(acked_bytes: number, busy_us: number): Delivery {
  return { acked_bytes, busy_us };
}

function names(last: LastResponses): string[] {
  return last.networks(0).networks.map(({ name }) => name);
}

it("derives the prefix of an address", () => {
  expect(networkOf("198.18.8.7:50000")).toBe("198.18.8.0/24");
  expect(networkOf("[2001:db8:0:1ab::9]:443")).toBe("2001:db8:0:100::/56");
  expect(networkOf("[2001:db8:0:ff::9]:443")).toBe("2001:db8::/56");
  expect(networkOf("[1:2:3:4:5:6:7:8]:1")).toBe("1:2:3::/56");
  expect(networkOf("[fe80::1%2]:1")).toBe("fe80::/56");
  expect(networkOf("[::1]:1")).toBe("::/56");
  expect(networkOf("[64:ff9b::192.0.2.1]:1")).toBe("64:ff9b::/56");
  for (const no of ["", "host:80", "[]:1", "[1:2:3]:1", "[1::2:3:4:5:6:7:8:9]:1"]) expect(networkOf(no)).toBeNull();
});

it("sorts empty buffers first, then low buffers, then more requests", () => {
  const last = new LastResponses();
  last.push(record("192.0.2.1:1"), 0);
  for (let n = 0; n < 2; n += 1) last.push(record("192.0.3.1:1"), 0);
  last.push(record("192.0.4.1:1", { bl_ms: 9000 }), 0);
  last.push(record("192.0.5.1:1", { bl_ms: 2000 }), 0);
  last.push(record("192.0.6.1:1", { bl_ms: 9000, bs: true }), 0);
  last.push(record("192.0.6.1:1", { bl_ms: 9000 }), 0);
  last.push(record("192.0.7.1:1", { bl_ms: 9000, bs: true }), 0);
  expect(names(last)).toEqual([7, 6, 5, 4, 3, 2].map((n) => `192.0.${n}.0/24`));
});

it("sums up player reports and edge measurements", () => {
  const last = new LastResponses();
  const tcp = { congestion_control: "cubic", rtt_us: 40_000, snd_cwnd: 10, delivery_rate_bytes_per_s: 9000, retransmits: 0, lost: 0 };
  last.push(record("192.0.2.1:1", { sid: "a", bl_ms: 4000, mtp_kbps: 3000 }, { tcp, delivery: delivery(5000, 1000) }), 0);
  last.push(record("192.0.2.1:2", { sid: "a", bs: true, bl_ms: 0, mtp_kbps: 500 }, { ttfb_us: 9000, delivery: delivery(1000, 4000) }), 0);
  for (const port of [1, 2]) last.push(record(`192.0.2.2:${port}`, { st: "l" }, { delivery: delivery(0, 0) }), 0);
  last.push(record("192.0.2.3:1"), 0);
  const { ttfb_us: _, delivery: __, ...unsent } = record("192.0.2.3:1");
  last.push(unsent, 0);
  expect(last.networks(0).networks).toEqual([
    {
      name: "192.0.2.0/24",
      requests: 6,
      sessions: 2,
      sessions_starved: 1,
      starvation: 1 / 4,
      buffer_ms: 0,
      throughput_kbps: 500,
      // 7,000 bytes in 1 + 4 + 1 ms.
      goodput_bytes_per_s: 7000 / 0.006,
      delivery_bytes_per_s: 9000,
      ttfb_us_p50: 1000,
      ttfb_us_p95: 9000,
      rtt_us_p50: 40_000,
    },
  ]);
});

it("leaves unreported and unmeasured figures null", () => {
  const last = new LastResponses();
  expect(last.networks(0)).toEqual({ networks: [], since_ms: 0 });
  last.push(record("192.0.2.3:1", undefined, { delivery: delivery(0, 0) }), 0);
  expect(last.networks(0).networks[0]).toMatchObject({
    sessions: 0,
    starvation: null,
    buffer_ms: null,
    throughput_kbps: null,
    goodput_bytes_per_s: null,
    rtt_us_p50: null,
  });
});

it("drops old responses, and the oldest beyond the limit", () => {
  const last = new LastResponses();
  last.push(record("192.0.2.1:1"), 0);
  last.push(record("192.0.3.1:1"), 1000);
  expect(last.networks(WINDOW_MS + 500)).toMatchObject({ networks: [{ name: "192.0.3.0/24" }], since_ms: WINDOW_MS - 500 });
  for (let n = 0; n < 2 * RESPONSES_MAX; n += 1) last.push(record("192.0.4.1:1"), 1000);
  expect(last.networks(1000).networks).toMatchObject([{ name: "192.0.4.0/24", requests: RESPONSES_MAX }]);
});

it("counts each response of a sampling edge as often as it stands for others", () => {
  const last = new LastResponses();
  const sampled = { sample_one_in: 10, delivery: delivery(5000, 1000) };
  for (const port of [1, 2]) last.push(record(`192.0.2.1:${port}`, { sid: "a", bs: true }, sampled), 0);
  last.push(record("192.0.2.2:1", { sid: "b" }, sampled), 0);
  const [network] = last.networks(0).networks;
  expect(network).toMatchObject({ requests: 30, sessions: 20, sessions_starved: 10, starvation: 2 / 3 });
  expect(network?.goodput_bytes_per_s).toBe(5_000_000);
});
