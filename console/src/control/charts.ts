// Charts of rounds on a common time axis: kept and new prefixes, and rate percentiles. Each chart
// is redrawn as a whole.

import { place, type RateUnit, rateUnit, type Scale, steps, timeTicks } from "../ui/scale";
import { boxPath, linePath, svg } from "../ui/svg";
import type { Round } from "./api";
import { beginnings, lines, type Measure } from "./series";

const MARGIN = { left: 40, right: 10, top: 8, bottom: 6, times: 18 } as const;

/** Width of a time label on the axis. */
const TIME_PX = 58;

/** Height of a value label. */
const VALUE_PX = 26;

/** Width of the "steering begins" label. */
const BEGAN_PX = 90;

/** Minimum bar height, so that a few new prefixes stay visible beside hundreds of kept ones. */
const BAR_PX_MIN = 1.5;

/** Data and size of a chart: rounds and their positions. */
export interface ChartData {
  rounds: readonly Round[];
  places: readonly number[];
  width: number;
  height: number;
  /** Whether the chart has time labels. */
  has_times: boolean;
}

/** Returns the common time axis, on which a window has width 1. */
export function timeScale({ places, width }: ChartData): Scale {
  return { from: -0.5, to: (places.at(-1) ?? 0) + 0.5, from_px: MARGIN.left, to_px: width - MARGIN.right };
}

function valueScale({ height, has_times }: ChartData, from: number, to: number): Scale {
  return { from, to, from_px: height - MARGIN.bottom - (has_times ? MARGIN.times : 0), to_px: MARGIN.top };
}

/**
 * Draws each round's steered prefixes as bars: kept ones above the axis, new ones on top of them.
 * Prefixes that have left are drawn below the axis.
 */
export function stackedBars(data: ChartData): SVGElement[] {
  const { rounds, places } = data;
  const most = Math.max(1, ...rounds.map(({ steered }) => steered));
  const left_most = Math.max(0, ...rounds.map(({ left }) => left.length));
  const probe = valueScale(data, 0, 1);
  // Prefix counts are integers, so label only whole steps.
  const ticks = steps(most, Math.max(2, (probe.from_px - probe.to_px) / VALUE_PX)).filter(Number.isInteger);
  const y = valueScale(data, -left_most * 1.1, Math.max(most, ticks.at(-1) ?? 0));
  const x = timeScale(data);
  const wide = place(x, 1) - place(x, 0);
  const width = wide > 3 ? wide - 1 : wide;
  const paths = { kept: "", quiet: "", entered: "", left: "", stopped: "" };
  for (const [index, { kept, entered, left, outcome }] of rounds.entries()) {
    const at_px = place(x, places[index] ?? 0) - width / 2;
    const up = (from: number, count: number) => {
      const height = Math.max(BAR_PX_MIN, place(y, 0) - place(y, count));
      return count > 0 ? boxPath(at_px, place(y, from) - height, width, height) : "";
    };
    paths[outcome === "decided" || outcome === "stopped" ? "kept" : "quiet"] += up(0, kept);
    paths.entered += up(kept, entered.length);
    if (left.length > 0) paths.left += boxPath(at_px, place(y, 0), width, Math.max(BAR_PX_MIN, place(y, -left.length) - place(y, 0)));
    if (outcome === "stopped") paths.stopped += `M${at_px + width / 2} ${y.to_px}V${y.from_px}`;
  }
  return [
    ...valueAxis(x, y, ticks.map((value) => ({ value, label: String(value) }))),
    ...times(data, x, y),
    ...Object.entries(paths).map(([name, d]) => svg("path", { class: name, d })),
    svg("path", { class: "zero", d: `M${x.from_px} ${place(y, 0)}H${x.to_px}` }),
    ...beginMarks(data, x, y, true),
  ];
}

/** Draws a rate's p5 and p10 for all, steered and held-out connections. */
export function rateLines(data: ChartData, measure: Measure, unit: RateUnit): SVGElement[] {
  const { rounds, places } = data;
  const all = lines(rounds, measure);
  const most = greatest(rounds, measure) / unit.bytes_per_s;
  const probe = valueScale(data, 0, 1);
  const ticks = steps(most, Math.max(2, (probe.from_px - probe.to_px) / VALUE_PX));
  const y = valueScale(data, 0, ticks.at(-1) ?? 1);
  const x = timeScale(data);
  const points = (values: readonly (number | null)[]) =>
    values.flatMap((value, index): [number, number | null][] => {
      const at = places[index] ?? 0;
      const point: [number, number | null] = [place(x, at), value === null ? null : place(y, value / unit.bytes_per_s)];
      // Interrupt the line at windows without a round.
      return index > 0 && at - (places[index - 1] ?? 0) > 1 ? [[point[0], null], point] : [point];
    });
  return [
    ...valueAxis(x, y, ticks.map((value) => ({ value, label: String(value) }))),
    ...times(data, x, y),
    ...beginMarks(data, x, y, false),
    ...all.map(({ group, percentile, values }) => svg("path", { class: `line ${group} ${percentile}`, d: linePath(points(values)) })),
  ];
}

/** Selects the unit for a chart's values. */
export function unitOf(rounds: readonly Round[], measure: Measure): RateUnit {
  return rateUnit(greatest(rounds, measure));
}

function greatest(rounds: readonly Round[], measure: Measure): number {
  return lines(rounds, measure)
    .flatMap(({ values }) => values)
    .reduce<number>((most, value) => Math.max(most, value ?? 0), 0);
}

function valueAxis(x: Scale, y: Scale, ticks: readonly { value: number; label: string }[]): SVGElement[] {
  return ticks.flatMap(({ value, label }) => [
    svg("path", { class: "grid", d: `M${x.from_px} ${place(y, value)}H${x.to_px}` }),
    svg("text", { x: x.from_px - 6, y: place(y, value) + 3.5, "text-anchor": "end" }, label),
  ]);
}

function times(data: ChartData, x: Scale, y: Scale): SVGElement[] {
  const { rounds, places, width, has_times } = data;
  const behind_utc_min = new Date((rounds.at(-1)?.unix_s ?? 0) * 1000).getTimezoneOffset();
  const ticks = timeTicks(rounds.map(({ unix_s }) => unix_s), Math.max(2, width / TIME_PX), behind_utc_min);
  return ticks.flatMap(({ index, label }) => {
    const at = place(x, places[index] ?? 0);
    const line = svg("path", { class: "grid", d: `M${at} ${y.to_px}V${y.from_px}` });
    return has_times ? [line, svg("text", { x: at, y: y.from_px + 14, "text-anchor": "middle" }, label)] : [line];
  });
}

/** Draws a vertical marker wherever steering begins. */
function beginMarks({ rounds, places }: ChartData, x: Scale, y: Scale, is_named: boolean): SVGElement[] {
  return beginnings(rounds).flatMap((index) => {
    const at = place(x, (places[index] ?? 0) - 0.5);
    const mark = svg("path", { class: "beginMarks", d: `M${at} ${y.to_px - 6}V${y.from_px}` });
    // To the left of the marker, there are no bars for the label to overlap.
    const is_left = at - x.from_px > BEGAN_PX;
    const text = svg("text", { class: "beginMarks", x: at + (is_left ? -5 : 5), y: y.to_px + 5, "text-anchor": is_left ? "end" : "start" }, "steering begins");
    return is_named ? [mark, text] : [mark];
  });
}
