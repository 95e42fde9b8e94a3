// Short messages at the edge of the page.

import { el } from "./dom";

/** note shows a message; a fault stays until it is closed. */
export function note(message: string, fault = false): void {
  const n = el("p", { class: fault ? "note fault" : "note" }, message, el("button", { "aria-label": "Close", onclick: () => n.remove() }, "×"));
  document.getElementById("notes")!.append(n);
  if (!fault) setTimeout(() => n.remove(), 4000);
}
