// Panels of which one is shown. Each has the buttons of all in its own head.

import { el, setAttribute } from "./element";

export class Tabs<Name extends string> {
  readonly #names: readonly (readonly [Name, string])[];
  readonly #chosen: (name: Name) => void;
  readonly #panels = new Map<Name, HTMLElement>();
  readonly #buttons: (readonly [Name, HTMLElement])[] = [];

  /** Names of the panels, and as they are written; `chosen` is told which is shown from now on. */
  constructor(names: readonly (readonly [Name, string])[], chosen: (name: Name) => void) {
    this.#names = names;
    this.#chosen = chosen;
  }

  /** What the head of the panel `name` begins with. */
  head(name: Name): HTMLElement {
    const buttons = this.#names.map(([other, label]) => {
      const button = el("button", { type: "button" }, label);
      setAttribute(button, "aria-pressed", String(other === name));
      button.onclick = () => {
        this.show(other);
        this.#chosen(other);
        // The button that was used goes with its panel.
        this.#panels.get(other)?.querySelector<HTMLElement>(".tabs [aria-pressed=true]")?.focus();
      };
      this.#buttons.push([other, button]);
      return button;
    });
    return el("h2", { class: "tabs" }, ...buttons);
  }

  /** Takes a panel, which is not shown yet. */
  add(name: Name, panel: HTMLElement): void {
    panel.hidden = true;
    this.#panels.set(name, panel);
  }

  /** Whether the panel `name` can be chosen, from whichever is shown. */
  offer(name: Name, offered: boolean): void {
    for (const [other, button] of this.#buttons) if (other === name) button.hidden = !offered;
  }

  show(name: Name): void {
    for (const [other, panel] of this.#panels) panel.hidden = other !== name;
  }
}
