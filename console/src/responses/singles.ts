// The responses of a group or a bar, longest TTFB first. The open response is shown with all its
// fields.

import * as format from "../format";
import { RESPONSES_MAX, type ResponsesAnswer, type SingleResponse } from "../telemetry/api";
import { QueryDisclosure } from "../telemetry/query";
import { el, replaceChildren, setAttribute } from "../ui/element";
import { emptyRow, scrolling, showState } from "../ui/table";
import { bucketLabel } from "./axis";
import { responseKey, type ResponsesChoice } from "./choice";
import { details } from "./details";
import { groupLabel } from "./groups";

const COLUMNS = [
  ["time", "time"],
  ["path", "path"],
  ["client", "client"],
  ["status", "status"],
  ["bytes", "content"],
  ["ttfb", "TTFB"],
  ["duration", "written"],
  ["goodput", "goodput"],
  ["cache", "cache"],
  ["cc", "cc"],
  ["rtt", "RTT"],
] as const;

/** The parts of the choice that this panel can change. */
type Change = Partial<Pick<ResponsesChoice, "group" | "bucket" | "response">>;

export class SinglesTable {
  readonly element: HTMLElement;

  readonly #changed: (part: Change) => void;
  readonly #title = el("span", { class: "state", role: "status", "data-testid": "singles-state" });
  readonly #query = new QueryDisclosure();
  readonly #whole = el("button", { type: "button", "data-testid": "singles-whole" }, "Whole group");
  readonly #rows = el("tbody", { "data-testid": "singles" });
  readonly #scroll = scrolling(COLUMNS, this.#rows);

  constructor(changed: (part: Change) => void) {
    this.#changed = changed;
    this.#whole.onclick = () => changed({ bucket: null, response: null });
    const close = el("button", { type: "button", "data-testid": "singles-close" }, "Close");
    close.onclick = () => changed({ group: null, bucket: null, response: null });
    const header = el("header", {}, this.#title, this.#query.element, this.#whole, close);
    this.element = el("div", { class: "singles", hidden: "" }, header, this.#scroll);
  }

  /**
   * Shows the responses of the choice; `answer` is null until it arrives. Hidden if no group is
   * open.
   */
  show(choice: ResponsesChoice, answer: ResponsesAnswer | null): void {
    const { group, bucket, response } = choice;
    this.element.hidden = group === null;
    this.#whole.hidden = bucket === null;
    if (group === null) return;
    const name = groupLabel(group.name) + (bucket === null ? "" : `, TTFB ${bucketLabel(bucket)}`);
    showState(this.#title, answer ? "playing" : "starting", answer ? `${name}: ${found(answer, response)}` : name);
    const rows = (answer?.responses ?? []).flatMap((single) => this.#row(single, response));
    replaceChildren(this.#rows, ...(rows.length > 0 ? rows : [emptyRow(COLUMNS.length, answer ? "No response in this window." : "Waiting for data.")]));
    if (answer) this.#query.show(answer.sql);
    this.#scrollToOpen();
  }

  /** Scrolls the open response to the top to leave the most room for its details. */
  #scrollToOpen(): void {
    const open = this.#rows.querySelector<HTMLElement>("[data-open]");
    if (open) this.#scroll.scrollTop = open.offsetTop - this.#rows.offsetTop;
  }

  fail(message: string): void {
    showState(this.#title, "failed", message);
  }

  /** Returns the row of a response, and its details if it is open. */
  #row(single: SingleResponse, open: string | null): HTMLElement[] {
    const key = responseKey(single);
    const is_open = key === open;
    const line = row(single, is_open);
    line.onclick = () => this.#changed({ response: is_open ? null : key });
    return is_open ? [line, detailRow(single)] : [line];
  }
}

function found({ responses }: ResponsesAnswer, open: string | null): string {
  const all = responses.length === 1 ? "1 response" : `${responses.length} responses, slowest first`;
  const count = responses.length >= RESPONSES_MAX ? `the slowest ${RESPONSES_MAX} responses` : all;
  const is_there = open === null || responses.some((single) => responseKey(single) === open);
  return is_there ? count : `${count}; the open one is no longer among them`;
}

function row(single: SingleResponse, is_open: boolean): HTMLElement {
  const path = single.method === "GET" ? single.path : `${single.method} ${single.path}`;
  const button = el("button", { type: "button", "aria-expanded": String(is_open), "data-key": responseKey(single), title: path }, path);
  const cells: Record<(typeof COLUMNS)[number][0], string | HTMLElement> = {
    time: format.clock(new Date(single.time_us / 1000).toISOString()),
    path: button,
    client: single.client,
    status: String(single.status),
    bytes: format.bytes(single.bytes),
    ttfb: format.micros(single.ttfb_us),
    duration: format.micros(single.written_us),
    goodput: format.rate(single.goodput_bytes_per_s),
    cache: single.cache,
    cc: single.congestion_control ?? format.NONE,
    rtt: format.micros(single.rtt_us),
  };
  const line = el("tr", { "data-cache": single.cache, "data-class": `${Math.floor(single.status / 100)}xx` });
  for (const [name] of COLUMNS) line.append(el("td", { class: name }, cells[name]));
  if (single.cut) setAttribute(line, "data-cut", single.cut);
  line.toggleAttribute("data-open", is_open);
  return line;
}

function detailRow(single: SingleResponse): HTMLElement {
  const groups = details(single).map(({ name, fields }) => {
    const pairs = fields.map(({ key, label, value }) => {
      const field = el("div", { "data-field": key }, el("dt", {}, label), el("dd", {}, value));
      field.toggleAttribute("data-none", value === format.NONE);
      return field;
    });
    return el("div", {}, el("h3", {}, name), el("dl", {}, ...pairs));
  });
  const all = el("div", { class: "details", "data-testid": "details" }, ...groups);
  return el("tr", { class: "detail" }, el("td", { colspan: String(COLUMNS.length) }, all));
}
