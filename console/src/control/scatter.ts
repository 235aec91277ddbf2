// The chart of all prefixes by duty cycle and flap rate, with the limits for entering and leaving.

import { el, setAttribute } from "../ui/element";
import { place, type Scale, steps } from "../ui/scale";
import { boxPath, svg } from "../ui/svg";
import type { Limits } from "./api";
import { type Cell, type Cells, hit, radius, shade, SHADES } from "./cells";
import { count, words } from "./figures";

const MARGIN = { left: 40, right: 16, top: 12, bottom: 38 } as const;

/** Maximum prefixes named in a tooltip. */
const NAMED_MAX = 4;

export class Scatter {
  readonly element: HTMLElement;

  readonly #opened: (cell: Cell) => void;
  readonly #picture = svg("svg", { role: "img" });
  readonly #rings = svg("g", { class: "rings" });
  readonly #tip = el("div", { class: "tip", hidden: "" });
  readonly #left_out = el("span", {});
  #cells: Cells | null = null;
  #limits: Limits | null = null;
  #scales: { x: Scale; y: Scale } | null = null;
  #marked: Cell | null = null;
  #pointed: Cell | null = null;

  /** `opened` is called with the clicked cell. */
  constructor(opened: (cell: Cell) => void) {
    this.#opened = opened;
    const frame = el("div", { class: "chart", "data-testid": "control-scatter" });
    frame.append(this.#picture, this.#tip);
    this.element = el("figure", { class: "scatter" }, frame, el("figcaption", {}, legend(), this.#left_out));
    frame.onpointermove = (event) => this.#hover(this.#at(event));
    frame.onpointerleave = () => this.#hover(null);
    frame.onclick = (event) => {
      const cell = this.#at(event);
      if (cell) this.#opened(cell);
    };
    new ResizeObserver(() => this.#draw()).observe(frame);
  }

  show(cells: Cells | null, limits: Limits | null): void {
    this.#cells = cells;
    this.#limits = limits;
    [this.#marked, this.#pointed] = [null, null];
    this.#left_out.textContent = cells && cells.too_few > 0 ? `${count(cells.too_few)} with too few windows left out` : "";
    this.#hover(null);
    this.#draw();
  }

  /** Draws a ring around the open prefix. */
  mark(prefix: string | null): void {
    this.#marked = this.#cellOf(prefix);
    this.#drawRings();
  }

  /** Draws a ring around the prefix under the pointer in the table. */
  point(prefix: string | null): void {
    this.#pointed = this.#cellOf(prefix);
    this.#drawRings();
  }

  #cellOf(name: string | null): Cell | null {
    if (name === null) return null;
    return this.#cells?.cells.find(({ prefixes }) => prefixes.some(({ prefix }) => prefix === name)) ?? null;
  }

  #at(event: MouseEvent): Cell | null {
    if (!this.#cells || !this.#scales) return null;
    const box = this.#picture.getBoundingClientRect();
    return hit(this.#cells, this.#scales.x, this.#scales.y, { x: event.clientX - box.left, y: event.clientY - box.top });
  }

  #hover(cell: Cell | null): void {
    this.#pointed = cell;
    this.#tip.hidden = cell === null;
    this.#tip.parentElement?.toggleAttribute("data-over", cell !== null);
    this.#drawRings();
    if (!cell || !this.#scales) return;
    this.#tip.replaceChildren(...inWords(cell));
    const [x, y] = [place(this.#scales.x, cell.duty), place(this.#scales.y, cell.flap)];
    const is_right = x > this.#scales.x.to_px / 2;
    this.#tip.style.left = is_right ? "" : `${x + 14}px`;
    this.#tip.style.right = is_right ? `${this.#picture.clientWidth - x + 14}px` : "";
    this.#tip.style.top = `${Math.max(0, Math.min(y - 20, this.#picture.clientHeight - this.#tip.offsetHeight))}px`;
  }

  #draw(): void {
    const [width, height] = [this.#picture.clientWidth, this.#picture.clientHeight];
    const [cells, limits] = [this.#cells, this.#limits];
    if (width === 0 || height === 0) return;
    const x: Scale = { from: 0, to: 1, from_px: MARGIN.left, to_px: width - MARGIN.right };
    const y: Scale = { from: 0, to: cells?.flap_to ?? 1, from_px: height - MARGIN.bottom, to_px: MARGIN.top };
    this.#scales = { x, y };
    setAttribute(this.#picture, "viewBox", `0 0 ${width} ${height}`);
    setAttribute(this.#picture, "aria-label", "prefixes by duty cycle and flap rate; the table lists each prefix");
    this.#picture.replaceChildren(...axes(x, y), ...(cells && limits ? parts(x, y, cells, limits) : []), this.#rings);
    this.#drawRings();
  }

  #drawRings(): void {
    if (!this.#scales) return;
    const { x, y } = this.#scales;
    const ring = (cell: Cell | null, name: string) =>
      cell ? [svg("circle", { class: name, cx: place(x, cell.duty), cy: place(y, cell.flap), r: radius(Math.max(1, cell.steered)) + 4 })] : [];
    this.#rings.replaceChildren(...ring(this.#marked, "marked"), ...ring(this.#pointed, "pointed"));
  }
}

function axes(x: Scale, y: Scale): SVGElement[] {
  const label = (at_x: number, at_y: number, anchor: string, text: string) => svg("text", { x: at_x, y: at_y, "text-anchor": anchor }, text);
  const decimals = y.to <= 0.1 ? 2 : 1;
  return [
    ...steps(1, 5).flatMap((duty) => [
      svg("path", { class: "grid", d: `M${place(x, duty)} ${y.to_px}V${y.from_px}` }),
      label(place(x, duty), y.from_px + 19, "middle", duty.toFixed(1)),
    ]),
    ...steps(y.to, 5).flatMap((flap) => [
      svg("path", { class: "grid", d: `M${x.from_px} ${place(y, flap)}H${x.to_px}` }),
      label(x.from_px - 6, place(y, flap) + 3.5, "end", flap.toFixed(decimals)),
    ]),
    label((x.from_px + x.to_px) / 2, y.from_px + 33, "middle", "duty cycle, share of windows in the bottom group"),
    svg("text", { "text-anchor": "middle", transform: `translate(10 ${(y.from_px + y.to_px) / 2}) rotate(-90)` }, "flap rate, changes per window"),
  ];
}

/** Draws the entry area, all prefixes, and the limits on top. */
function parts(x: Scale, y: Scale, cells: Cells, { duty_enter, duty_leave, flap_max }: Limits): SVGElement[] {
  const [enter, leave, flap] = [place(x, duty_enter), place(x, duty_leave), place(y, flap_max)];
  const label = (at_x: number, at_y: number, anchor: string, text: string) => svg("text", { class: "limit", x: at_x, y: at_y, "text-anchor": anchor }, text);
  return [
    svg("path", { class: "entrance", d: boxPath(enter, flap, x.to_px - enter, y.from_px - flap) }),
    ...shades(x, y, cells),
    svg("path", { class: "limit", d: `M${enter} ${y.to_px}V${y.from_px}M${leave} ${y.to_px}V${y.from_px}M${x.from_px} ${flap}H${x.to_px}` }),
    ...marks(x, y, cells),
    label(leave - 4, y.to_px + 8, "end", `leaves at ${duty_leave.toFixed(2)}`),
    label(enter + 4, y.to_px + 8, "start", `enters from ${duty_enter.toFixed(2)}`),
    label(x.to_px - 4, flap - 5, "end", `enters up to ${flap_max.toFixed(2)}`),
  ];
}

/** Draws the shades; all cells of one shade form one element. */
function shades(x: Scale, y: Scale, { cells, duty_step, flap_step }: Cells): SVGElement[] {
  const width = Math.max(2, place(x, duty_step) - x.from_px - 0.7);
  const height = Math.max(2, y.from_px - place(y, flap_step) - 0.7);
  const paths = Array<string>(SHADES).fill("");
  for (const { duty, flap, prefixes, steered } of cells) {
    const which = shade(prefixes.length - steered);
    if (which !== null) paths[which] += boxPath(place(x, duty) - width / 2, place(y, flap) - height / 2, width, height);
  }
  return paths.map((d, which) => svg("path", { class: "shade", "data-shade": which, d }));
}

/** Draws the marks, largest first, so that no mark hides another. */
function marks(x: Scale, y: Scale, { cells }: Cells): SVGElement[] {
  const steered = cells.filter(({ steered }) => steered > 0).sort((a, b) => b.steered - a.steered);
  return steered.flatMap(({ duty, flap, steered, helped }) => {
    const [cx, cy] = [place(x, duty), place(y, flap)];
    const trial = svg("circle", { class: "trial", cx, cy, r: radius(steered) });
    const disk = svg("circle", { class: "helped", cx, cy, r: radius(steered) * Math.sqrt(helped / steered) });
    // The ring represents all steered prefixes. The area of the disk inside it represents the
    // helped ones, on the same scale.
    return helped === 0 ? [trial] : helped === steered ? [disk] : [trial, disk];
  });
}

function inWords({ duty, flap, prefixes, steered, helped }: Cell): HTMLElement[] {
  const named = prefixes.slice(0, NAMED_MAX).map(({ prefix, reason }) => el("div", {}, el("b", {}, prefix), ` ${words(reason)}`));
  const numbers = [`${count(prefixes.length)} ${prefixes.length === 1 ? "prefix" : "prefixes"}`];
  if (steered > 0) numbers.push(`${count(steered)} steered`, `${count(helped)} helped as a whole`);
  const more = prefixes.length > NAMED_MAX ? [el("div", {}, `and ${count(prefixes.length - NAMED_MAX)} more: click to list them`)] : [];
  return [el("div", {}, `duty cycle ${duty.toFixed(2)}, flap rate ${flap.toFixed(2)}`), el("div", {}, numbers.join(", ")), ...named, ...more];
}

function legend(): HTMLElement {
  const dot = (name: string) => svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("circle", { class: name, cx: 6, cy: 6, r: 4 }));
  const boxes = Array.from({ length: SHADES }, (_, which) => svg("path", { class: "shade", "data-shade": which, d: boxPath(which * 9, 2, 8, 8) }));
  return el(
    "span",
    { class: "legend" },
    el("span", {}, dot("helped"), "helped as a whole"),
    el("span", {}, dot("trial"), "on trial or promising"),
    el("span", { title: "unsteered prefixes in a cell: 1, 10, 100, 1,000, 10,000 and more" }, "not steered: 1", svg("svg", { class: "shades", viewBox: "0 0 46 12" }, ...boxes), "10,000"),
  );
}
