// Tabbed panels: each panel's head contains the buttons for all panels.

import { el, setAttribute } from "./element";

export class Tabs<Name extends string> {
  readonly #names: readonly (readonly [Name, string])[];
  readonly #chosen: (name: Name) => void;
  readonly #panels = new Map<Name, HTMLElement>();
  readonly #buttons: (readonly [Name, HTMLElement])[] = [];

  /**
   * `names` are the panels' names and labels; `chosen` receives the name of a newly shown panel.
   */
  constructor(names: readonly (readonly [Name, string])[], chosen: (name: Name) => void) {
    this.#names = names;
    this.#chosen = chosen;
  }

  /** Creates the tab buttons, to be placed at the start of the head of panel `name`. */
  head(name: Name): HTMLElement {
    const buttons = this.#names.map(([other, label]) => {
      const button = el("button", { type: "button" }, label);
      setAttribute(button, "aria-pressed", String(other === name));
      button.onclick = () => {
        this.show(other);
        this.#chosen(other);
        // The clicked button is hidden with its panel, so move the focus.
        this.#panels.get(other)?.querySelector<HTMLElement>(".tabs [aria-pressed=true]")?.focus();
      };
      this.#buttons.push([other, button]);
      return button;
    });
    return el("h2", { class: "tabs" }, ...buttons);
  }

  /** Adds a panel and hides it. */
  add(name: Name, panel: HTMLElement): void {
    panel.hidden = true;
    this.#panels.set(name, panel);
  }

  /** Sets whether the button of panel `name` is shown. */
  offer(name: Name, offered: boolean): void {
    for (const [other, button] of this.#buttons) if (other === name) button.hidden = !offered;
  }

  show(name: Name): void {
    for (const [other, panel] of this.#panels) panel.hidden = other !== name;
  }
}
