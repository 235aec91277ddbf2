// Who suffers: clients by network over the last minutes, the worst first.

import type { RecordListener, ResponseRecord } from "../api";
import * as format from "../format";
import { el, setAttribute, setText } from "../ui/element";
import { LastResponses, type Network } from "./figures";

const DRAW_EVERY_MS = 1000;

/** Networks that are shown, the worst of all. */
const ROWS_MAX = 100;

/** Class, name, and what it means. */
const COLUMNS = [
  ["network", "network", "clients' addresses: /24 for IPv4, /56 for IPv6"],
  ["starved", "starved", "share of what players said (CMCD) in which their buffer had run dry"],
  ["sessions", "sessions", "in which it had run dry, of all whose players say something of themselves"],
  ["buffer", "buffer", "that players say they have, median"],
  ["throughput", "throughput", "that players say they measure, median"],
  ["goodput", "goodput", "content over the time until the kernel had taken it"],
  ["goodput", "delivery", "rate of delivery as the kernel samples it, median"],
  ["ttfb", "TTFB p50", "time to the first byte, median"],
  ["ttfb", "p95", "time to the first byte, 95th percentile"],
  ["asked", "requests", "answered"],
  ["rtt", "RTT p50", "round trip as the kernel has it, median"],
] as const;

export class NetworksPanel implements RecordListener {
  readonly element: HTMLElement;

  readonly #responses = new LastResponses();
  readonly #rows = el("tbody", { "data-testid": "networks" });
  readonly #state = el("span", { class: "state", role: "status", "data-testid": "networks-state" });
  #connected = false;
  #lost = 0;

  /** `head` begins the panel's own. */
  constructor(head: HTMLElement) {
    const names = COLUMNS.map(([name, label, title]) => el("th", { scope: "col", class: name, title }, label));
    const table = el("table", {}, el("thead", {}, el("tr", {}, ...names)), this.#rows);
    this.element = el(
      "section",
      { class: "records", "aria-label": "networks" },
      el("header", {}, head, this.#state),
      el("div", { class: "scroll", tabindex: "0" }, table),
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

  /** Shows how it is now, unless nobody sees it. */
  draw(): void {
    if (this.element.hidden) return;
    const { networks, since_ms } = this.#responses.networks(performance.now());
    this.#rows.replaceChildren(...(networks.length > 0 ? networks.slice(0, ROWS_MAX).map(row) : [emptyRow()]));
    const lost = this.#lost > 0 ? `, ${this.#lost} requests lost` : "";
    const more = networks.length > ROWS_MAX ? `the worst ${ROWS_MAX} of ${networks.length}, ` : "";
    setText(this.#state, this.#connected ? `${more}last ${format.duration(since_ms / 1000)} min${lost}` : "connecting");
    setAttribute(this.#state, "data-phase", this.#connected ? "playing" : "starting");
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

function emptyRow(): HTMLTableRowElement {
  const words = "No request since this page was opened: networks are told from the edge's responses as they happen.";
  return el("tr", { class: "empty" }, el("td", { colspan: String(COLUMNS.length) }, words));
}
