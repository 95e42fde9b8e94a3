// What the person who looks may do. The API decides; the page does not offer what the API would refuse.

import { el, lastPart } from "./dom";
import { live } from "./state";

type Role = "viewer" | "operator" | "admin";

const rank: Record<string, number> = { viewer: 1, operator: 2, admin: 3 };

/** may tells whether whoever looks has a role; box: for the whole box, not for some of its cameras. */
export function may(role: Role, box = false): boolean {
  const s = live.session;
  return (rank[s?.role ?? ""] ?? 0) >= rank[role]! && !(box && s?.cameras?.length);
}

/** who says who looks. */
export function who(): string {
  const s = live.session;
  const cameras = s?.cameras?.length ? `, for ${s.cameras.map(lastPart).join(", ")}` : "";
  if (s?.user) return `${lastPart(s.user)} (${s.role ?? "?"}${cameras})`;
  return live.system?.demo && s?.role === "viewer" ? "a visitor of the demonstration, who may look" : `somebody with a token (${s?.role ?? "?"}${cameras})`;
}

/** needs is what is shown in place of what whoever looks may not do: why, and how to get there. */
export function needs(role: Role, what: string, box = false): HTMLElement {
  const as = `an ${role}${box && may(role) ? " for all cameras" : ""}`;
  return el("p", { class: "meaning needs" }, `You are ${who()}. `, el("a", { href: "#/signin" }, `Sign in as ${as}`), ` to ${what}.`);
}
