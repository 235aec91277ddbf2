// SVG elements without a framework, and the paths of charts.

type Attributes = Record<string, string | number>;

export function svg<K extends keyof SVGElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: (Node | string)[]): SVGElementTagNameMap[K] {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/**
 * Returns the path through points in pixels. A null point is a gap; a point between two gaps is a
 * dot.
 */
export function linePath(points: readonly (readonly [x: number, y: number | null])[]): string {
  let drawing = false;
  const parts = points.map(([x, y]) => {
    const first = !drawing;
    drawing = y !== null;
    if (y === null) return "";
    // Round caps make a line of zero length visible as a dot.
    return first ? `M${px(x)} ${px(y)}h0` : `L${px(x)} ${px(y)}`;
  });
  return parts.join("");
}

/** Returns a rectangle as part of a path, so that thousands of rectangles form one element. */
export function boxPath(x: number, y: number, width: number, height: number): string {
  return `M${px(x)} ${px(y)}h${px(width)}v${px(height)}h${px(-width)}z`;
}

function px(value: number): string {
  return String(Math.round(value * 10) / 10);
}
