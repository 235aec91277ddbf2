// Prefixes in cells of duty cycle and flap rate. Pure.
//
// Both are counts over counts of windows, so that tens of thousands of prefixes share a few hundred places. A cell is one such
// place: of its prefixes, those that are steered are a mark whose area is their number, and all others a shade.

import type { Limits, Prefix } from "./api";
import { place, type Scale, steps } from "../ui/scale";

/** Cells of the whole duty cycle: windows of a history, within reason. */
const COLUMNS_MIN = 12;
const COLUMNS_MAX = 128;

/** How large the mark of one steered prefix is, and of the most. */
const MARK_PX = 3;
const MARK_PX_MAX = 11;

/** How far from a mark or a cell it is still meant. */
const REACH_PX = 6;

/** Flap rates that are drawn at least, as a multiple of the greatest with which a prefix enters. */
const FLAP_ROOM = 1.4;

export interface Cell {
  duty: number;
  flap: number;
  /** Those that are steered first, then those with more connections. */
  prefixes: Prefix[];
  steered: number;
  /** Of the steered, those that are shown to be helped. */
  helped: number;
}

export interface Cells {
  cells: Cell[];
  /** The size of a cell. */
  duty_step: number;
  flap_step: number;
  /** The greatest flap rate of the axis. */
  flap_to: number;
  /** Left out: too few windows tell of them. */
  too_few: number;
}

/** Prefixes of which too few windows tell are left out: two windows make a duty cycle of 0, ½ or 1 of anybody. */
export function cellsOf(prefixes: readonly Prefix[], { flap_max }: Limits): Cells {
  const drawn = prefixes.filter(({ reason, steered }) => steered || reason !== "too_few");
  const windows = drawn.reduce((most, { observed }) => Math.max(most, observed), 0);
  const columns = Math.min(COLUMNS_MAX, Math.max(COLUMNS_MIN, windows));
  // A history of n windows has n - 1 pairs of neighbours, at each of which it may flap.
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
  return steered && stage === "shown to be helped";
}

/** Shades of cells, by powers of ten. */
export const SHADES = 5;

/** The shade of a cell of so many prefixes that are not steered, 0 to SHADES - 1; null without any. */
export function shade(count: number): number | null {
  return count > 0 ? Math.min(SHADES - 1, Math.floor(Math.log10(count) + 1e-9)) : null;
}

/** The radius of the mark of so many steered prefixes: its area is their number, until it would hide all else. */
export function radius(count: number): number {
  return Math.min(MARK_PX_MAX, MARK_PX * Math.sqrt(count));
}

/** The cell that is meant at a place in pixels: a mark before a shade, the nearest before others; null if nothing is near. */
export function hit({ cells }: Cells, x: Scale, y: Scale, at: { x: number; y: number }): Cell | null {
  let best: { cell: Cell; order: number } | null = null;
  for (const cell of cells) {
    const distance = Math.hypot(place(x, cell.duty) - at.x, place(y, cell.flap) - at.y);
    const marked = cell.steered > 0;
    if (distance > REACH_PX + (marked ? radius(cell.steered) : 0)) continue;
    // A mark that is beneath the pointer comes before all shades; of marks within one another the smallest.
    const order = marked ? distance - REACH_PX - 2 * MARK_PX_MAX : distance;
    if (!best || order < best.order) best = { cell, order };
  }
  return best?.cell ?? null;
}
