import { expect, it } from "vitest";

import type { Socket } from "../telemetry/api";
import { curve, matching, RATE, resort, RTT, type Sort, sorted, summary } from "./table";

function socket(cookie: string, more: Partial<Socket> = {}): Socket {
  return {
    cookie,
    client: `203.0.113.${cookie}:50000`,
    local: "192.0.2.1:8080",
    prefix: "203.0.113.0/24",
    asn: null,
    region: null,
    state: "ESTAB",
    congestion_control: "bbr",
    rtt_us: 20_000,
    min_rtt_us: 19_000,
    snd_cwnd: 10,
    delivery_rate_bytes_per_s: 1_000_000,
    delivery_rate_app_limited: false,
    pacing_rate_bytes_per_s: null,
    acked_bytes_per_s: 1000,
    retransmits: 0,
    bytes_acked: 2000,
    last_us: 1,
    is_ended: false,
    history: [],
    ...more,
  };
}

const cookies = (sockets: Socket[]) => sockets.map(({ cookie }) => cookie).join(" ");

it("sorts figures and names, numbers in names by value, unknown values last in both directions", () => {
  const those = [socket("9", { rtt_us: 5 }), socket("10", { rtt_us: null }), socket("2", { rtt_us: 30 }), socket("1", { rtt_us: 5 })];
  const by = (key: Sort["key"], descending: boolean) => cookies(sorted(those, { key, descending }));
  expect([by("rtt_us", true), by("rtt_us", false)]).toEqual(["2 9 1 10", "9 1 2 10"]);
  expect([by("client", false), by("client", true)]).toEqual(["1 2 9 10", "10 9 2 1"]);
  expect(cookies(those)).toBe("9 10 2 1");
});

it("reverses the order when a column is chosen again", () => {
  const by_rtt = resort({ key: "bytes_acked", descending: true }, "rtt_us");
  expect([by_rtt, resort(by_rtt, "rtt_us")]).toEqual([
    { key: "rtt_us", descending: true },
    { key: "rtt_us", descending: false },
  ]);
  expect(resort(by_rtt, "client")).toEqual({ key: "client", descending: false });
});

it("matches sockets by every word of network, address, congestion control and state", () => {
  const those = [
    socket("1", { asn: 64500, region: "DE" }),
    socket("2", { congestion_control: "cubic", is_ended: true }),
    socket("3", { congestion_control: null, state: "CLOSE-WAIT", prefix: "198.51.100.0/24" }),
  ];
  const found = (text: string) => cookies(matching(those, text));
  expect([found(""), found(" as64500  BBR "), found("cubic ended"), found("close-wait"), found("198.51"), found("113.2:")]).toEqual([
    "1 2 3",
    "1",
    "2",
    "3",
    "3",
    "2",
  ]);
  expect(found("bbr cubic")).toBe("");
});

it("sums up the open sockets", () => {
  const those = [
    socket("1"),
    socket("2", { congestion_control: "cubic", acked_bytes_per_s: null }),
    socket("3", { congestion_control: "cubic", acked_bytes_per_s: 500 }),
    socket("4", { congestion_control: null, is_ended: true }),
  ];
  expect(summary(those)).toEqual({
    open: 3,
    ended: 1,
    acked_bytes_per_s: 1500,
    by_congestion_control: [
      ["cubic", 2],
      ["bbr", 1],
    ],
  });
});

it("draws a curve at the samples' times, with gaps", () => {
  const history: Socket["history"] = [
    [0, 100, null],
    [25, 0, 30],
    [50, null, null],
    [100, 50, null],
  ];
  expect(curve(history, RATE, 100, 100)).toBe("M0 1.8h0L25 20.0M100 10.9h0");
  expect(curve(history, RTT, 100, 100)).toBe("M25 1.8h0");
  expect(curve([[0, null, null]], RTT, 100, 100)).toBe("");
  // Samples older than the window or newer than its end must stay in the box.
  expect(curve([[-50, 0, 0], [120, 0, 0]], RTT, 100, 100)).toBe("M0 20.0h0L100 20.0");
});

it("has at most one point per unit of width, and keeps peaks", () => {
  const history = Array.from({ length: 12_000 }, (_, at): Socket["history"][number] => [at, null, at === 6000 ? 1000 : 500]);
  history[5999] = [5999, null, null];
  const path = curve(history, RTT, 12_000, 12_000);
  expect(path.match(/[ML]/g)).toHaveLength(101);
  expect(path.match(/[ML]\d+ 1\.8/g)).toEqual(["L50 1.8"]);
});
