// The wall: one tile a camera, the latest tracks beside it.

import type { Camera, Track } from "./api";
import { clockTime, el, fill, gently, lastPart, millis, nothing, span, table, text, words } from "./dom";
import { Pictures } from "./pictures";
import { may, needs } from "./rights";
import { live } from "./state";
import { ageAlarm, ageWarning, CameraView, colourOf } from "./view";

/** stateOf is a camera's state as a word, a sentence and a degree of badness. */
export function stateOf(c: Camera): { word: string; sentence: string; bad: 0 | 1 | 2 } {
  if (!live.synced) return { word: "not known", sentence: "There is no connection to the appliance.", bad: 2 };
  const s = c.status ?? {};
  const word = words(s.state, "CAMERA_STATE_") || "unknown";
  const sentence = [s.message ?? s.reason, s.analysisMessage].filter(Boolean).join("; ");
  if (word === "streaming") {
    const infer = live.system?.processes?.find((p) => p.name === "vedette-infer" && p.state !== "PROCESS_STATE_READY");
    if (!s.analysisReason && !infer) return { word: "live", sentence, bad: 0 };
    return { word: "not analysed", sentence: sentence || `vedette-infer: ${infer?.message || words(infer?.state, "PROCESS_STATE_")}`, bad: 1 };
  }
  if (word === "disabled") return { word, sentence: "Switched off by an operator.", bad: 0 };
  if (word === "quarantined" && s.nextRetryTime) return { word, sentence: `${sentence}${/\.$/.test(sentence) ? "" : "."} The next attempt is at ${clockTime(millis(s.nextRetryTime))}.`, bad: 2 };
  return { word, sentence, bad: word === "connecting" ? 1 : 2 };
}

/** showState puts a camera's state on a badge; with a picture too old, it is not called live. */
export function showState(badge: HTMLElement, state: ReturnType<typeof stateOf>, age: number): void {
  const old = state.word === "live" && age > ageAlarm;
  text(badge, old ? "no new picture" : state.word);
  badge.className = `badge bad${old ? 2 : state.bad}${state.word === "disabled" ? " off" : ""}`;
  badge.title = old ? "The camera is connected, but its pictures do not come." : state.sentence;
}

/** Sparkline is the recent course of a number, as a small picture without axes. */
class Sparkline {
  readonly root = el("canvas", { class: "spark", width: 96, height: 20, "aria-hidden": "true" });
  private values: number[] = [];

  add(v: number): void {
    this.values.push(v);
    if (this.values.length > 48) this.values.shift();
    const g = this.root.getContext("2d")!;
    const { width, height } = this.root;
    const top = Math.max(1, ...this.values);
    g.clearRect(0, 0, width, height);
    g.beginPath();
    this.values.forEach((y, i) => g.lineTo(width - (this.values.length - 1 - i) * 2, height - 1 - (y / top) * (height - 3)));
    g.strokeStyle = "#3987d8";
    g.lineWidth = 1.5;
    g.stroke();
  }
}

class Tile {
  readonly root: HTMLElement;
  readonly view: CameraView;
  readonly id: string;
  private readonly badge = el("span", { class: "badge" });
  private readonly age = el("span", { class: "age", title: "Age of the picture: the box's clock minus its capture time" });
  private readonly facts = el("p", { class: "facts" });
  private readonly numbers = el("span", { title: "Pictures a second that came in, and that were analysed; the line is the latter over the last minutes" });
  private readonly tracked = el("span", { title: "Objects in the newest analysed picture" });
  private readonly spark = new Sparkline();
  private readonly trouble = el("p", { class: "trouble" });
  private readonly title = el("a", { class: "name" });
  private readonly off: () => void;
  private objects = 0;
  /** Capture time of the newest analysed picture. */
  private analysed = NaN;

  constructor(private camera: Camera, pictures: Pictures) {
    this.id = lastPart(camera.name);
    this.view = new CameraView(camera.name, pictures);
    this.title.href = `#/camera/${this.id}`;
    fill(this.facts, el("span", {}, this.numbers, this.tracked), this.spark.root);
    this.root = el("article", { class: "tile", "data-camera": this.id, "aria-label": `Camera ${this.id}` },
      el("div", { class: "picture" }, this.view.canvas, this.trouble),
      el("div", { class: "caption" }, this.title, this.badge, this.age), this.facts);
    this.off = live.onFrame(camera.name, (f) => {
      this.objects = f.observations?.length ?? 0;
      this.analysed = millis(f.captureTime);
    });
    this.view.canvas.addEventListener("drawn", () => this.tick(), { once: true });
    this.update(camera);
  }

  update(camera: Camera): void {
    if (camera === this.camera && this.title.textContent) return;
    this.camera = camera;
    text(this.title, camera.displayName || this.id);
    const s = camera.status ?? {};
    text(this.numbers, `${(s.receivedFps ?? 0).toFixed(1)} fps in, ${(s.analysedFps ?? 0).toFixed(1)} analysed`);
    this.spark.add(s.analysedFps ?? 0);
    this.tick();
  }

  tick(): void {
    const age = live.now() - this.view.shown;
    const state = stateOf(this.camera);
    showState(this.badge, state, age);
    text(this.age, Number.isFinite(age) ? `${span(age)} old` : "no picture yet");
    text(this.tracked, state.word === "live" && live.now() - this.analysed < ageAlarm ? (this.objects === 1 ? "1 object" : `${this.objects} objects`) : "");
    this.age.classList.toggle("warn", age > ageWarning);
    this.age.classList.toggle("alarm", age > ageAlarm);
    this.root.classList.toggle("stale", !(age <= ageAlarm));
    const say = state.bad > 0 && state.sentence ? state.sentence : !(age <= ageAlarm) ? state.sentence || this.view.trouble : "";
    text(this.trouble, say);
  }

  close(): void {
    this.off();
    this.view.close();
  }
}

/** trackRow is a track in a list. */
export function trackRow(t: Track): HTMLElement {
  const open = t.state === "TRACK_STATE_OPEN";
  const dot = el("span", { class: "dot" });
  dot.style.background = colourOf(t.class);
  return el("tr", { "data-track": lastPart(t.name) },
    el("td", { class: "span" }, el("a", { href: `#/track/${t.name}`, "aria-label": `${t.class ?? "?"}, track ${lastPart(t.name)}` }, dot, t.class ?? "?")),
    el("td", { class: "of", title: live.title(t.camera) }, live.title(t.camera)),
    el("td", { class: "time" }, clockTime(millis(t.startTime))),
    el("td", { class: "span" }, span(millis(t.endTime) - millis(t.startTime))),
    el("td", { class: "span" }, `${Math.round((t.score ?? 0) * 100)} %`),
    el("td", { class: "span" }, !open ? endWord(t) : inView(t) ? el("span", { class: "badge bad0" }, "in view") : analysed(t) ? "out of sight" : "not known"));
}

/** analysed tells whether a track's camera is seen and analysed. */
function analysed(t: Track): boolean {
  const c = live.cameras.get(t.camera);
  return c !== undefined && stateOf(c).word === "live";
}

/** inView tells whether an open track is known to be in view: not while its camera is not seen or not analysed, nor once it has
 * been missed for a second. It stays open for a while after that, since it may come back. */
export const inView = (t: Track): boolean => analysed(t) && live.missing(t) <= 1000;

/** whereabouts is what is known about an open track. */
export const whereabouts = (t: Track): string => (inView(t) ? "in view" : analysed(t) ? "out of sight" : "not known whether it is still in view");

/** endWord is why a track ended. */
export const endWord = (t: Track): string => words(t.endReason, "END_REASON_") || "ended";

/** noCameras is what a screen shows on a box without cameras, or to somebody whose cameras are gone. */
export const noCameras = (): HTMLElement => el("div", { class: "welcome" }, el("h2", {}, "No camera yet"),
  ...(may("admin", true) ? [el("p", {}, "Give Vedette the RTSP address of a camera; it looks like rtsp://192.0.2.10:554/stream1."), el("a", { class: "button main", href: "#/add" }, "Add the first camera")]
    : [needs("admin", "add one", true)]));

/** trackTable is the head of a list of tracks around its body. */
export function trackTable(body: HTMLElement): HTMLElement {
  return table("Tracks", [["Class", "As the detector names it; it leads to the track"], ["Camera", ""], ["First seen", "Capture time of the first observation, in this browser's time zone"],
    ["For", "From the first to the last observation"], ["Score", "The detector's highest score for it"], ["State", "In view, out of sight for a moment, or why it ended"]], body);
}

export function overview(main: HTMLElement): () => void {
  const tiles = new Map<string, Tile>();
  const seen = new Set<string>(); // ids of the tiles on the screen; the others get no pictures
  const pictures = new Pictures(() => ({
    cameras: [...seen], rate: seen.size <= 1 ? 15 : seen.size <= 4 ? 8 : seen.size <= 9 ? 4 : 2, width: seen.size <= 1 ? 0 : seen.size <= 4 ? 960 : 480,
  }));
  const watcher = new IntersectionObserver((entries) => {
    for (const e of entries) {
      const id = (e.target as HTMLElement).dataset.camera!;
      if (e.isIntersecting) seen.add(id);
      else seen.delete(id);
    }
    pictures.changed();
  }, { rootMargin: "200px" });
  const wall = el("section", { class: "wall", "aria-label": "Cameras" });
  const body = el("tbody");
  const filter = el("input", { type: "search", placeholder: "Filter cameras by name or state", "aria-label": "Filter cameras by name or state", oninput: () => cameras() });
  const bar = el("div", { class: "filters", hidden: true }, filter);
  const side = el("section", { class: "side" }, el("h2", {}, "Latest tracks"), trackTable(body));
  fill(main, el("h1", { class: "hidden" }, "Live"), el("div", { class: "columns" }, el("div", {}, bar, wall), side));

  const drop = (name: string, tile: Tile): void => {
    watcher.unobserve(tile.root);
    seen.delete(tile.id);
    tile.close();
    tile.root.remove();
    tiles.delete(name);
  };
  const cameras = (): void => {
    if (!live.synced) return;
    bar.hidden = live.cameras.size <= 8;
    if (live.cameras.size === 0) {
      tiles.forEach((t, name) => drop(name, t));
      fill(wall, noCameras());
      return;
    }
    for (const [name, tile] of tiles) if (!live.cameras.has(name)) drop(name, tile);
    wall.querySelector(".welcome")?.remove();
    // The worst first: what needs a person is never below the fold; what is switched off comes last.
    const worth = (c: Camera): number => (c.desiredState === "DESIRED_STATE_DISABLED" ? -1 : stateOf(c).bad);
    const sorted = [...live.cameras.values()].sort((a, b) => worth(b) - worth(a) || a.name.localeCompare(b.name));
    const want = filter.value.trim().toLowerCase();
    sorted.forEach((c, i) => {
      let tile = tiles.get(c.name);
      if (tile) tile.update(c);
      else {
        tile = new Tile(c, pictures);
        tiles.set(c.name, tile);
        watcher.observe(tile.root);
      }
      tile.root.hidden = want !== "" && !`${tile.id} ${c.displayName ?? ""} ${stateOf(c).word}`.toLowerCase().includes(want);
      if (wall.children[i] !== tile.root) wall.insertBefore(tile.root, wall.children[i] ?? null);
    });
    wall.classList.toggle("one", tiles.size === 1);
    wall.classList.toggle("many", tiles.size > 9);
    // Small pictures have no room for names on every box.
    tiles.forEach((t) => (t.view.layers.ids = tiles.size <= 4));
  };
  let told = "";
  const tracks = (): void => {
    // A clock that was put back leaves tracks of a time that is still to come.
    const latest = [...live.tracks.values()].filter((t) => !(millis(t.startTime) > live.now() + 60000)).sort((a, b) => millis(b.startTime) - millis(a.startTime)).slice(0, 24);
    const says = JSON.stringify(latest.map((t) => [t, whereabouts(t)]));
    if (says === told) return;
    told = says;
    const focused = document.activeElement?.closest<HTMLElement>("tr[data-track]")?.dataset.track;
    if (latest.length === 0) fill(body, nothing(6, "Nothing seen yet. Tracks appear here as soon as something moves."));
    else fill(body, ...latest.map(trackRow));
    if (focused) body.querySelector<HTMLElement>(`[data-track="${CSS.escape(focused)}"] a`)?.focus({ preventScroll: true });
  };
  const soonTracks = gently(tracks);
  const soonCameras = gently(cameras);
  const offs = [live.on("cameras", soonCameras), live.on("cameras", soonTracks), live.on("system", soonTracks), live.on("tracks", soonTracks), live.on("link", () => {
    tiles.forEach((t) => t.tick());
    tracks();
  })];
  const timer = setInterval(() => {
    tiles.forEach((t) => t.tick());
    tracks();
  }, 500);
  cameras();
  tracks();
  return () => {
    offs.forEach((o) => o());
    clearInterval(timer);
    watcher.disconnect();
    tiles.forEach((t) => t.close());
    pictures.close();
  };
}
