// Short messages at the edge of the page.

import { el } from "./dom";

/** attempt says how a change went, and calls then when it was made. */
export async function attempt(what: Promise<unknown>, done: string, then: () => Promise<void>): Promise<void> {
  try {
    await what;
    note(done);
    await then();
  } catch (e) {
    note((e as Error).message, true);
  }
}

/** note shows a message; a fault stays until it is closed. */
export function note(message: string, fault = false): void {
  const n = el("p", { class: fault ? "note fault" : "note" }, message, el("button", { "aria-label": "Close", onclick: () => n.remove() }, "×"));
  document.getElementById("notes")!.append(n);
  if (!fault) setTimeout(() => n.remove(), 4000);
}
