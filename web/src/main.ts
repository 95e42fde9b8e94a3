// The page: which screen is on, the line of truth above it, and signing in.

import { ask, Refusal } from "./api";
import { cameraScreen } from "./camera";
import { camerasScreen } from "./cameras";
import { el, fill } from "./dom";
import { note } from "./notes";
import { overview, stateOf } from "./overview";
import { eventsScreen, tracksScreen, trackScreen } from "./search";
import { live } from "./state";
import { systemScreen } from "./system";

const screens: [string, string][] = [["#/", "Live"], ["#/tracks", "Tracks"], ["#/events", "Events"], ["#/cameras", "Cameras"], ["#/system", "System"], ["#/signin", "Sign in"]];
const main = document.getElementById("main")!;
const truth = document.getElementById("truth")!;
let leave: () => void = () => undefined;

function route(): void {
  leave();
  const path = location.hash.replace(/^#\/?/, "");
  const [head, ...rest] = path.split("/");
  const tail = rest.join("/");
  if (live.refused === 401) leave = signIn();
  else if (head === "camera" && tail) leave = cameraScreen(main, tail);
  else if (head === "tracks") leave = tracksScreen(main);
  else if (head === "track" && tail) leave = trackScreen(main, tail);
  else if (head === "events") leave = eventsScreen(main);
  else if (head === "cameras") leave = camerasScreen(main);
  else if (head === "system") leave = systemScreen(main);
  else if (head === "signin") leave = signIn();
  else leave = overview(main);
  for (const a of document.querySelectorAll<HTMLAnchorElement>("#nav a")) {
    if (a.hash === `#/${head ?? ""}`) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
}

function signIn(): () => void {
  const token = el("input", { type: "password", autocomplete: "current-password", required: true, "aria-label": "Token" });
  const answer = el("p", { class: "answer bad", role: "status" });
  const enter = async (): Promise<void> => {
    try {
      await ask("POST", "/session", { token: token.value });
      live.refused = 0;
      live.connect();
      note("Signed in.");
      if (location.hash === "#/signin") location.hash = "#/";
      else route();
    } catch (e) {
      fill(answer, e instanceof Refusal && e.status === 401 ? "The box does not know this token." : (e as Error).message);
    }
  };
  fill(main, el("form", { class: "panel", onsubmit: (e) => { e.preventDefault(); void enter(); } },
    el("h1", {}, "Sign in"), el("label", { class: "field" }, el("span", {}, "Token"), token, el("small", {}, "The first one was printed when the box started for the first time, and stands in the file admin.token of its data folder.")),
    el("p", { class: "buttons" }, el("button", { class: "main" }, "Sign in")), answer));
  return () => undefined;
}

/** tellTruth puts the one line that matters into the header. */
function tellTruth(): void {
  if (!live.synced) {
    truth.className = "bad2";
    fill(truth, live.refused === 401 ? "Not signed in." : "No connection to the appliance; what you see is not live.");
    return;
  }
  const all = [...live.cameras.values()];
  const worst = Math.max(0, ...all.map((c) => stateOf(c).bad));
  const counts = new Map<string, number>();
  for (const c of all) counts.set(stateOf(c).word, (counts.get(stateOf(c).word) ?? 0) + 1);
  const down = (live.system?.processes ?? []).filter((p) => p.state !== "PROCESS_STATE_READY");
  truth.className = `bad${down.length ? 2 : worst}`;
  const cameras = all.length ? [...counts].map(([word, n]) => `${n} ${word}`).join(", ") : "no camera";
  fill(truth, `${all.length === 1 ? "1 camera" : `${all.length} cameras`}: ${cameras}${down.map((p) => ` · ${p.name} is not ready${p.message ? `: ${p.message}` : ""}`).join("")}`);
}

fill(document.getElementById("nav")!, ...screens.map(([href, label]) => el("a", { href }, label)));
window.addEventListener("hashchange", route);
window.addEventListener("unhandledrejection", (e) => note(String(e.reason), true));
for (const topic of ["cameras", "link", "system"] as const) live.on(topic, tellTruth);
live.on("link", () => live.refused === 401 && route());
live.connect();
tellTruth();
route();
