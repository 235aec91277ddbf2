import { expect, it } from "vitest";

import type { SingleResponse } from "../telemetry/api";
import { details } from "./details";

const SEGMENT = {
  time_us: 1_700_000_000_123_007,
  client: "203.0.113.7:50000",
  prefix: "203.0.113.0/24",
  asn: 64500,
  region: "DE",
  method: "GET",
  request_host: "cdn.example",
  path: "/vod/sample/1.m4s?x",
  status: 200,
  bytes: 1_258_291,
  ttfb_us: 1903,
  written_us: 850,
  acked_bytes: 1_258_600,
  acked_us: 1_009_000,
  busy_us: 1_006_880,
  goodput_bytes_per_s: 1_250_000,
  testable_bytes_per_s: 5_000_000,
  reached_hd: true,
  rwnd_limited_us: 12_000,
  is_source_limited: false,
  cache: "hit",
  detail: "memory",
  backend: "origin1",
  protocol: "HTTP/1.1",
  cut: "client_closed",
  congestion_control: "bbr",
  congestion_control_start: "cubic",
  decider: "rule",
  rtt_us: 20_000,
  min_rtt_us: 19_000,
  snd_cwnd: 1,
  delivery_rate_bytes_per_s: 2_500_000,
  pacing_rate_bytes_per_s: null,
  retransmits: 0,
  lost: 2,
  bundle: 4,
  rule: "203.0.113.0/25",
  is_holdout: false,
  experiment: "paced",
  arm: "control",
  refused: "EPERM",
  draw_period: 5_666_666,
  cmcd_sid: "s-1",
  cmcd_st: "l",
  cmcd_br_kbps: 3000,
  cmcd_bl_ms: 2100,
  cmcd_mtp_kbps: 25_400,
  cmcd_bs: true,
  xid: 32_770,
  restarts: 1,
  lines: "VCL_Log: slow\nVCL_Log: path",
  pop: "fra1",
  host: "edge1",
  number: "12",
  sample_one_in: 10,
} satisfies Partial<SingleResponse> as SingleResponse;

it("shows every field once, with its unit and full precision", () => {
  const groups = details(SEGMENT);
  const text = groups.map(({ name, fields }) => [name, ...fields.map(({ label, value }) => `  ${label}: ${value}`)].join("\n"));
  expect(`${text.join("\n")}`).toMatchInlineSnapshot(`
    "Request
      time: 2023-11-14T22:13:20.123007Z
      method: GET
      host: cdn.example
      path and query: /vod/sample/1.m4s?x
      client: 203.0.113.7:50000
      network: 203.0.113.0/24
      autonomous system: AS64500
      region: DE
    Response
      protocol: HTTP/1.1
      status: 200
      content: 1.20 MiB (1258291 B)
      TTFB: 1.90 ms (1903 µs)
      written after: 850 µs
      acknowledged after: 1.01 s (1009000 µs)
      acknowledged: 1.20 MiB (1258600 B)
      busy time: 1.01 s (1006880 µs)
      held back by the client: 12.0 ms (12000 µs)
      goodput: 10.0 Mbit/s (1250000 B/s)
      highest testable rate: 40.0 Mbit/s (5000000 B/s)
      reached 2.5 Mbit/s: yes
      waited for content: no
      cut: client closed
      cache: hit
      why: memory
      backend: origin1
    Connection at the end
      congestion control at the end: bbr
      congestion control at the start: cubic
      decided by: rule
      RTT, smoothed: 20.0 ms (20000 µs)
      minimum RTT: 19.0 ms (19000 µs)
      congestion window: 1 TCP segment
      delivery rate: 20.0 Mbit/s (2500000 B/s)
      pacing rate: –
      retransmitted, connection: 0 TCP segments
      considered lost: 2 TCP segments
    Control
      bundle: 4
      steering rule: 203.0.113.0/25
      holdout: no
      redraw period: 5666666
      experiment: paced
      arm: control
      refused by the kernel: EPERM
    Player (CMCD)
      session: s-1
      stream: live
      bitrate: 3000 kbit/s
      buffer: 2100 ms
      throughput measured: 25400 kbit/s
      buffer ran dry: yes
    Policy and record
      request number: 32770
      restarts: 1
      log: VCL_Log: slow
    VCL_Log: path
      PoP: fra1
      machine: edge1
      record: 12
      stands for: 10 responses"
  `);
  const keys = groups.flatMap(({ fields }) => fields.map(({ key }) => key));
  expect(keys.sort()).toEqual(Object.keys(SEGMENT).sort());
});

it("shows an unlisted column by its name and unit", () => {
  const later = { ...SEGMENT, rttvar_us: 1903, wnd_bytes_per_s: null, epoch: 5 };
  const fields = details(later).at(-1)?.fields.map(({ label, value }) => `${label}: ${value}`);
  expect(fields).toEqual(["rttvar: 1.90 ms (1903 µs)", "wnd: –"]);
});

it("shows missing values instead of leaving them out", () => {
  const unknown = details({ ...SEGMENT, ttfb_us: null, cut: null, request_host: "", is_holdout: null });
  const values = unknown.flatMap(({ fields }) => fields).filter(({ value }) => value === "–");
  expect(values.map(({ key }) => key)).toEqual(["request_host", "ttfb_us", "cut", "pacing_rate_bytes_per_s", "is_holdout"]);
});
