// The last requests as they happen: newest first, filtered, with a pause.
//
// Records may come far faster than a screen can show; they are kept as they come and drawn at most once a
// `DRAW_EVERY_MS`.

import type { RecordListener, ResponseRecord } from "../api";
import * as format from "../format";
import { el, setAttribute, setText } from "../ui/element";
import { LastRecords, RECORDS_MAX, totals } from "./totals";

const DRAW_EVERY_MS = 200;

const COLUMNS = [
  ["time", "time"],
  ["path", "path"],
  ["status", "status"],
  ["bytes", "content"],
  ["ttfb", "TTFB"],
  ["duration", "duration"],
  ["goodput", "goodput"],
  ["cache", "cache"],
  ["cc", "cc"],
  ["rtt", "RTT"],
] as const;

export class RequestsPanel implements RecordListener {
  readonly element: HTMLElement;

  readonly #records = new LastRecords();
  readonly #rows = el("tbody", { "data-testid": "records" });
  readonly #filter = el("input", {
    type: "search",
    placeholder: "path contains …",
    "aria-label": "show requests whose path contains",
    "data-testid": "records-filter",
  });
  readonly #pause = el("button", { type: "button", "data-testid": "records-pause" }, "Pause");
  readonly #totals = el("dl", { class: "totals", "data-testid": "records-totals" });
  readonly #link = el("span", { class: "state", role: "status", "data-testid": "records-state" });

  #paused = false;
  #missed = 0;
  /** Records that the server left out because this page was too slow for them, since it was opened. */
  #lost = 0;
  #connected = false;
  #drawing = false;

  /** `head` begins the panel's own. */
  constructor(head: HTMLElement) {
    const names = COLUMNS.map(([name, label]) => el("th", { scope: "col", class: name }, label));
    this.#pause.onclick = () => this.#togglePause();
    this.#filter.oninput = () => this.#draw();
    this.element = el(
      "section",
      { class: "records", "aria-label": "requests" },
      el("header", {}, head, this.#link, this.#totals, this.#filter, this.#pause),
      el(
        "div",
        { class: "scroll", tabindex: "0" },
        el("table", {}, el("thead", {}, el("tr", {}, ...names)), this.#rows),
      ),
    );
    this.#draw();
  }

  lost(count: number): void {
    this.#lost += count;
    this.#drawLink();
  }

  connected(up: boolean): void {
    this.#connected = up;
    this.#drawLink();
  }

  record(record: ResponseRecord): void {
    // A pause keeps what is on the screen; what comes meanwhile is counted and not shown later.
    if (this.#paused) this.#missed += 1;
    else this.#records.push(record);
    if (this.#drawing) return;
    this.#drawing = true;
    setTimeout(() => {
      this.#drawing = false;
      if (this.#paused) this.#drawLink();
      else this.#draw();
    }, DRAW_EVERY_MS);
  }

  #togglePause(): void {
    this.#paused = !this.#paused;
    this.#missed = 0;
    setText(this.#pause, this.#paused ? "Go on" : "Pause");
    this.#draw();
  }

  #draw(): void {
    const shown = this.#records.matching(this.#filter.value);
    this.#rows.replaceChildren(...(shown.length > 0 ? shown.map(row) : [emptyRow(this.#filter.value)]));
    this.#drawTotals(shown);
    this.#drawLink();
  }

  #drawTotals(shown: ResponseRecord[]): void {
    const { count, bytes, hit_ratio, ttfb_us_p50, ttfb_us_p99 } = totals(shown);
    const pair = (name: string, value: string) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
    this.#totals.replaceChildren(
      pair(`last ${RECORDS_MAX}`, String(count)),
      pair("content", format.bytes(bytes)),
      pair("hit ratio", hit_ratio === null ? format.NONE : `${(hit_ratio * 100).toFixed(0)} %`),
      pair("TTFB p50", format.micros(ttfb_us_p50 ?? undefined)),
      pair("p99", format.micros(ttfb_us_p99 ?? undefined)),
    );
  }

  #drawLink(): void {
    const paused = this.#missed > 0 ? `paused, ${this.#missed} since` : "paused";
    const lost = this.#lost > 0 ? `, ${this.#lost} lost` : "";
    setText(this.#link, !this.#connected ? "connecting" : (this.#paused ? paused : "as they happen") + lost);
    setAttribute(this.#link, "data-phase", !this.#connected ? "starting" : this.#paused ? "paused" : "playing");
  }
}

function row(record: ResponseRecord): HTMLTableRowElement {
  const { tcp } = record;
  const cells: Record<(typeof COLUMNS)[number][0], string> = {
    time: format.clock(record.time),
    path: record.method === "GET" ? record.path : `${record.method} ${record.path}`,
    status: String(record.status),
    bytes: format.bytes(record.bytes),
    ttfb: format.micros(record.ttfb_us),
    duration: format.micros(record.duration_us),
    goodput: format.bitsPerS(record.goodput_bytes_per_s * 8),
    cache: record.cache,
    cc: tcp?.congestion_control ?? format.NONE,
    rtt: format.micros(tcp?.rtt_us),
  };
  const line = el("tr", { "data-cache": record.cache, "data-class": `${Math.floor(record.status / 100)}xx` });
  for (const [name] of COLUMNS) line.append(el("td", { class: name }, cells[name]));
  line.title = details(record);
  if (record.cut) {
    setAttribute(line, "data-cut", record.cut);
    line.querySelector(".bytes")?.prepend("✂ ");
  }
  return line;
}

/** What the columns have no room for. */
function details({ method, host, path, client, protocol, cut, tcp }: ResponseRecord): string {
  const lines = [`${method} ${host}${path}`, `${protocol} from ${client}`];
  if (cut) lines.push(`cut: ${cut.replaceAll("_", " ")}`);
  if (tcp) {
    const rate = tcp.delivery_rate_bytes_per_s;
    lines.push(
      `min RTT ${format.micros(tcp.min_rtt_us)}, cwnd ${tcp.snd_cwnd}, retransmits ${tcp.retransmits}, lost ${tcp.lost}`,
      `delivery rate ${rate === undefined ? format.NONE : format.bitsPerS(rate * 8)}`,
    );
  }
  return lines.join("\n");
}

function emptyRow(filter: string): HTMLTableRowElement {
  const words = filter.trim() ? "No request among the last matches." : "No request yet.";
  return el("tr", { class: "empty" }, el("td", { colspan: String(COLUMNS.length) }, words));
}
