// Recorded tracks played over a draft of zones and lines, with what the draft would have fired.

import { ask, type Detection, type Event } from "./api";
import { clockTime, el, explained, fill, lastPart, millis, nothing, span, table } from "./dom";
import { resource, type Shape } from "./shapes";
import { colourOf } from "./view";

interface Spot { time: number; x: number; y: number; box: [number, number, number, number] }
interface Trail { track: string; class: string; spots: Spot[] }

/** How many rows of recorded detections are played at most: five pages. */
const maxPages = 5;
/** A trail ends where nothing was seen for this long, in milliseconds. */
const pause = 1500;

const spans: [string, number][] = [["the last 5 minutes", 5], ["the last 15 minutes", 15], ["the last hour", 60], ["the last 6 hours", 360], ["the last day", 1440]];

export class Replay {
  readonly panel: HTMLElement;
  readonly canvas = el("canvas", { class: "replay", role: "img", "aria-label": "Recorded tracks over the draft" });
  private readonly period = el("select", { "aria-label": "Time to look at" }, ...spans.map(([label, minutes]) => el("option", { value: minutes, selected: minutes === 60 }, label)));
  private readonly answer = el("p", { class: "answer", role: "status" });
  private readonly result = el("div");
  private readonly controls = el("div", { class: "player", hidden: true });
  private readonly at = el("input", { type: "range", min: 0, max: 1000, value: 0, "aria-label": "Time of the replay", oninput: () => this.seek() });
  private readonly clock = el("output", { class: "clock" });
  private readonly play = el("button", { type: "button", onclick: () => this.toggle() }, "Play");
  private readonly speed = el("select", { "aria-label": "Speed of the replay" }, ...[1, 5, 20, 60].map((n) => el("option", { value: n, selected: n === 5 }, `${n}×`)));
  private trails: Trail[] = [];
  private events: Event[] = [];
  private range: [number, number] = [0, 0];
  private now = 0;
  private raf = 0;

  /** flash shows that a rule fired; showing tells whether a replay covers the live picture. */
  constructor(private readonly camera: string, private readonly shapes: () => Shape[], private readonly flash: (rule: string) => void, private readonly showing: (on: boolean) => void) {
    fill(this.controls, this.play, this.at, this.clock, this.speed, el("button", { type: "button", onclick: () => this.stop() }, "Back to live"));
    this.panel = el("section", { class: "panel try" }, el("h2", {}, "Try it on what was recorded"),
      el("p", { class: "meaning" }, "Plays the tracks this camera recorded over the zones and lines as they are drawn now, saved or not. Nothing is changed."),
      el("p", { class: "buttons" }, this.period, el("button", { type: "button", class: "main", onclick: () => void this.test() }, "Try")), this.answer, this.result);
  }

  /** bar has the controls of the player; it goes below the picture. */
  get bar(): HTMLElement {
    return this.controls;
  }

  close(): void {
    cancelAnimationFrame(this.raf);
  }

  private async test(): Promise<void> {
    const shapes = this.shapes().filter((s) => !s.disabled);
    if (!shapes.length) {
      fill(this.answer, "Draw a zone or a line first.");
      return;
    }
    fill(this.answer, "Looking through what was recorded …");
    const end = Date.now();
    const start = end - Number(this.period.value) * 60000;
    const time = { startTime: new Date(start).toISOString(), endTime: new Date(end).toISOString() };
    const bare = (s: Shape): object => ({ ...resource(this.camera, s), etag: undefined });
    try {
      const [fired, complete] = await Promise.all([
        ask<{ events?: Event[]; frames?: string; stoppedTime?: string }>("POST", `/v1/${this.camera}/rules:test`, {
          zones: shapes.filter((s) => s.kind === "zone").map(bare), lines: shapes.filter((s) => s.kind === "line").map(bare), ...time,
        }),
        this.load(time.startTime, time.endTime),
      ]);
      this.events = fired.events ?? [];
      this.tell(shapes, fired.frames ?? "0", fired.stoppedTime, complete);
      if (this.trails.length) this.begin();
    } catch (e) {
      fill(this.answer, (e as Error).message);
    }
  }

  /** load reads recorded detections, and tells whether all of them. */
  private async load(startTime: string, endTime: string): Promise<boolean> {
    const trails = new Map<string, Trail>();
    let token = "";
    for (let page = 0; page < maxPages; page++) {
      const q = new URLSearchParams({ filter: `time >= "${startTime}" AND time < "${endTime}"`, orderBy: "capture_time", pageSize: "10000", ...(token ? { pageToken: token } : {}) });
      const answer = await ask<{ detections?: Detection[]; nextPageToken?: string }>("GET", `/v1/${this.camera}/detections?${q.toString()}`);
      for (const d of answer.detections ?? []) {
        if (!d.track) continue;
        const b = d.box;
        const box: Spot["box"] = [b.xMin ?? 0, b.yMin ?? 0, b.xMax ?? 0, b.yMax ?? 0];
        const t = trails.get(d.track) ?? { track: d.track, class: d.class ?? "", spots: [] };
        trails.set(d.track, t);
        t.spots.push({ time: millis(d.captureTime), x: (box[0] + box[2]) / 2, y: box[3], box });
      }
      token = answer.nextPageToken ?? "";
      if (!token) break;
    }
    this.trails = [...trails.values()];
    const times = this.trails.flatMap((t) => [t.spots[0]!.time, t.spots.at(-1)!.time]);
    this.range = times.length ? [Math.min(...times), Math.max(...times)] : [0, 0];
    return !token;
  }

  private tell(shapes: Shape[], frames: string, stopped: string | undefined, complete: boolean): void {
    const counts = new Map<string, [string, string, string, number]>();
    for (const e of this.events) {
      const a = e.attributes ?? {};
      const key = [lastPart(a.line ?? a.zone), `${e.type.replaceAll("_", " ")}${a.direction ? `, ${a.direction}` : ""}`, a.class ?? ""] as const;
      const row = counts.get(key.join("\n")) ?? [...key, 0];
      row[3]++;
      counts.set(key.join("\n"), row);
    }
    fill(this.answer, `${frames} analysed pictures, ${this.trails.length} tracks: ${this.events.length} events would have fired.`,
      stopped ? ` Stopped at ${clockTime(millis(stopped))}: there is more than can be looked at in one go; choose a shorter time.` : "", complete ? "" : " The replay shows the first part of it.");
    const body = el("tbody", {}, ...[...counts.values()].sort().map(([rule, what, kind, n]) => el("tr", {}, el("td", {}, rule), el("td", {}, what), el("td", {}, kind || "–"), el("td", {}, String(n)))));
    if (!counts.size) fill(body, nothing(4, this.trails.length ? `None of the ${shapes.length === 1 ? "" : "drawn "}rules would have fired. The trails show where objects went.` : "This camera recorded no tracks in that time; choose a longer one."));
    fill(this.result, table("What would have fired", [["Rule", ""], ["Event", ""], ["Class", ""], ["Times", "How often in that time"]], body),
      this.events.length ? el("details", {}, el("summary", {}, "Each event"), el("ol", { class: "fired" }, ...this.events.slice(0, 200).map((e) => el("li", {}, el("button", { type: "button", onclick: () => this.jump(millis(e.time)) }, clockTime(millis(e.time))), ` ${lastPart(e.attributes?.line ?? e.attributes?.zone)} ${e.type.replaceAll("_", " ")} ${e.attributes?.direction ?? ""} ${e.attributes?.class ?? ""}`)))) : null,
      el("p", { class: "meaning" }, explained("What counts", "A line counts an object when the middle of its lower edge (or its centre, as you chose) stays on the other side for the line's inertia."), " is the same code that counts live."));
  }

  private begin(): void {
    this.controls.hidden = false;
    this.showing(true);
    this.now = this.range[0];
    this.draw();
    if (!this.raf) this.toggle();
  }

  private stop(): void {
    cancelAnimationFrame(this.raf);
    this.raf = 0;
    fill(this.play, "Play");
    this.controls.hidden = true;
    this.canvas.getContext("2d")!.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.showing(false);
  }

  private toggle(): void {
    if (this.raf) {
      cancelAnimationFrame(this.raf);
      this.raf = 0;
      fill(this.play, "Play");
      return;
    }
    fill(this.play, "Pause");
    if (this.now >= this.range[1]) this.now = this.range[0];
    let last = performance.now();
    const frame = (t: number): void => {
      const before = this.now;
      this.now = Math.min(this.range[1], this.now + (t - last) * Number(this.speed.value));
      last = t;
      for (const e of this.events) {
        const at = millis(e.time);
        if (at > before && at <= this.now) this.flash(lastPart(e.attributes?.line ?? e.attributes?.zone));
      }
      this.draw();
      if (this.now >= this.range[1]) return this.toggle();
      this.raf = requestAnimationFrame(frame);
    };
    this.raf = requestAnimationFrame(frame);
  }

  private seek(): void {
    this.now = this.range[0] + (Number(this.at.value) / 1000) * (this.range[1] - this.range[0]);
    this.draw();
  }

  private jump(to: number): void {
    this.now = to;
    this.controls.hidden = false;
    this.showing(true);
    this.draw();
    this.events.filter((e) => Math.abs(millis(e.time) - to) < 1).forEach((e) => this.flash(lastPart(e.attributes?.line ?? e.attributes?.zone)));
  }

  private draw(): void {
    const whole = this.range[1] - this.range[0];
    this.at.value = String(whole ? (1000 * (this.now - this.range[0])) / whole : 0);
    fill(this.clock, `${clockTime(this.now)} · ${span(this.now - this.range[0])} of ${span(whole)}`);
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(this.canvas.clientWidth * scale), Math.round(this.canvas.clientHeight * scale)];
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    const g = this.canvas.getContext("2d")!;
    g.clearRect(0, 0, width, height);
    g.lineWidth = 1.5 * scale;
    for (const t of this.trails) {
      const seen = t.spots.findLast((s) => s.time <= this.now);
      const current = seen && this.now - seen.time < pause && t.spots.at(-1)!.time >= this.now - pause;
      g.strokeStyle = colourOf(t.class) + (current ? "ff" : "38");
      g.beginPath();
      t.spots.forEach((s, i) => {
        if (current && s.time > this.now) return;
        if (i && s.time - t.spots[i - 1]!.time < pause) g.lineTo(s.x * width, s.y * height);
        else g.moveTo(s.x * width, s.y * height);
      });
      g.stroke();
      if (!current) continue;
      const [x1, y1, x2, y2] = seen.box;
      g.strokeRect(x1 * width, y1 * height, (x2 - x1) * width, (y2 - y1) * height);
      g.beginPath();
      g.arc(seen.x * width, seen.y * height, 4 * scale, 0, 7);
      g.fillStyle = colourOf(t.class);
      g.fill();
    }
  }
}
