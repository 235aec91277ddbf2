// The networks panel: clients by network over the last minutes, worst first.

import type { RecordListener } from "../api";
import type { ResponseRecord } from "../record";
import * as format from "../format";
import { el } from "../ui/element";
import { emptyRow, scrolling, showState } from "../ui/table";
import { LastResponses, type Network } from "./figures";

const DRAW_EVERY_MS = 1000;

/** Maximum networks shown, worst first. */
const ROWS_MAX = 100;

/** Class, name and title of each column. */
const COLUMNS = [
  ["network", "network", "client prefix: /24 for IPv4, /56 for IPv6"],
  ["starved", "starved", "share of player reports (CMCD) with an empty buffer"],
  ["sessions", "sessions", "sessions with an empty buffer, of all that report CMCD"],
  ["buffer", "buffer", "reported by players, median"],
  ["throughput", "throughput", "measured by players, median"],
  ["goodput", "goodput", "acknowledged bytes divided by the time during which bytes were unacknowledged"],
  ["goodput", "delivery", "delivery rate sampled by the kernel, median"],
  ["ttfb", "TTFB p50", "time to the first byte, median"],
  ["ttfb", "p95", "time to the first byte, 95th percentile"],
  ["asked", "requests", "answered requests"],
  ["rtt", "RTT p50", "median of the kernel's smoothed round-trip time"],
] as const;

const NOTHING = "No request since this page was opened: networks are computed from the edge's live responses.";

export class NetworksPanel implements RecordListener {
  readonly element: HTMLElement;

  readonly #responses = new LastResponses();
  readonly #rows = el("tbody", { "data-testid": "networks" });
  readonly #state = el("span", { class: "state", role: "status", "data-testid": "networks-state" });
  #connected = false;
  #lost = 0;

  /** `head` is placed at the start of the panel's head. */
  constructor(head: HTMLElement) {
    this.element = el(
      "section",
      { class: "records", "aria-label": "networks" },
      el("header", {}, head, this.#state),
      scrolling(COLUMNS, this.#rows),
    );
    setInterval(() => this.draw(), DRAW_EVERY_MS);
    this.draw();
  }

  record(record: ResponseRecord): void {
    this.#responses.push(record, performance.now());
  }

  lost(count: number): void {
    this.#lost += count;
  }

  connected(up: boolean): void {
    this.#connected = up;
  }

  /** Redraws the table if it is visible. */
  draw(): void {
    if (this.element.hidden) return;
    const { networks, since_ms } = this.#responses.networks(performance.now());
    this.#rows.replaceChildren(...(networks.length > 0 ? networks.slice(0, ROWS_MAX).map(row) : [emptyRow(COLUMNS.length, NOTHING)]));
    const lost = this.#lost > 0 ? `, ${this.#lost} requests lost` : "";
    const more = networks.length > ROWS_MAX ? `the worst ${ROWS_MAX} of ${networks.length}, ` : "";
    if (this.#connected) showState(this.#state, "playing", `${more}last ${format.duration(since_ms / 1000)} min${lost}`);
    else showState(this.#state, "starting", "connecting");
  }
}

function row(network: Network): HTMLTableRowElement {
  const { starvation, sessions, sessions_starved, buffer_ms, throughput_kbps, goodput_bytes_per_s } = network;
  const orNone = <T>(value: T | null, show: (value: T) => string) => (value === null ? format.NONE : show(value));
  const rate = (bytes_per_s: number) => format.bitsPerS(bytes_per_s * 8);
  const share = orNone(starvation, (share) => `${(share * 100).toFixed(share > 0 && share < 0.095 ? 1 : 0)} %`);
  const cells = [
    network.name,
    share,
    sessions > 0 ? `${sessions_starved} of ${sessions}` : format.NONE,
    format.seconds(buffer_ms === null ? null : buffer_ms / 1000, 1),
    orNone(throughput_kbps, (kbps) => format.bitsPerS(kbps * 1000)),
    orNone(goodput_bytes_per_s, rate),
    orNone(network.delivery_bytes_per_s, rate),
    format.micros(network.ttfb_us_p50 ?? undefined),
    format.micros(network.ttfb_us_p95 ?? undefined),
    String(network.requests),
    format.micros(network.rtt_us_p50 ?? undefined),
  ];
  const line = el("tr", { "data-network": network.name });
  for (const [index, [name]] of COLUMNS.entries()) line.append(el("td", { class: name }, cells[index] ?? ""));
  if (starvation !== null && starvation > 0) {
    line.dataset.starved = starvation.toFixed(3);
    line.style.setProperty("--share", String(starvation));
  }
  return line;
}
