// A button that copies text and confirms it.

import { el, setText } from "./element";

/** How long the confirmation is shown. */
const COPIED_SHOWN_MS = 1200;

export function copyButton(text: () => string, title: string): HTMLButtonElement {
  const button = el("button", { type: "button", title }, "Copy");
  button.onclick = async () => {
    // Clipboard access fails on pages that are neither secure nor local; the text can still be
    // selected.
    const copied = await navigator.clipboard?.writeText(text()).then(
      () => true,
      () => false,
    );
    setText(button, copied ? "Copied" : "Refused");
    setTimeout(() => setText(button, "Copy"), COPIED_SHOWN_MS);
  };
  return button;
}
