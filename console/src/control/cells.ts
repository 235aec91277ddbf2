// Pure functions that group prefixes in cells of duty cycle and flap rate.
//
// Both rates are ratios of window counts, so tens of thousands of prefixes fall into a few hundred
// cells. A cell's steered prefixes are drawn as a mark with an area proportional to their number;
// its other prefixes are drawn as a shade.

import type { Limits, Prefix } from "./api";
import { place, type Scale, steps } from "../ui/scale";

/** Limits on the number of columns, which otherwise equals the number of windows in a history. */
const COLUMNS_MIN = 12;
const COLUMNS_MAX = 128;

/** Radius of the mark for one steered prefix, and maximum radius of a mark. */
const MARK_PX = 3;
const MARK_PX_MAX = 11;

/** Maximum distance at which the pointer still hits a mark or a cell. */
const REACH_PX = 6;

/** Minimum range of the flap axis, as a multiple of the entry limit. */
const FLAP_ROOM = 1.4;

export interface Cell {
  duty: number;
  flap: number;
  /** Prefixes in the cell: steered ones first, then by number of connections. */
  prefixes: Prefix[];
  steered: number;
  /** Number of steered prefixes helped as a whole. */
  helped: number;
}

export interface Cells {
  cells: Cell[];
  /** Width and height of a cell, in units of the two rates. */
  duty_step: number;
  flap_step: number;
  /** Maximum flap rate on the axis. */
  flap_to: number;
  /** Number of prefixes left out because they have too few windows. */
  too_few: number;
}

/**
 * Groups prefixes in cells. Prefixes with too few windows are omitted: with two windows, any duty
 * cycle is 0, ½ or 1.
 */
export function cellsOf(prefixes: readonly Prefix[], { flap_max }: Limits): Cells {
  const drawn = prefixes.filter(({ reason, steered }) => steered || reason !== "too_few");
  const windows = drawn.reduce((most, { observed }) => Math.max(most, observed), 0);
  const columns = Math.min(COLUMNS_MAX, Math.max(COLUMNS_MIN, windows));
  // A history of n windows has n - 1 pairs of adjacent windows, each of which can flap.
  const rows = columns - 1;
  const cells = new Map<number, Cell>();
  let flap_most = flap_max * FLAP_ROOM;
  for (const prefix of drawn) {
    const [column, row] = [Math.round(prefix.duty * columns), Math.round(prefix.flap * rows)];
    const key = row * (COLUMNS_MAX + 1) + column;
    const cell = cells.get(key) ?? { duty: column / columns, flap: row / rows, prefixes: [], steered: 0, helped: 0 };
    cells.set(key, cell);
    cell.prefixes.push(prefix);
    cell.steered += Number(prefix.steered);
    cell.helped += Number(isHelped(prefix));
    flap_most = Math.max(flap_most, cell.flap);
  }
  for (const cell of cells.values()) cell.prefixes.sort((a, b) => Number(b.steered) - Number(a.steered) || b.connections - a.connections);
  const flap_to = Math.min(1, steps(flap_most, 5).at(-1) ?? 1);
  return { cells: [...cells.values()], duty_step: 1 / columns, flap_step: 1 / rows, flap_to, too_few: prefixes.length - drawn.length };
}

export function isHelped({ steered, stage }: Prefix): boolean {
  return steered && stage === "helped as a whole";
}

/** Number of shades, one for each power of ten. */
export const SHADES = 5;

/**
 * Returns the shade for a number of unsteered prefixes, from 0 to SHADES - 1; null for zero
 * prefixes.
 */
export function shade(count: number): number | null {
  return count > 0 ? Math.min(SHADES - 1, Math.floor(Math.log10(count) + 1e-9)) : null;
}

/** Returns the radius of a mark: its area is proportional to the count, up to a limit. */
export function radius(count: number): number {
  return Math.min(MARK_PX_MAX, MARK_PX * Math.sqrt(count));
}

/**
 * Returns the cell at or near a position in pixels; null if there is no cell nearby. Marks take
 * precedence over shades, and nearer cells over others.
 */
export function hit({ cells }: Cells, x: Scale, y: Scale, at: { x: number; y: number }): Cell | null {
  let best: { cell: Cell; order: number } | null = null;
  for (const cell of cells) {
    const distance = Math.hypot(place(x, cell.duty) - at.x, place(y, cell.flap) - at.y);
    const marked = cell.steered > 0;
    if (distance > REACH_PX + (marked ? radius(cell.steered) : 0)) continue;
    // A mark under the pointer takes precedence over all shades; of overlapping marks, the smallest
    // wins.
    const order = marked ? distance - REACH_PX - 2 * MARK_PX_MAX : distance;
    if (!best || order < best.order) best = { cell, order };
  }
  return best?.cell ?? null;
}
