// The page's head: name, selector for presentations, links to the selected presentation, and
// faults.

import type { Fault } from "./api";
import { type Choice, choiceKey, type Presentation } from "./choice";
import * as format from "./format";
import { copyButton } from "./ui/copy";
import { el, setText } from "./ui/element";
import { svg } from "./ui/svg";

const GROUPS = [
  ["live", "Live"],
  ["vod", "On demand"],
] as const;

export class Header {
  readonly element: HTMLElement;

  readonly #version = el("span", { class: "version" });
  readonly #select = el("select", { "data-testid": "choice", "aria-label": "channel or file" });
  readonly #links = el("nav", { class: "links", "aria-label": "addresses" });
  readonly #faults = el("details", { class: "faults", "data-testid": "faults", hidden: "" });
  readonly #fault = el("p", { class: "fault", role: "alert", "data-testid": "fault", hidden: "" });
  #offered = "";

  /** `choose` receives the key of the viewer's choice. */
  constructor(choose: (key: string) => void) {
    this.#select.onchange = () => choose(this.#select.value);
    this.element = el(
      "header",
      { class: "page" },
      el("h1", {}, wave(), "Thalweg"),
      this.#version,
      this.#select,
      this.#links,
      this.#faults,
      this.#fault,
    );
    this.showCatalogue([], null, []);
  }

  /** Shows the configuration; `plays` is whether there is an edge to play from. */
  showConfig(version: string, plays: boolean): void {
    setText(this.#version, version);
    for (const element of [this.#select, this.#links]) element.hidden = !plays;
  }

  /** Shows a failure of the page itself; null clears it. */
  showFault(message: string | null): void {
    setText(this.#fault, message ?? "");
    this.#fault.hidden = message === null;
  }

  showCatalogue(available: Presentation[], chosen: Choice | null, faults: Fault[]): void {
    // Rebuild the list only if it changed, because rebuilding closes an open list.
    const offered = JSON.stringify([available, chosen]);
    if (offered !== this.#offered) {
      this.#offered = offered;
      this.#offer(available, chosen);
    }
    this.#showFaults(faults);
  }

  showLinks(edge: string, presentation: Presentation): void {
    this.#links.replaceChildren(
      link("HLS", edge + presentation.hls, "link-hls"),
      link("DASH", edge + presentation.dash, "link-dash"),
    );
  }

  #offer(available: Presentation[], chosen: Choice | null): void {
    const key = chosen ? choiceKey(chosen) : "";
    const groups = GROUPS.flatMap(([kind, label]) => {
      const options = available.filter((item) => item.kind === kind).map(option);
      return options.length > 0 ? [el("optgroup", { label }, ...options)] : [];
    });
    const there = available.some((item) => choiceKey(item) === key);
    const absent = there ? [] : [el("option", { value: key }, chosen ? `${chosen.name} (waiting)` : "nothing to play")];
    this.#select.replaceChildren(...absent, ...groups);
    this.#select.value = key;
    this.#select.disabled = available.length === 0;
  }

  #showFaults(faults: Fault[]): void {
    this.#faults.hidden = faults.length === 0;
    if (faults.length === 0) return;
    const summary = faults.length === 1 ? "1 presentation or track is not served" : `${faults.length} presentations or tracks are not served`;
    const items = faults.map(({ name, message }) => el("li", {}, el("strong", {}, name), ` ${message}`));
    this.#faults.replaceChildren(el("summary", {}, summary), el("ul", {}, ...items));
  }
}

function option(item: Presentation): HTMLOptionElement {
  const length = item.durationS === null ? "" : `  ${format.duration(item.durationS)}`;
  return el("option", { value: choiceKey(item) }, item.name + length);
}

/** Creates a link, with a button that copies its URL. */
function link(label: string, url: string, testid: string): HTMLElement {
  const anchor = el("a", { href: url, target: "_blank", rel: "noreferrer", "data-testid": testid, title: url });
  anchor.append(el("b", {}, label), ` ${new URL(url).pathname}`);
  return el("span", {}, anchor, copyButton(() => url, `copy ${url}`));
}

/** Draws the logo: two wavy lines. */
function wave(): SVGElement {
  const line = (y: number) => svg("path", { d: `M3 ${y}c5-5 9-5 13 0s8 5 13 0` });
  return svg("svg", { viewBox: "0 0 32 32", "aria-hidden": "true" }, line(12), line(20));
}
