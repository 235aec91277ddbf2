// TTFB distributions of responses by group. Clicking a group or a bar lists its responses; clicking
// a response shows its details.
//
// Distributions are polled while no group is open. While a group is open, all data is frozen until
// the viewer refreshes it, so that it does not change during inspection.

import {
  fetchResponses,
  fetchTtfb,
  type Grouping,
  GROUPINGS,
  GROUPS_MAX,
  NO_AGENT,
  type ResponsesAnswer,
  type TtfbAnswer,
} from "../telemetry/api";
import { Poller } from "../telemetry/poller";
import { QueryDisclosure } from "../telemetry/query";
import { el } from "../ui/element";
import { showState } from "../ui/table";
import { bucketRange } from "./axis";
import { FIRST_CHOICE, type ResponsesChoice, WINDOWS } from "./choice";
import { GroupsTable } from "./groups";
import { SinglesTable } from "./singles";

const POLL_MS = 5000;

const GROUPING_NAMES: Record<Grouping, string> = {
  path: "by path",
  request_host: "by host",
  cache: "by cache result",
  congestion_control: "by congestion control",
  prefix: "by network",
};

export class ResponsesPanel {
  readonly element: HTMLElement;

  readonly #chosen: (choice: ResponsesChoice) => void;
  readonly #state = el("span", { class: "state", role: "status", "data-testid": "responses-state" });
  readonly #by = select("grouping", "responses-by", GROUPINGS.map((by) => [by, GROUPING_NAMES[by]]));
  readonly #window = select("time", "responses-window", WINDOWS.map(([s, label]) => [String(s), label]));
  readonly #query = new QueryDisclosure();
  readonly #table = new GroupsTable((group, bucket) => this.#change({ group, bucket, response: null }));
  readonly #single = new SinglesTable((part) => this.#change(part));
  readonly #groups = new Poller<TtfbAnswer>({
    ask: (signal) => fetchTtfb(this.#choice.by, this.#choice.window_s, signal),
    answered: (answer) => {
      this.#ttfb = answer;
      this.#failure = null;
      this.#drawGroups();
    },
    failed: (message) => {
      this.#failure = message;
      this.#drawState();
    },
  });
  readonly #singles = new Poller<ResponsesAnswer>({
    ask: (signal) => this.#fetchSingles(signal),
    answered: (answer) => {
      this.#responses = answer;
      this.#single.show(this.#choice, answer);
    },
    failed: (message) => this.#single.fail(message),
  });

  #choice: ResponsesChoice = FIRST_CHOICE;
  #ttfb: TtfbAnswer | null = null;
  #responses: ResponsesAnswer | null = null;
  #failure: string | null = null;
  #shown = false;
  /** Whether there is an agent; null until known. */
  #has_agent: boolean | null = null;

  /**
   * `head` is placed at the start of the panel's head; `chosen` receives the viewer's choice, which
   * is passed back to `choose`.
   */
  constructor(head: HTMLElement, chosen: (choice: ResponsesChoice) => void) {
    this.#chosen = chosen;
    this.#by.onchange = () => this.#regroup();
    this.#window.onchange = () => this.#regroup();
    const refresh = el("button", { type: "button", "data-testid": "responses-refresh" }, "Refresh");
    refresh.onclick = () => this.#settle(true);
    this.element = el(
      "section",
      { class: "records responses", "aria-label": "responses" },
      el("header", {}, head, this.#state, this.#query.element, this.#by, this.#window, refresh),
      this.#table.element,
      this.#single.element,
    );
    this.#drawGroups();
  }

  /** Starts updates when the panel is shown, and stops them when it is hidden. */
  show(shown: boolean): void {
    if (this.#shown === shown) return;
    this.#shown = shown;
    this.#settle(false);
  }

  setAgent(has_agent: boolean): void {
    this.#has_agent = has_agent;
    this.#settle(false);
    this.#drawGroups();
  }

  choose(choice: ResponsesChoice): void {
    const before = this.#choice;
    this.#choice = choice;
    const regrouped = before.by !== choice.by || before.window_s !== choice.window_s;
    const reopened = before.group?.name !== choice.group?.name || before.bucket !== choice.bucket;
    if (regrouped) this.#ttfb = null;
    if (regrouped || reopened) {
      this.#responses = null;
      this.#settle(false);
    }
    this.#by.value = choice.by;
    this.#window.value = String(choice.window_s);
    if (regrouped) this.#drawGroups();
    this.#table.mark(choice);
    this.#drawState();
    this.#single.show(choice, this.#responses);
  }

  #change(part: Partial<ResponsesChoice>): void {
    this.#chosen({ ...this.#choice, ...part });
  }

  #regroup(): void {
    const by = GROUPINGS.find((by) => by === this.#by.value) ?? FIRST_CHOICE.by;
    this.#change({ by, window_s: Number(this.#window.value), group: null, bucket: null, response: null });
  }

  /** Requests missing data; with `anew`, also refreshes the data already present. */
  #settle(anew: boolean): void {
    const is_open = this.#choice.group !== null;
    if (!this.#shown || !this.#has_agent) {
      this.#groups.stop();
      this.#singles.stop();
      return;
    }
    if (!is_open) this.#groups.start(POLL_MS);
    else if (anew || this.#ttfb === null) this.#groups.start(null);
    else this.#groups.stop();
    if (is_open && (anew || this.#responses === null)) this.#singles.start(null);
    else this.#singles.stop();
  }

  #fetchSingles(signal: AbortSignal): Promise<ResponsesAnswer> {
    const { by, window_s, group, bucket } = this.#choice;
    const ttfb = bucket === null ? null : bucketRange(bucket);
    return fetchResponses({ by, name: group?.name ?? null, ttfb }, window_s, signal);
  }

  #drawGroups(): void {
    const waiting = this.#has_agent === false ? NO_AGENT : "Waiting for data.";
    this.#table.show(this.#ttfb?.groups ?? [], this.#ttfb ? "No response in this window." : waiting);
    this.#table.mark(this.#choice);
    if (this.#ttfb) this.#query.show(this.#ttfb.sql);
    this.#drawState();
  }

  #drawState(): void {
    showState(this.#state, ...this.#stateText());
  }

  #stateText(): [phase: string, words: string] {
    if (this.#has_agent === false) return ["failed", NO_AGENT];
    if (this.#failure !== null) return ["failed", this.#failure];
    if (this.#ttfb === null) return ["starting", "connecting"];
    const { groups } = this.#ttfb;
    const count = groups.reduce((sum, { responses }) => sum + responses, 0);
    const cut = groups.length >= GROUPS_MAX ? ` of the ${GROUPS_MAX} largest groups` : "";
    const words = `${count} ${count === 1 ? "response" : "responses"}${cut}`;
    return this.#choice.group === null ? ["playing", words] : ["starting", `${words}, frozen until refreshed`];
  }
}

function select(label: string, testid: string, options: (readonly [value: string, label: string])[]): HTMLSelectElement {
  const items = options.map(([value, label]) => el("option", { value }, label));
  return el("select", { "aria-label": label, "data-testid": testid }, ...items);
}
