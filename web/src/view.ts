// One camera's moving picture with what was seen drawn over it. Pictures and boxes come on different ways and at
// different times; they are joined by capture time, so that a box sits on its object.

import type { Frame, Line, Observation, Point, Zone } from "./api";
import { lastPart, millis } from "./dom";
import { lags, type Picture, type Pictures, recovered } from "./pictures";
import { live } from "./state";
import { offered, play, type Way } from "./video";

interface Seen { capture: number; observations: Observation[] }
interface DrawnBox { id: string; class: string; x1: number; y1: number; x2: number; y2: number }

/** How long a picture waits for what was seen in it before it is shown without. */
const patience = 900;
/** Video that begins this far behind the JPEG that is shown is let run first, in milliseconds. */
const keyframeBehind = 1500;
const keptSeen = 120;
const keptPictures = 24;
const trailSpan = 3000;
/** Pictures this old are no longer called live. */
export const ageWarning = 2000;
export const ageAlarm = 10000;

const classColours: Record<string, string> = {
  person: "#f5a623", bicycle: "#56b4e9", car: "#2ecc8f", motorcycle: "#f0e442", bus: "#5b8def", truck: "#ff7d45",
};
/** colourOf gives each class a colour that people with any colour vision can tell apart; others share one. */
export const colourOf = (name: string | undefined): string => classColours[name ?? ""] ?? "#e58fc4";

const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const happened = (signal: AbortSignal): Promise<void> => new Promise((done) => (signal.aborted ? done() : signal.addEventListener("abort", () => done(), { once: true })));

export class CameraView {
  readonly canvas = document.createElement("canvas");
  /** Capture time of the picture that is shown; NaN before the first. */
  shown = NaN;
  /** Why there is no picture. */
  trouble = "";
  layers = { boxes: true, ids: true, trails: true, rules: true };
  zones: Zone[] = [];
  lines: Line[] = [];
  /** How pictures come now, and why not in a better way; live video only when it was asked for. */
  way: Way = "mjpeg";
  why = "";

  private readonly id: string;
  private pictures: Picture[] = [];
  private seen: Seen[] = [];
  private current: Picture | undefined;
  private readonly offs: (() => void)[];
  private due = 0;
  /** JPEGs a second, when there is no video. */
  private rate = 15;

  /** With several views, they share one source of pictures; a view without one has live video where it can. */
  constructor(camera: string, source?: Pictures) {
    const id = lastPart(camera);
    this.id = id;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `Live picture of camera ${id}`);
    this.canvas.dataset.camera = id;
    this.offs = [live.onFrame(camera, (f) => this.add(f))];
    if (source) this.offs.push(source.on(id, (p) => this.take(p), (trouble) => (this.trouble = trouble)));
    else {
      const closed = new AbortController();
      this.offs.push(() => closed.abort());
      void this.video(closed.signal);
    }
  }

  /** video shows the camera in the best way that works; one that gives no picture is not tried again with this stream. */
  private async video(signal: AbortSignal): Promise<void> {
    const useless = new Set<Way>();
    while (!signal.aborted) {
      await this.running(signal);
      if (signal.aborted) return;
      const round = new AbortController();
      const ended = AbortSignal.any([signal, round.signal]);
      const other = this.another(ended);
      const { ways, why } = await offered(this.id);
      const way = ways.find((w) => !useless.has(w)) ?? "mjpeg";
      this.way = way;
      if (!useless.size) this.why = why;
      let came = false;
      try {
        if (way === "mjpeg") {
          void this.better(useless, other).then((found) => found && round.abort());
          const began = performance.now();
          await play(this.id, way, (p) => {
            const late = lags(p.capture, began);
            if (late ? this.rate > 2 : this.rate < 15 && recovered(began)) {
              this.rate *= late ? 0.5 : 2;
              round.abort();
            }
            this.take(p);
          }, other, this.rate); // another stream may give video
        } else {
          // Video begins with a keyframe, which may take seconds to come; JPEGs stand in for it.
          const meanwhile = new AbortController();
          void play(this.id, "mjpeg", (p) => this.take(p), AbortSignal.any([ended, meanwhile.signal]), 5).catch(() => undefined);
          await play(this.id, way, (p) => {
            // It runs from there to now within a moment.
            const behind = this.shown - p.capture;
            if (!came && behind > keyframeBehind && behind < 30000) return;
            came = true;
            meanwhile.abort();
            this.take(p);
          }, signal);
        }
      } catch (e) {
        const message = (e as Error).message;
        if (way === "mjpeg") {
          this.trouble = message;
          await Promise.race([happened(other), pause(4500)]);
        } else {
          this.why = `${way === "whep" ? "WebRTC" : "MP4"}: ${message}`;
          if (!came) useless.add(way);
        }
      }
      if (other.aborted && !round.signal.aborted) useless.clear();
      round.abort();
      await pause(500);
    }
  }

  /** better tells whether video comes to be offered that was not when JPEGs began, as of a stream that was just beginning. */
  private async better(useless: Set<Way>, signal: AbortSignal): Promise<boolean> {
    const began = live.now();
    const young = (): boolean => live.now() - Math.max(began, millis(live.cameras.get(`cameras/${this.id}`)?.status?.sinceTime) || 0) < 30000;
    while (young() && !signal.aborted) {
      await Promise.race([happened(signal), pause(3000)]);
      const { ways } = await offered(this.id);
      if (!signal.aborted && ways.some((w) => w !== "mjpeg" && !useless.has(w))) return true;
    }
    return false;
  }

  /** running waits until the camera is known to stream: before, there is no picture to ask for. */
  private async running(signal: AbortSignal): Promise<void> {
    const on = (): boolean => live.cameras.get(`cameras/${this.id}`)?.status?.state === "CAMERA_STATE_STREAMING";
    while (!on() && !signal.aborted) {
      const round = new AbortController();
      await happened(this.another(AbortSignal.any([signal, round.signal])));
      round.abort();
    }
  }

  /** another ends once the camera's stream or state is not what it is now, or when signal does. */
  private another(signal: AbortSignal): AbortSignal {
    const state = (): string => {
      const c = live.cameras.get(`cameras/${this.id}`);
      return JSON.stringify([c?.desiredState, c?.status?.state, c?.status?.streamEpoch]);
    };
    const now = state();
    const changed = new AbortController();
    const either = AbortSignal.any([signal, changed.signal]);
    const off = live.on("cameras", () => state() !== now && changed.abort());
    either.addEventListener("abort", off, { once: true });
    return either;
  }

  close(): void {
    this.offs.forEach((off) => off());
    cancelAnimationFrame(this.due);
    for (const p of this.pictures) p.bitmap.close();
    this.current?.bitmap.close();
    this.pictures = [];
    this.current = undefined;
  }

  /** redraw draws the same picture again, with other layers. */
  redraw(): void {
    if (this.current) this.paint();
  }

  private take(p: Picture): void {
    this.trouble = "";
    if (p.capture <= this.shown) return p.bitmap.close(); // of another source, and late
    this.pictures.push(p);
    while (this.pictures.length > keptPictures) this.pictures.shift()!.bitmap.close();
    this.soon();
  }

  private add(f: Frame): void {
    this.seen.push({ capture: millis(f.captureTime), observations: f.observations ?? [] });
    if (this.seen.length > 1 && this.seen.at(-1)!.capture < this.seen.at(-2)!.capture) this.seen.sort((a, b) => a.capture - b.capture);
    if (this.seen.length > keptSeen) this.seen.shift();
    if (this.pictures.length) this.soon();
  }

  private soon(): void {
    this.due ||= requestAnimationFrame(() => {
      this.due = 0;
      this.choose();
    });
  }

  /** choose shows the newest picture whose boxes are known, or one that has waited long enough. */
  private choose(): void {
    const known = this.seen.at(-1)?.capture ?? -Infinity;
    const now = performance.now();
    const next = this.pictures.findLastIndex((p) => p.capture <= known + 0.5 || now - p.arrived > patience);
    if (next >= 0) {
      for (const p of this.pictures.splice(0, next)) p.bitmap.close();
      this.current?.bitmap.close();
      this.current = this.pictures.shift();
      this.shown = this.current!.capture;
      this.paint();
    }
    // What still waits is looked at again with the next picture, the next frame, or when its patience ends.
    if (this.pictures.length) setTimeout(() => this.soon(), patience);
  }

  private paint(): void {
    const p = this.current!;
    const scale = window.devicePixelRatio || 1;
    const width = Math.round(this.canvas.clientWidth * scale) || p.bitmap.width;
    const height = Math.round((width * p.bitmap.height) / p.bitmap.width);
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.canvas.style.aspectRatio = `${p.bitmap.width} / ${p.bitmap.height}`;
    }
    const g = this.canvas.getContext("2d")!;
    g.drawImage(p.bitmap, 0, 0, width, height);
    this.overlay(g, p.capture, scale);
  }

  /** overlay draws what was seen at a capture time, and tells what it drew. */
  overlay(g: CanvasRenderingContext2D, capture: number, scale: number): void {
    const boxes = this.at(capture);
    if (this.layers.rules) this.paintRules(g, scale);
    if (this.layers.trails) this.paintTrails(g, capture, boxes);
    if (this.layers.boxes) for (const b of boxes) this.paintBox(g, b, scale);
    this.canvas.dispatchEvent(new CustomEvent("drawn", { detail: { capture, boxes } }));
  }

  /** at returns the boxes at a capture time: those seen then, or between the frames before and after it. */
  private at(capture: number): DrawnBox[] {
    const i = this.seen.findLastIndex((s) => s.capture <= capture + 0.5);
    const before = this.seen[i];
    const after = this.seen[i + 1];
    if (!before || capture - before.capture > 400) return [];
    const t = after && after.capture - before.capture < 800 ? (capture - before.capture) / (after.capture - before.capture) : 0;
    return before.observations.map((o) => {
      const to = t > 0.01 ? after!.observations.find((x) => x.track === o.track) : undefined;
      const mix = (k: keyof Observation["box"]): number => (o.box[k] ?? 0) + (to ? ((to.box[k] ?? 0) - (o.box[k] ?? 0)) * t : 0);
      return { id: o.localId ?? "", class: o.class ?? "", x1: mix("xMin"), y1: mix("yMin"), x2: mix("xMax"), y2: mix("yMax") };
    });
  }

  private paintBox(g: CanvasRenderingContext2D, b: DrawnBox, scale: number): void {
    const { width, height } = g.canvas;
    const colour = colourOf(b.class);
    const [x, y, w, h] = [b.x1 * width, b.y1 * height, (b.x2 - b.x1) * width, (b.y2 - b.y1) * height];
    g.lineWidth = 2 * scale;
    g.strokeStyle = "rgba(0,0,0,.55)";
    g.strokeRect(x - scale, y - scale, w + 2 * scale, h + 2 * scale);
    g.strokeStyle = colour;
    g.strokeRect(x, y, w, h);
    if (!this.layers.ids) return;
    g.font = `600 ${11 * scale}px system-ui, sans-serif`;
    const label = `${b.class} ${b.id}`;
    const room = g.measureText(label).width + 8 * scale;
    const top = y > 16 * scale ? y - 16 * scale : y + h;
    g.fillStyle = colour;
    g.fillRect(x - scale, top, room, 15 * scale);
    g.fillStyle = "#10151c";
    g.fillText(label, x + 3 * scale, top + 11.5 * scale);
  }

  private paintTrails(g: CanvasRenderingContext2D, capture: number, boxes: DrawnBox[]): void {
    const { width, height } = g.canvas;
    for (const b of boxes) {
      g.beginPath();
      let begun = false;
      for (const s of this.seen) {
        if (s.capture < capture - trailSpan || s.capture > capture) continue;
        const o = s.observations.find((x) => x.localId === b.id);
        if (!o) continue;
        const x = (((o.box.xMin ?? 0) + (o.box.xMax ?? 0)) / 2) * width;
        const y = (o.box.yMax ?? 0) * height;
        if (begun) g.lineTo(x, y);
        else g.moveTo(x, y);
        begun = true;
      }
      g.lineWidth = 2 * (window.devicePixelRatio || 1);
      g.strokeStyle = colourOf(b.class) + "b0";
      g.stroke();
    }
  }

  private paintRules(g: CanvasRenderingContext2D, scale: number): void {
    const { width, height } = g.canvas;
    const at = (p: Point): [number, number] => [(p.x ?? 0) * width, (p.y ?? 0) * height];
    const name = (label: string, p: Point): void => {
      g.font = `600 ${11 * scale}px system-ui, sans-serif`;
      const [x, y] = at(p);
      g.lineWidth = 3 * scale;
      g.strokeStyle = "rgba(0,0,0,.7)";
      g.strokeText(label, x + 4 * scale, y - 4 * scale);
      g.fillStyle = "#fff";
      g.fillText(label, x + 4 * scale, y - 4 * scale);
    };
    g.lineJoin = "round";
    for (const z of this.zones) {
      if (z.disabled || !z.polygon.length) continue;
      g.beginPath();
      z.polygon.forEach((p, i) => (i ? g.lineTo(...at(p)) : g.moveTo(...at(p))));
      g.closePath();
      g.fillStyle = "rgba(86,180,233,.14)";
      g.fill();
      g.lineWidth = 1.5 * scale;
      g.strokeStyle = "#56b4e9";
      g.stroke();
      name(z.displayName || lastPart(z.name), z.polygon[0]!);
    }
    for (const l of this.lines) {
      if (l.disabled) continue;
      g.lineWidth = 2.5 * scale;
      g.strokeStyle = g.fillStyle = "#f0e442";
      g.beginPath();
      g.moveTo(...at(l.start));
      g.lineTo(...at(l.end));
      g.stroke();
      const [head, ...sides] = arrow(at(l.start), at(l.end), 14 * scale);
      g.beginPath();
      g.moveTo(...head);
      for (const s of sides) g.lineTo(...s);
      g.fill();
      name(l.displayName || lastPart(l.name), l.start);
    }
  }
}

/** arrow is a triangle on the middle of a line, tip first, that points forward: from its left to its right as seen
 * from its start towards its end. */
export function arrow([x1, y1]: [number, number], [x2, y2]: [number, number], size: number): [[number, number], [number, number], [number, number]] {
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
  // The picture's y goes down, so right of (ux, uy) is (-uy, ux).
  const [mx, my] = [(x1 + x2) / 2, (y1 + y2) / 2];
  return [[mx - uy * size, my + ux * size], [mx - ux * size * 0.5, my - uy * size * 0.5], [mx + ux * size * 0.5, my + uy * size * 0.5]];
}
