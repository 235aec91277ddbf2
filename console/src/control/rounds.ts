// The rounds of a scope as charts on one time axis: kept and new prefixes, delivery rate, goodput.
// The round under the pointer, or else the selected one, is described below the charts.

import * as format from "../format";
import { el, replaceChildren, setAttribute, setText } from "../ui/element";
import { place, type RateUnit, valueAt } from "../ui/scale";
import { svg } from "../ui/svg";
import { type Group, GROUPS, type Rates, type Round, ROUNDS_MAX, type ScopeName, scopeUrl } from "./api";
import { type ChartData, rateLines, stackedBars, timeScale, unitOf } from "./charts";
import { Followed } from "./followed";
import { Pane, WAITING } from "./pane";
import { changes, inWords, type Measure, MEASURES, nearest, PERCENTILES, places } from "./series";

/** Maximum changes named for a round; the table of prefixes lists the others. */
const NAMED_MAX = 60;

const MEASURE_NAMES: Record<Measure, string> = { delivery_rate: "Delivery rate", goodput: "Goodput" };
const GROUP_NAMES = { all: "all", steered: "steered", held_out: "held out" } as const;

export class RoundsPane {
  readonly element: HTMLElement;

  readonly #opened: (prefix: string) => void;
  readonly #charts: Record<"bars" | Measure, Chart>;
  readonly #legends: Record<Measure, LinesLegend> = { delivery_rate: new LinesLegend(), goodput: new LinesLegend() };
  readonly #words = el("p", { "data-testid": "control-round", "aria-live": "polite" });
  readonly #changed = el("div", { class: "changed" });
  readonly #followed: Followed<{ rounds: Round[] }>;
  #rounds: readonly Round[] = [];
  #places: readonly number[] = [];
  #nothing = WAITING;
  /** The selected window; null for the newest. */
  #chosen: number | null = null;
  #pointed: number | null = null;

  constructor(opened: (prefix: string) => void) {
    this.#opened = opened;
    const chart = (name: string, title: string, legend: HTMLElement) =>
      new Chart(name, title, legend, { draw: () => this.#draw(), point: (at) => this.#point(at), choose: () => this.#choose(), step: (by) => this.#step(by) });
    this.#charts = {
      bars: chart("control-bars", "Steered prefixes per round", barsLegend()),
      delivery_rate: chart("control-delivery-rate", MEASURE_NAMES.delivery_rate, this.#legends.delivery_rate.element),
      goodput: chart("control-goodput", MEASURE_NAMES.goodput, this.#legends.goodput.element),
    };
    const description = el("div", { class: "round" }, this.#words, this.#changed);
    const pane = new Pane("control-rounds", "Rounds", ...Object.values(this.#charts).map(({ element }) => element), description);
    this.element = pane.element;
    this.#followed = new Followed<{ rounds: Round[] }>(pane, {
      nothing: "No round decided yet.",
      show: (answer, nothing) => this.#show(answer?.rounds ?? null, nothing),
      state: ({ rounds }) => ["playing", `the last ${rounds.length}`],
    });
  }

  follow(scope: ScopeName, version: string): void {
    this.#followed.follow(scopeUrl("rounds", scope, { limit: String(ROUNDS_MAX) }), version);
  }

  stop(): void {
    this.#followed.stop();
  }

  clear(): void {
    this.#followed.clear();
  }

  #show(rounds: readonly Round[] | null, nothing: string): void {
    if (rounds === null) this.#chosen = null;
    this.#rounds = rounds ?? [];
    this.#places = places(this.#rounds);
    this.#nothing = nothing;
    this.#draw();
  }

  #draw(): void {
    const { bars, delivery_rate, goodput } = this.#charts;
    const chartData = (chart: Chart, has_times: boolean): ChartData => ({ rounds: this.#rounds, places: this.#places, ...chart.size(), has_times });
    const is_empty = this.#rounds.length === 0;
    bars.show("", is_empty ? [] : stackedBars(chartData(bars, false)));
    for (const [measure, chart, has_times] of [["delivery_rate", delivery_rate, false], ["goodput", goodput, true]] as const) {
      const unit = unitOf(this.#rounds, measure);
      chart.show(is_empty ? "" : `${unit.name}, p5 dashed, p10 solid`, is_empty ? [] : rateLines(chartData(chart, has_times), measure, unit));
    }
    this.#describe();
  }

  /**
   * Returns the index of the round to describe: the one under the pointer, the selected one, or the
   * newest.
   */
  #roundIndex(): number {
    if (this.#pointed !== null && this.#pointed < this.#rounds.length) return this.#pointed;
    const chosen = this.#rounds.findIndex(({ window }) => window === this.#chosen);
    return chosen === -1 ? this.#rounds.length - 1 : chosen;
  }

  #describe(): void {
    const index = this.#roundIndex();
    const round = this.#rounds[index];
    const at = this.#places[index];
    for (const chart of Object.values(this.#charts)) {
      const scale = timeScale({ rounds: this.#rounds, places: this.#places, ...chart.size(), has_times: false });
      chart.cursor(round && at !== undefined ? place(scale, at) : null, index === this.#rounds.length - 1 && this.#pointed === null);
    }
    setText(this.#words, round ? inWords(round) : this.#nothing);
    for (const measure of MEASURES) this.#legends[measure].showValues(round?.[measure] ?? null, unitOf(this.#rounds, measure));
    const all = round ? changes(round) : [];
    const buttons = all.slice(0, NAMED_MAX).map(({ prefix, what, words }) => {
      const button = el("button", { type: "button", "data-what": what, "data-key": `${prefix} ${what}`, title: `${prefix}: why` }, el("b", {}, prefix), ` ${words}`);
      button.onclick = () => this.#opened(prefix);
      return button;
    });
    const more = all.length > NAMED_MAX ? [el("span", {}, `and ${all.length - NAMED_MAX} more`)] : [];
    replaceChildren(this.#changed, ...buttons, ...more);
  }

  /** Updates the pointer's position; null if the pointer has left the charts. */
  #point(at: { chart: Chart; x: number } | null): void {
    if (at) {
      const scale = timeScale({ rounds: this.#rounds, places: this.#places, ...at.chart.size(), has_times: false });
      this.#pointed = this.#rounds.length > 0 ? nearest(this.#places, valueAt(scale, at.x)) : null;
    } else this.#pointed = null;
    this.#describe();
  }

  #choose(): void {
    this.#chosen = this.#rounds[this.#roundIndex()]?.window ?? null;
    this.#describe();
  }

  #step(by: number): void {
    this.#pointed = null;
    const index = Math.min(this.#rounds.length - 1, Math.max(0, this.#roundIndex() + by));
    // Do not pin the newest round, so that the next one replaces it.
    this.#chosen = index === this.#rounds.length - 1 ? null : (this.#rounds[index]?.window ?? null);
    this.#describe();
  }
}

interface ChartListener {
  draw(): void;
  point(at: { chart: Chart; x: number } | null): void;
  choose(): void;
  step(by: number): void;
}

/** A chart with its title and a cursor at the described round. */
class Chart {
  readonly element: HTMLElement;

  readonly #unit = el("span", { class: "unit" });
  readonly #picture = svg("svg", { "aria-hidden": "true" });
  readonly #cursor = svg("path", { class: "cursor" });
  readonly #content = svg("g");

  constructor(testid: string, title: string, legend: HTMLElement, listener: ChartListener) {
    this.#picture.append(this.#content, this.#cursor);
    const frame = el("div", { class: "chart", tabindex: "0", "data-testid": testid, role: "group", "aria-label": `${title}: arrow keys move between rounds` });
    frame.append(this.#picture);
    this.element = el("figure", { class: "rounds" }, el("figcaption", {}, el("span", {}, el("b", {}, title), " ", this.#unit), legend), frame);
    frame.onpointermove = ({ clientX }) => listener.point({ chart: this, x: clientX - this.#picture.getBoundingClientRect().left });
    frame.onpointerleave = () => listener.point(null);
    frame.onclick = () => listener.choose();
    frame.onkeydown = (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12, Home: -ROUNDS_MAX, End: ROUNDS_MAX }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      listener.step(by);
    };
    new ResizeObserver(() => listener.draw()).observe(frame);
  }

  size(): { width: number; height: number } {
    return { width: this.#picture.clientWidth, height: this.#picture.clientHeight };
  }

  show(unit: string, content: SVGElement[]): void {
    const { width, height } = this.size();
    setText(this.#unit, unit);
    setAttribute(this.#picture, "viewBox", `0 0 ${Math.max(1, width)} ${Math.max(1, height)}`);
    this.#content.replaceChildren(...(width > 0 && height > 0 ? content : []));
  }

  /**
   * Moves the cursor. `is_resting` means that the newest round is described because none is
   * selected.
   */
  cursor(x: number | null, is_resting: boolean): void {
    setAttribute(this.#cursor, "d", x === null || is_resting ? null : `M${x} 0V${this.size().height}`);
  }
}

function barsLegend(): HTMLElement {
  const box = (name: string, label: string) => el("span", {}, svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("rect", { class: name, x: 1, y: 1, width: 10, height: 10 })), label);
  const stopped = el("span", {}, svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("path", { class: "stopped", d: "M6 0V12" })), "stopped");
  stopped.title = "stopped by the guardrail: all prefixes on trial have left";
  return el("span", { class: "legend" }, box("kept", "kept"), box("entered", "new"), box("left", "left"), stopped);
}

/** Legend of the line charts: the groups, with their values in the described round. */
class LinesLegend {
  readonly element: HTMLElement;

  readonly #values: Record<Group, HTMLElement> = { all: el("b"), steered: el("b"), held_out: el("b") };

  constructor() {
    const groups = GROUPS.map((group) => key(`${group} p10`, GROUP_NAMES[group], this.#values[group]));
    this.element = el("span", { class: "legend", title: "p5 and p10 in the round described below" }, ...groups);
  }

  /** Shows the values in the chart's unit. */
  showValues(rates: Rates | null, unit: RateUnit): void {
    for (const group of GROUPS) {
      const known = rates?.[group];
      const values = PERCENTILES.map((percentile) => valueIn(unit, known?.[percentile] ?? null));
      setText(this.#values[group], known ? values.join("/") : format.NONE);
    }
  }
}

function valueIn({ bytes_per_s }: RateUnit, value: number | null): string {
  return value === null ? format.NONE : (value / bytes_per_s).toFixed(2);
}

function key(name: string, label: string, ...more: HTMLElement[]): HTMLElement {
  const line = svg("svg", { class: "wide", viewBox: "0 0 14 12", "aria-hidden": "true" }, svg("path", { class: `line ${name}`, d: "M1 6H13" }));
  return el("span", {}, line, label, ...more);
}
