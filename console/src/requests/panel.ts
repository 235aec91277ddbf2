// A live list of the latest requests, newest first, which can be filtered and paused.
//
// Records may arrive faster than the screen can show them. All are added to the list, but it is
// drawn at most once per `DRAW_EVERY_MS`.

import type { RecordListener } from "../api";
import type { ResponseRecord } from "../record";
import * as format from "../format";
import { el, setAttribute, setText } from "../ui/element";
import { emptyRow, figure, scrolling, showState } from "../ui/table";
import { LastRecords, RECORDS_MAX, totals } from "./totals";

const DRAW_EVERY_MS = 200;

const COLUMNS = [
  ["time", "time"],
  ["path", "path"],
  ["status", "status"],
  ["bytes", "content"],
  ["ttfb", "TTFB"],
  ["duration", "written"],
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
  /**
   * Number of records dropped by the server since the page was opened, because the page was too
   * slow.
   */
  #lost = 0;
  #connected = false;
  #drawing = false;

  /** `head` is placed at the start of the panel's head. */
  constructor(head: HTMLElement) {
    this.#pause.onclick = () => this.#togglePause();
    this.#filter.oninput = () => this.#draw();
    this.element = el(
      "section",
      { class: "records", "aria-label": "requests" },
      el("header", {}, head, this.#link, this.#totals, this.#filter, this.#pause),
      scrolling(COLUMNS, this.#rows),
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
    // A pause freezes the list. Records that arrive during the pause are counted but never shown.
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
    setText(this.#pause, this.#paused ? "Resume" : "Pause");
    this.#draw();
  }

  #draw(): void {
    const shown = this.#records.matching(this.#filter.value);
    const nothing = this.#filter.value.trim() ? "No matching request." : "No request yet.";
    this.#rows.replaceChildren(...(shown.length > 0 ? shown.map(row) : [emptyRow(COLUMNS.length, nothing)]));
    this.#drawTotals(shown);
    this.#drawLink();
  }

  #drawTotals(shown: ResponseRecord[]): void {
    const { count, bytes, hit_ratio, ttfb_us_p50, ttfb_us_p99 } = totals(shown);
    this.#totals.replaceChildren(
      figure(`last ${RECORDS_MAX}`, String(count)),
      figure("content", format.bytes(bytes)),
      figure("hit ratio", hit_ratio === null ? format.NONE : `${(hit_ratio * 100).toFixed(0)} %`),
      figure("TTFB p50", format.micros(ttfb_us_p50 ?? undefined)),
      figure("p99", format.micros(ttfb_us_p99 ?? undefined)),
    );
  }

  #drawLink(): void {
    const paused = this.#missed > 0 ? `paused, ${this.#missed} since` : "paused";
    const lost = this.#lost > 0 ? `, ${this.#lost} lost` : "";
    if (!this.#connected) showState(this.#link, "starting", "connecting");
    else if (this.#paused) showState(this.#link, "paused", paused + lost);
    else showState(this.#link, "playing", `live${lost}`);
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
    duration: format.micros(record.written_us),
    goodput: format.rate(record.goodput_bytes_per_s ?? null),
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

/** Lists the fields that have no column. */
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
