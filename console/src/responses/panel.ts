// How long responses took to begin, by what they have in common; a group, or a bar of it, opens the single responses
// behind it, and one of those everything that is known of it.
//
// While no group is open the distributions are asked for again and again; from then on everything stands still until
// it is refreshed, so that what is looked into does not move away.

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
import { el, setAttribute, setText } from "../ui/element";
import { bucketRange } from "./axis";
import { FIRST_CHOICE, type ResponsesChoice, WINDOWS } from "./choice";
import { GroupsTable } from "./groups";
import { SinglesTable } from "./singles";

const ASK_EVERY_MS = 5000;

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
    ask: (signal) => this.#askSingles(signal),
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
  /** Null: not known yet. */
  #has_agent: boolean | null = null;

  /** `head` begins the panel's own; `chosen` is told what the viewer wants to see, and has it come back by `choose`. */
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

  /** Whether somebody looks at it. */
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

  /** Asks for what is wanted and not there; `anew`: for what is there as well. */
  #settle(anew: boolean): void {
    const is_open = this.#choice.group !== null;
    if (!this.#shown || !this.#has_agent) {
      this.#groups.stop();
      this.#singles.stop();
      return;
    }
    if (!is_open) this.#groups.start(ASK_EVERY_MS);
    else if (anew || this.#ttfb === null) this.#groups.start(null);
    else this.#groups.stop();
    if (is_open && (anew || this.#responses === null)) this.#singles.start(null);
    else this.#singles.stop();
  }

  #askSingles(signal: AbortSignal): Promise<ResponsesAnswer> {
    const { by, window_s, group, bucket } = this.#choice;
    const ttfb = bucket === null ? null : bucketRange(bucket);
    return fetchResponses({ by, name: group?.name ?? null, ttfb }, window_s, signal);
  }

  #drawGroups(): void {
    const waiting = this.#has_agent === false ? NO_AGENT : "Not answered yet.";
    this.#table.show(this.#ttfb?.groups ?? [], this.#ttfb ? "No response in this time." : waiting);
    this.#table.mark(this.#choice);
    if (this.#ttfb) this.#query.show(this.#ttfb.sql);
    this.#drawState();
  }

  #drawState(): void {
    const [phase, words] = this.#told();
    setText(this.#state, words);
    setAttribute(this.#state, "data-phase", phase);
  }

  #told(): [phase: string, words: string] {
    if (this.#has_agent === false) return ["failed", NO_AGENT];
    if (this.#failure !== null) return ["failed", this.#failure];
    if (this.#ttfb === null) return ["starting", "connecting"];
    const { groups } = this.#ttfb;
    const count = groups.reduce((sum, { responses }) => sum + responses, 0);
    const cut = groups.length >= GROUPS_MAX ? ` of the ${GROUPS_MAX} largest groups` : "";
    const words = `${count} ${count === 1 ? "response" : "responses"}${cut}`;
    return this.#choice.group === null ? ["playing", words] : ["starting", `${words}, held until refreshed`];
  }
}

function select(label: string, testid: string, options: (readonly [value: string, label: string])[]): HTMLSelectElement {
  const items = options.map(([value, label]) => el("option", { value }, label));
  return el("select", { "aria-label": label, "data-testid": testid }, ...items);
}
