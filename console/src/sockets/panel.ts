// The sockets sampled by the agent, busiest first, sortable and filterable. Each has curves of the
// last minutes.

import * as format from "../format";
import { fetchSockets, NO_AGENT, type Socket, SOCKETS_MAX, type SocketsAnswer } from "../telemetry/api";
import { Poller } from "../telemetry/poller";
import { QueryDisclosure } from "../telemetry/query";
import { el, setText } from "../ui/element";
import { type Column, SortableHead } from "../ui/head";
import { svg } from "../ui/svg";
import { emptyRow, figure, showState } from "../ui/table";
import { CURVE, curve, matching, RATE, resort, RTT, type Sort, sorted, type SortKey, summary } from "./table";

const POLL_MS = 2000;

/** Length of the shown window and of the curves. */
const WINDOW_S = 120;

/** Sort key, class, name and title of each column. Curves are not sortable. */
const COLUMNS: readonly Column<SortKey>[] = [
  ["client", "client", "client", "address and port"],
  ["prefix", "prefix", "network", "the client's prefix: /24 for IPv4, /56 for IPv6; autonomous system and region if known"],
  ["state", "socket-state", "state", "as in ss"],
  ["congestion_control", "cc", "cc", "congestion control, read back from the kernel"],
  ["rtt_us", "figure", "RTT", "the kernel's smoothed round-trip time"],
  [null, "curve", "", "RTT over the last two minutes, from zero"],
  ["min_rtt_us", "figure", "min RTT", "minimum round-trip time"],
  ["snd_cwnd", "count", "cwnd", "congestion window, TCP segments"],
  ["delivery_rate_bytes_per_s", "rate", "delivery rate", "newest sample; app: limited by the application, not the network"],
  [null, "curve", "", "delivery rate over the last two minutes, from zero"],
  ["pacing_rate_bytes_per_s", "rate", "pacing", "pacing rate; none if unlimited"],
  ["acked_bytes_per_s", "rate", "acked", "acknowledged by the client over the last period"],
  ["bytes_acked", "figure", "total", "acknowledged by the client in the last two minutes"],
  ["retransmits", "count", "retrans", "TCP segments retransmitted in the last two minutes"],
  ["last_us", "seen", "seen", "age of the newest sample"],
];

export class SocketsPanel {
  readonly element: HTMLElement;

  readonly #rows = el("tbody", { "data-testid": "sockets" });
  readonly #head = new SortableHead(COLUMNS, (key) => {
    this.#sort = resort(this.#sort, key);
    this.#draw();
  });
  readonly #state = el("span", { class: "state", role: "status", "data-testid": "sockets-state" });
  readonly #summary = el("dl", { class: "totals", "data-testid": "sockets-summary" });
  readonly #query = new QueryDisclosure();
  readonly #filter = el("input", {
    type: "search",
    placeholder: "network, address, cc, state …",
    "aria-label": "show sockets that contain all of these words",
    "data-testid": "sockets-filter",
  });
  readonly #pause = el("button", { type: "button", "data-testid": "sockets-pause" }, "Pause");
  readonly #poller = new Poller<SocketsAnswer>({
    ask: (signal) => fetchSockets(WINDOW_S, signal),
    answered: (answer) => {
      this.#answer = answer;
      this.#failure = null;
      this.#draw();
    },
    failed: (message) => {
      this.#failure = message;
      this.#drawState();
    },
  });

  #answer: SocketsAnswer | null = null;
  #failure: string | null = null;
  #sort: Sort = { key: "bytes_acked", descending: true };
  #paused = false;
  #shown = false;
  /** Whether there is an agent; null until known. */
  #has_agent: boolean | null = null;

  /** `head` is placed at the start of the panel's head. */
  constructor(head: HTMLElement) {
    this.#filter.oninput = () => this.#draw();
    this.#pause.onclick = () => {
      this.#paused = !this.#paused;
      setText(this.#pause, this.#paused ? "Resume" : "Pause");
      this.#settle();
    };
    const table = el("table", {}, this.#head.element, this.#rows);
    this.element = el(
      "section",
      { class: "records sockets", "aria-label": "sockets" },
      el("header", {}, head, this.#state, this.#query.element, this.#filter, this.#pause),
      this.#summary,
      el("div", { class: "scroll", tabindex: "0" }, table),
    );
    this.#draw();
  }

  /** Starts updates when the panel is shown, and stops them when it is hidden. */
  show(shown: boolean): void {
    if (this.#shown === shown) return;
    this.#shown = shown;
    this.#settle();
  }

  setAgent(has_agent: boolean): void {
    this.#has_agent = has_agent;
    this.#settle();
  }

  #settle(): void {
    if (this.#shown && !this.#paused && this.#has_agent) this.#poller.start(POLL_MS);
    else this.#poller.stop();
    this.#draw();
  }

  #draw(): void {
    this.#head.mark(this.#sort);
    const answer = this.#answer;
    const shown = answer ? sorted(matching(answer.sockets, this.#filter.value), this.#sort) : [];
    this.#rows.replaceChildren(...(answer && shown.length > 0 ? shown.map((socket) => row(socket, answer.at_us)) : [this.#emptyRow()]));
    if (answer) this.#query.show(answer.sql);
    this.#drawSummary(shown);
    this.#drawState();
  }

  #drawSummary(shown: Socket[]): void {
    const { open, ended, acked_bytes_per_s, by_congestion_control } = summary(shown);
    this.#summary.replaceChildren(
      figure("sockets", String(open)),
      figure("ended", String(ended)),
      figure("acked together", format.rate(acked_bytes_per_s)),
      ...by_congestion_control.map(([name, count]) => figure(name ?? "cc unknown", String(count))),
    );
  }

  #drawState(): void {
    showState(this.#state, ...this.#stateText());
  }

  #stateText(): [phase: string, words: string] {
    if (this.#has_agent === false) return ["failed", NO_AGENT];
    if (this.#failure !== null) return ["failed", this.#failure];
    if (this.#answer === null) return ["starting", "connecting"];
    const cut = this.#answer.sockets.length >= SOCKETS_MAX ? `, the busiest ${SOCKETS_MAX}` : "";
    if (this.#paused) return ["starting", `paused${cut}`];
    return ["playing", `last ${format.duration(WINDOW_S)} min${cut}`];
  }

  #emptyRow(): HTMLTableRowElement {
    const waiting = this.#has_agent === false ? NO_AGENT : "Waiting for data.";
    const none = this.#answer?.sockets.length ? "No matching socket." : "No socket in this window.";
    return emptyRow(COLUMNS.length, this.#answer ? none : waiting);
  }
}

function row(socket: Socket, at_us: number): HTMLTableRowElement {
  const { asn, region, delivery_rate_app_limited } = socket;
  const drawn = (which: typeof RATE | typeof RTT) => sparkline(curve(socket.history, which, at_us, WINDOW_S * 1e6));
  const network = [socket.prefix, asn === null ? null : `AS${asn}`, region].filter(Boolean).join(" ");
  const is_limited = delivery_rate_app_limited === true && socket.delivery_rate_bytes_per_s !== null;
  const limited = is_limited ? [el("i", { title: "limited by the application" }, "app"), " "] : [];
  const cells: (string | Node | (string | Node)[])[] = [
    socket.client,
    network,
    socket.is_ended ? "ended" : socket.state,
    socket.congestion_control ?? format.NONE,
    format.micros(socket.rtt_us),
    drawn(RTT),
    format.micros(socket.min_rtt_us),
    count(socket.snd_cwnd),
    [...limited, format.rate(socket.delivery_rate_bytes_per_s)],
    drawn(RATE),
    format.rate(socket.pacing_rate_bytes_per_s),
    format.rate(socket.acked_bytes_per_s),
    socket.bytes_acked === null ? format.NONE : format.bytes(socket.bytes_acked),
    count(socket.retransmits),
    format.seconds(Math.max(0, at_us - socket.last_us) / 1e6, 1),
  ];
  const { cookie, client, local } = socket;
  const title = `${client} to ${local}\n${network}\ncookie ${cookie}`;
  const line = el("tr", { "data-client": client, "data-local": local, title });
  for (const [index, [, name]] of COLUMNS.entries()) line.append(el("td", { class: name }, ...[cells[index] ?? ""].flat()));
  line.toggleAttribute("data-ended", socket.is_ended);
  line.toggleAttribute("data-retransmits", (socket.retransmits ?? 0) > 0);
  return line;
}

function count(value: number | null): string {
  return value === null ? format.NONE : String(value);
}

function sparkline(path: string): SVGElement {
  const viewBox = `0 0 ${CURVE.width} ${CURVE.height}`;
  return svg("svg", { viewBox, preserveAspectRatio: "none", "aria-hidden": "true" }, svg("path", { d: path }));
}
