// A curve of the last minute on a canvas: newest sample at the right edge, zero at the bottom.

import type { History } from "./history";

/** Space above the maximum value, as a share of the height. */
const HEADROOM = 0.15;

/** Draws the history in the canvas's CSS colour. `floor` is the minimum value at full height. */
export function drawSparkline(canvas: HTMLCanvasElement, history: History, floor: number): void {
  const context = fit(canvas);
  const range = history.range();
  if (!context || !range) return;

  const { width, height } = canvas;
  const top = Math.max(range.max * (1 + HEADROOM), floor);
  const step = width / (history.capacity - 1);
  const start = width - (history.samples.length - 1) * step;
  const y = (value: number) => height - (value / top) * height;

  const style = getComputedStyle(canvas);
  context.strokeStyle = style.color;
  context.fillStyle = style.color;
  context.lineWidth = 1.5 * devicePixelRatio;
  context.lineJoin = "round";
  for (const { first, values } of runs(history.samples)) {
    const points = values.map((value, index) => [start + (first + index) * step, y(value)] as const);
    fillUnder(context, points, height);
    stroke(context, points);
  }
}

/** Yields the runs of samples with values, each with the index of its first sample. */
function* runs(samples: readonly (number | null)[]): Generator<{ first: number; values: number[] }> {
  let values: number[] = [];
  for (const [index, value] of samples.entries()) {
    if (value !== null) {
      values.push(value);
    } else if (values.length > 0) {
      yield { first: index - values.length, values };
      values = [];
    }
  }
  if (values.length > 0) yield { first: samples.length - values.length, values };
}

type Points = readonly (readonly [number, number])[];

function trace(context: CanvasRenderingContext2D, points: Points): void {
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
}

function stroke(context: CanvasRenderingContext2D, points: Points): void {
  trace(context, points);
  context.stroke();
}

function fillUnder(context: CanvasRenderingContext2D, points: Points, height: number): void {
  const first = points[0];
  const last = points[points.length - 1];
  if (!first || !last) return;
  trace(context, points);
  context.lineTo(last[0], height);
  context.lineTo(first[0], height);
  context.globalAlpha = 0.12;
  context.fill();
  context.globalAlpha = 1;
}

/** Sets the canvas to its on-screen pixel size, and clears it. */
function fit(canvas: HTMLCanvasElement): CanvasRenderingContext2D | null {
  const width = Math.round(canvas.clientWidth * devicePixelRatio);
  const height = Math.round(canvas.clientHeight * devicePixelRatio);
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = canvas.getContext("2d");
  context?.clearRect(0, 0, width, height);
  return context;
}
