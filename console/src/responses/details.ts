// Pure functions that format all fields of one response as text with units.

import * as format from "../format";
import { REPLACED, type SingleResponse } from "../telemetry/api";

type Field = readonly [label: string, value: (response: SingleResponse) => string | null];
type Key = Extract<keyof SingleResponse, string>;

/** Labels and formats of columns. Other columns appear by name, under the remaining fields. */
const FIELDS: Partial<Record<Key, Field>> = {
  time_us: ["time", ({ time_us }) => `${new Date(time_us / 1000).toISOString().slice(0, -1)}${String(time_us % 1000).padStart(3, "0")}Z`],
  method: ["method", ({ method }) => method],
  request_host: ["host", ({ request_host }) => request_host || null],
  path: ["path and query", ({ path }) => path],
  client: ["client", ({ client }) => client],
  prefix: ["network", ({ prefix }) => prefix],
  asn: ["autonomous system", ({ asn }) => (asn === null ? null : `AS${asn}`)],
  region: ["region", ({ region }) => region],
  protocol: ["protocol", ({ protocol }) => protocol],
  status: ["status", ({ status }) => String(status)],
  bytes: ["content", ({ bytes }) => exact(format.bytes(bytes), bytes, "B")],
  ttfb_us: ["TTFB", ({ ttfb_us }) => time(ttfb_us)],
  written_us: ["written after", ({ written_us }) => time(written_us)],
  acked_us: ["acknowledged after", ({ acked_us }) => time(acked_us)],
  acked_bytes: ["acknowledged", ({ acked_bytes }) => (acked_bytes === null ? null : exact(format.bytes(acked_bytes), acked_bytes, "B"))],
  busy_us: ["busy time", ({ busy_us }) => time(busy_us)],
  testable_bytes_per_s: ["highest testable rate", (response) => rate(response.testable_bytes_per_s)],
  reached_hd: ["reached 2.5 Mbit/s", ({ reached_hd }) => yesNo(reached_hd)],
  rwnd_limited_us: ["held back by the client", ({ rwnd_limited_us }) => time(rwnd_limited_us)],
  is_source_limited: ["waited for content", ({ is_source_limited }) => yesNo(is_source_limited)],
  goodput_bytes_per_s: ["goodput", (response) => rate(response.goodput_bytes_per_s)],
  cut: ["cut", ({ cut }) => cut?.replaceAll("_", " ") ?? null],
  cache: ["cache", ({ cache }) => cache],
  detail: ["why", ({ detail }) => detail],
  backend: ["backend", ({ backend }) => backend],
  congestion_control: ["congestion control at the end", (response) => response.congestion_control],
  congestion_control_start: ["congestion control at the start", (response) => response.congestion_control_start],
  decider: ["decided by", ({ decider }) => decider],
  rtt_us: ["RTT, smoothed", ({ rtt_us }) => time(rtt_us)],
  min_rtt_us: ["minimum RTT", ({ min_rtt_us }) => time(min_rtt_us)],
  snd_cwnd: ["congestion window", ({ snd_cwnd }) => segments(snd_cwnd)],
  delivery_rate_bytes_per_s: ["delivery rate", (response) => rate(response.delivery_rate_bytes_per_s)],
  pacing_rate_bytes_per_s: ["pacing rate", (response) => rate(response.pacing_rate_bytes_per_s)],
  retransmits: ["retransmitted, connection", ({ retransmits }) => segments(retransmits)],
  lost: ["considered lost", ({ lost }) => segments(lost)],
  bundle: ["bundle", ({ bundle }) => text(bundle)],
  rule: ["steering rule", ({ rule }) => rule],
  is_holdout: ["holdout", ({ is_holdout }) => yesNo(is_holdout)],
  experiment: ["experiment", ({ experiment }) => experiment],
  arm: ["arm", ({ arm }) => arm],
  draw_period: ["redraw period", ({ draw_period }) => text(draw_period)],
  refused: ["refused by the kernel", ({ refused }) => refused],
  cmcd_sid: ["session", ({ cmcd_sid }) => cmcd_sid],
  cmcd_st: ["stream", ({ cmcd_st }) => (cmcd_st === "l" ? "live" : cmcd_st === "v" ? "on demand" : cmcd_st)],
  cmcd_br_kbps: ["bitrate", ({ cmcd_br_kbps }) => (cmcd_br_kbps === null ? null : `${cmcd_br_kbps} kbit/s`)],
  cmcd_bl_ms: ["buffer", ({ cmcd_bl_ms }) => (cmcd_bl_ms === null ? null : `${cmcd_bl_ms} ms`)],
  cmcd_mtp_kbps: ["throughput measured", ({ cmcd_mtp_kbps }) => (cmcd_mtp_kbps === null ? null : `${cmcd_mtp_kbps} kbit/s`)],
  cmcd_bs: ["buffer ran dry", ({ cmcd_bs }) => yesNo(cmcd_bs)],
  xid: ["request number", ({ xid }) => text(xid)],
  restarts: ["restarts", ({ restarts }) => text(restarts)],
  lines: ["log", ({ lines }) => lines],
  pop: ["PoP", ({ pop }) => pop || null],
  host: ["machine", ({ host }) => host],
  number: ["record", ({ number }) => number],
  sample_one_in: ["stands for", ({ sample_one_in }) => (sample_one_in === null ? null : `${sample_one_in} responses`)],
};

/** Fields by group, in display order. */
const GROUPS: readonly (readonly [string, readonly Key[]])[] = [
  ["Request", ["time_us", "method", "request_host", "path", "client", "prefix", "asn", "region"]],
  ["Response", ["protocol", "status", "bytes", "ttfb_us", "written_us", "acked_us", "acked_bytes", "busy_us", "rwnd_limited_us", "goodput_bytes_per_s", "testable_bytes_per_s", "reached_hd", "is_source_limited", "cut", "cache", "detail", "backend"]],
  [
    "Connection at the end",
    ["congestion_control", "congestion_control_start", "decider", "rtt_us", "min_rtt_us", "snd_cwnd", "delivery_rate_bytes_per_s", "pacing_rate_bytes_per_s", "retransmits", "lost"],
  ],
  ["Control", ["bundle", "rule", "is_holdout", "draw_period", "experiment", "arm", "refused"]],
  ["Player (CMCD)", ["cmcd_sid", "cmcd_st", "cmcd_br_kbps", "cmcd_bl_ms", "cmcd_mtp_kbps", "cmcd_bs"]],
  ["Policy and record", ["xid", "restarts", "lines", "pop", "host", "number", "sample_one_in"]],
];

export interface DetailGroup {
  name: string;
  fields: { key: Key; label: string; value: string }[];
}

/** Lists all fields, including those without a value. */
export function details(response: SingleResponse): DetailGroup[] {
  const placed = new Set<string>([...REPLACED, ...GROUPS.flatMap(([, keys]) => keys)]);
  const rest = Object.keys(response).filter((key) => !placed.has(key)) as Key[];
  const groups = rest.length > 0 ? [...GROUPS, ["Other", rest] as const] : GROUPS;
  return groups.map(([name, keys]) => ({
    name,
    fields: keys.map((key) => {
      const [label, value] = FIELDS[key] ?? plain(key);
      return { key, label, value: value(response) ?? format.NONE };
    }),
  }));
}

/** Returns the label and format of an unlisted column, derived from the column's name. */
function plain(key: Key): Field {
  const label = key.replace(/_us$|_bytes_per_s$/, "").replaceAll("_", " ");
  return [
    label,
    (response) => {
      const value = response[key];
      if (typeof value === "boolean") return yesNo(value);
      if (typeof value !== "number") return value;
      if (key.endsWith("_us")) return time(value);
      return key.endsWith("_bytes_per_s") ? rate(value) : String(value);
    },
  ];
}

function exact(rounded: string, value: number, unit: string): string {
  const whole = `${value} ${unit}`;
  return rounded === whole ? whole : `${rounded} (${whole})`;
}

function time(us: number | null): string | null {
  return us === null ? null : exact(format.micros(us), us, "µs");
}

function rate(bytes_per_s: number | null): string | null {
  return bytes_per_s === null ? null : `${format.rate(bytes_per_s)} (${bytes_per_s} B/s)`;
}

function segments(count: number | null): string | null {
  return count === null ? null : `${count} TCP ${count === 1 ? "segment" : "segments"}`;
}

function text(value: number | null): string | null {
  return value === null ? null : String(value);
}

function yesNo(value: boolean | null): string | null {
  return value === null ? null : value ? "yes" : "no";
}
