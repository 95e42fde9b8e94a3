// The wall: one tile a camera, the latest tracks beside it.

import type { Camera, Track } from "./api";
import { clockTime, el, fill, lastPart, millis, scrollable, span, text, words } from "./dom";
import { live } from "./state";
import { ageAlarm, ageWarning, CameraView, colourOf } from "./view";

/** stateOf is a camera's state as a word, a sentence and a degree of badness. */
export function stateOf(c: Camera): { word: string; sentence: string; bad: 0 | 1 | 2 } {
  const s = c.status ?? {};
  const word = words(s.state, "CAMERA_STATE_") || "unknown";
  const sentence = [s.message ?? s.reason, s.analysisMessage].filter(Boolean).join(" ");
  if (word === "streaming") return { word: s.analysisReason ? "not analysed" : "live", sentence, bad: s.analysisReason ? 1 : 0 };
  if (word === "disabled") return { word, sentence: "Switched off by an operator.", bad: 0 };
  return { word, sentence, bad: word === "connecting" ? 1 : 2 };
}

class Tile {
  readonly root: HTMLElement;
  readonly view: CameraView;
  private readonly badge = el("span", { class: "badge" });
  private readonly age = el("span", { class: "age", title: "Age of the picture: the box's clock minus its capture time" });
  private readonly facts = el("p", { class: "facts" });
  private readonly trouble = el("p", { class: "trouble" });
  private readonly title = el("a", { class: "name" });

  constructor(private camera: Camera) {
    this.view = new CameraView(camera.name);
    this.title.href = `#/camera/${lastPart(camera.name)}`;
    this.root = el("article", { class: "tile", "data-camera": lastPart(camera.name) },
      el("div", { class: "picture" }, this.view.canvas, this.trouble),
      el("div", { class: "caption" }, this.title, this.badge, this.age), this.facts);
    this.update(camera);
  }

  update(camera: Camera): void {
    this.camera = camera;
    const state = stateOf(camera);
    text(this.title, camera.displayName || lastPart(camera.name));
    text(this.badge, state.word);
    this.badge.className = `badge bad${state.bad}`;
    this.badge.title = state.sentence;
    const s = camera.status ?? {};
    const media = s.media?.width ? `${s.media.codec ?? ""} ${s.media.width}×${s.media.height ?? 0}`.trim() : "";
    text(this.facts, [`${(s.receivedFps ?? 0).toFixed(1)} fps in`, `${(s.analysedFps ?? 0).toFixed(1)} fps analysed`, media].filter(Boolean).join(" · "));
    this.tick();
  }

  tick(): void {
    const age = live.now() - this.view.shown;
    const state = stateOf(this.camera);
    text(this.age, Number.isFinite(age) ? `${span(age)} old` : "no picture yet");
    this.age.classList.toggle("warn", age > ageWarning);
    this.age.classList.toggle("alarm", age > ageAlarm);
    this.root.classList.toggle("stale", !(age <= ageAlarm));
    const say = state.bad > 0 && state.sentence ? state.sentence : !(age <= ageAlarm) ? this.view.trouble : "";
    text(this.trouble, say);
  }

  close(): void {
    this.view.close();
  }
}

/** trackRow is a track in a list. */
export function trackRow(t: Track): HTMLElement {
  const open = t.state === "TRACK_STATE_OPEN";
  const dot = el("span", { class: "dot" });
  dot.style.background = colourOf(t.class);
  return el("tr", { "data-track": lastPart(t.name) },
    el("td", { class: "span" }, dot, t.class ?? "?"),
    el("td", {}, el("a", { href: `#/track/${t.name}` }, lastPart(t.name))),
    el("td", {}, lastPart(t.camera)),
    el("td", { class: "time" }, clockTime(millis(t.startTime))),
    el("td", { class: "span", title: "From the first to the last observation" }, span(millis(t.endTime) - millis(t.startTime))),
    el("td", {}, `${Math.round((t.score ?? 0) * 100)} %`),
    el("td", { title: t.endReason ?? "" }, open ? el("span", { class: "badge bad0" }, "in view") : words(t.endReason, "END_REASON_") || "ended"));
}

/** trackTable is the head of a list of tracks around its body. */
export function trackTable(body: HTMLElement): HTMLElement {
  const heads: [string, string][] = [["Class", "As the detector names it"], ["Track", "Sequence and number within it; never used again"], ["Camera", ""],
    ["First seen", "Capture time of the first observation"], ["For", "From the first to the last observation"], ["Best score", "The detector's highest score for it"], ["State", ""]];
  return scrollable("Tracks", el("table", {}, el("thead", {}, el("tr", {}, ...heads.map(([h, title]) => el("th", { scope: "col", title }, h)))), body));
}

export function overview(main: HTMLElement): () => void {
  const tiles = new Map<string, Tile>();
  const wall = el("section", { class: "wall", "aria-label": "Cameras" });
  const body = el("tbody");
  const side = el("section", { class: "side" }, el("h2", {}, "Latest tracks"), trackTable(body));
  fill(main, el("h1", { class: "hidden" }, "Live"), el("div", { class: "columns" }, wall, side));

  const cameras = (): void => {
    if (!live.synced) return;
    if (live.cameras.size === 0) {
      fill(wall, el("p", { class: "empty" }, "No camera yet. ", el("a", { href: "#/cameras" }, "Add the first one."), " Its address looks like rtsp://192.0.2.10:554/stream1."));
      return;
    }
    for (const [name, tile] of tiles) {
      if (!live.cameras.has(name)) {
        tile.close();
        tile.root.remove();
        tiles.delete(name);
      }
    }
    wall.querySelector(".empty")?.remove();
    // The worst first: what needs a person is never below the fold.
    const sorted = [...live.cameras.values()].sort((a, b) => stateOf(b).bad - stateOf(a).bad || a.name.localeCompare(b.name));
    for (const c of sorted) {
      let tile = tiles.get(c.name);
      if (tile) tile.update(c);
      else {
        tile = new Tile(c);
        tiles.set(c.name, tile);
        wall.append(tile.root);
      }
    }
    sorted.forEach((c, i) => {
      const root = tiles.get(c.name)!.root;
      if (wall.children[i] !== root) wall.insertBefore(root, wall.children[i] ?? null);
    });
    wall.classList.toggle("one", tiles.size === 1);
  };
  const tracks = (): void => {
    const latest = [...live.tracks.values()].sort((a, b) => millis(b.startTime) - millis(a.startTime)).slice(0, 24);
    if (latest.length === 0) fill(body, el("tr", {}, el("td", { colspan: 7, class: "empty" }, "Nothing seen yet. Tracks appear here as soon as something moves.")));
    else fill(body, ...latest.map(trackRow));
  };
  let due = false;
  const soon = (): void => {
    if (due) return;
    due = true;
    setTimeout(() => {
      due = false;
      tracks();
    }, 250);
  };
  const offs = [live.on("cameras", cameras), live.on("tracks", soon)];
  const timer = setInterval(() => tiles.forEach((t) => t.tick()), 250);
  cameras();
  tracks();
  return () => {
    offs.forEach((o) => o());
    clearInterval(timer);
    tiles.forEach((t) => t.close());
  };
}
