// The page: which screen is on, the line of truth above it, and signing in.

import { ask, Refusal } from "./api";
import { cameraScreen } from "./camera";
import { cameraForm, camerasScreen, editScreen } from "./cameras";
import { countsScreen } from "./counts";
import { bytes, el, fill, percent, span, text } from "./dom";
import { modelsScreen } from "./models";
import { note } from "./notes";
import { overview, stateOf } from "./overview";
import { eventsScreen, tracksScreen, trackScreen } from "./search";
import { settingsScreen } from "./settings";
import { live } from "./state";
import { lastsOf, systemScreen, troublesOf } from "./system";
import { zonesScreen } from "./zones";

const nav: [string, string][] = [["#/", "Live"], ["#/tracks", "Tracks"], ["#/events", "Events"], ["#/counts", "Counts"], ["#/cameras", "Cameras"], ["#/models", "Models"], ["#/system", "System"], ["#/settings", "Settings"]];
/** Under which entry of the navigation a screen stands that has none of its own. */
const under: Record<string, string> = { camera: "", track: "tracks", add: "cameras", edit: "cameras", zones: "cameras", signin: "settings" };
const main = document.getElementById("main")!;
const truth = document.getElementById("truth")!;
const banner = document.getElementById("banner")!;
let leave: () => void = () => undefined;

function screen(head: string, rest: string[]): () => void {
  const tail = rest.join("/");
  if (live.refused === 401) return signIn();
  if (!live.session) { // what is offered depends on who looks
    fill(main, el("p", { class: "lead" }, "Asking the appliance …"));
    return () => undefined;
  }
  switch (head) {
    case "camera": return cameraScreen(main, tail);
    case "zones": return zonesScreen(main, tail);
    case "counts": return countsScreen(main, tail);
    case "tracks": return tracksScreen(main, tail);
    case "track": return trackScreen(main, tail);
    case "events": return eventsScreen(main, tail);
    case "cameras": return camerasScreen(main);
    case "add": return cameraForm(main);
    case "edit": return editScreen(main, rest[0] ?? "", rest[1]);
    case "models": return modelsScreen(main);
    case "system": return systemScreen(main);
    case "settings": return settingsScreen(main);
    case "signin": return signIn();
    case "": return overview(main);
    default:
      fill(main, el("div", { class: "welcome" }, el("h1", {}, "There is no such screen"), el("p", {}, "The address is mistyped, or of another version of the dashboard."), el("a", { class: "button", href: "#/" }, "Live")));
      return () => undefined;
  }
}

/** decoded undoes percent signs, where they are any. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function route(): void {
  leave();
  const [head = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  leave = screen(head, rest);
  document.title = `${main.querySelector("h1")?.textContent || "Live"} – Vedette`;
  for (const a of document.querySelectorAll<HTMLAnchorElement>("#nav a")) {
    if (a.hash === `#/${under[head] ?? head}`) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
}

/** Other tabs of the dashboard, which share the session. */
const tabs = new BroadcastChannel("vedette");
tabs.addEventListener("message", () => live.refused === 401 && again());

/** again connects after somebody signed in, here or in another tab. */
function again(): void {
  live.refused = 0;
  live.session = undefined;
  live.connect();
}

function signIn(): () => void {
  const user = el("input", { autocomplete: "username", "aria-label": "Name", name: "user" });
  const password = el("input", { type: "password", autocomplete: "current-password", "aria-label": "Password", name: "password" });
  const token = el("input", { type: "password", autocomplete: "off", "aria-label": "Token", name: "token" });
  const answer = el("p", { class: "answer bad", role: "status" });
  const enter = async (body: object, unknown: string): Promise<void> => {
    try {
      await ask("POST", "/session", body);
      again();
      tabs.postMessage("signed in");
      note("Signed in.");
      if (location.hash === "#/signin") location.hash = "#/";
      else route();
    } catch (e) {
      fill(answer, e instanceof Refusal && e.status === 401 ? unknown : (e as Error).message);
    }
  };
  fill(main, el("div", { class: "panel narrow" }, el("h1", {}, "Sign in"),
    el("form", { onsubmit: (e) => { e.preventDefault(); void enter({ user: user.value, password: password.value }, "The box does not know this name with this password."); } },
      el("label", { class: "field" }, el("span", {}, "Name"), user), el("label", { class: "field" }, el("span", {}, "Password"), password), el("p", { class: "buttons" }, el("button", { class: "main" }, "Sign in"))),
    el("form", { class: "other", onsubmit: (e) => { e.preventDefault(); void enter({ token: token.value }, "The box does not know this token."); } },
      el("h2", {}, "Or with a token"), el("label", { class: "field" }, el("span", {}, "Token"), token, el("small", {}, "The first one was printed when the box started for the first time, and stands in the file admin.token of its data folder. With it you can add people with passwords under Settings.")),
      el("p", { class: "buttons" }, el("button", {}, "Use the token"))), answer));
  user.focus();
  return () => undefined;
}

/** tellTruth puts the one line that matters into the header, and what needs a person below it. */
function tellTruth(): void {
  if (!live.synced) {
    truth.className = "bad2";
    text(truth, live.refused === 401 ? "Not signed in." : live.silence ? `The appliance has not answered for ${span(live.silence)}; what you see is not live.` : "No connection to the appliance; what you see is not live.");
    banner.hidden = true;
    return;
  }
  const all = [...live.cameras.values()].map(stateOf);
  const on = all.filter((s) => s.word !== "disabled").length;
  const counts = new Map<string, number>();
  for (const s of all.sort((a, b) => b.bad - a.bad)) if (s.word !== "live") counts.set(s.word, (counts.get(s.word) ?? 0) + 1);
  const well = all.length - [...counts.values()].reduce((a, n) => a + n, 0);
  const s = live.system;
  const starting = (s?.processes ?? []).filter((p) => p.state === "PROCESS_STATE_STARTING");
  const down = (s?.processes ?? []).filter((p) => p.state !== "PROCESS_STATE_READY" && !starting.includes(p));
  const parts = [all.length ? `${well} of ${on} ${on === 1 ? "camera" : "cameras"} live` : "no camera yet", ...[...counts].map(([word, n]) => `${n} ${word}`), ...starting.map((p) => `${p.name} is starting`), ...down.map((p) => `${p.name} is not ready${p.message ? `: ${p.message}` : ""}`)];
  if (s?.sample) parts.push(`CPU ${percent(s.sample.cpu)}`, ...(s.sample.gpus ?? []).map((g) => `GPU ${percent(g.utilization)}`), `disk: ${bytes(s.sample.diskFreeBytes)} free, ${lastsOf(s)}`);
  const troubles = s ? troublesOf(s) : [];
  if (Math.abs(live.clockOffset) > 5000) troubles.push(`The box's clock is ${span(Math.abs(live.clockOffset))} ${live.clockOffset < 0 ? "behind" : "ahead of"} this browser's: set whichever is wrong, best by a time server (NTP).`);
  truth.className = `bad${down.length ? 2 : Math.max(0, ...all.map((x) => x.bad), troubles.length || starting.length ? 1 : 0)}`;
  text(truth, parts.join(" · "));
  banner.hidden = !troubles.length;
  text(banner, troubles.join("\n"));
}

fill(document.getElementById("nav")!, ...nav.map(([href, label]) => el("a", { href }, label)));
window.addEventListener("hashchange", () => {
  route();
  scrollTo(0, 0);
});
window.addEventListener("unhandledrejection", (e) => note(String(e.reason), true));
for (const topic of ["cameras", "link", "system"] as const) live.on(topic, tellTruth);
live.on("link", () => live.refused === 401 && route());
live.on("session", route);
live.connect();
tellTruth();
route();
