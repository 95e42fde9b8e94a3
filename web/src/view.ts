// One camera's moving picture with what was seen drawn over it. Pictures and boxes come on different ways and at
// different times; they are joined by capture time, so that a box sits on its object.

import type { Frame, Observation } from "./api";
import { lastPart, millis } from "./dom";
import { live } from "./state";

interface Picture { capture: number; bitmap: ImageBitmap; arrived: number }
interface Seen { capture: number; observations: Observation[] }
interface DrawnBox { id: string; class: string; x1: number; y1: number; x2: number; y2: number }

/** How long a picture waits for what was seen in it before it is shown without. */
const patience = 900;
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

export class CameraView {
  readonly canvas = document.createElement("canvas");
  /** Capture time of the picture that is shown; NaN before the first. */
  shown = NaN;
  /** Why there is no picture. */
  trouble = "";
  layers = { boxes: true, ids: true, trails: true };

  private pictures: Picture[] = [];
  private seen: Seen[] = [];
  private current: Picture | undefined;
  private closed = new AbortController();
  private off: () => void;
  private raf = 0;

  constructor(private readonly camera: string) {
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `Live picture of camera ${lastPart(camera)}`);
    this.canvas.dataset.camera = lastPart(camera);
    this.off = live.on("frame", (f) => f?.camera === this.camera && this.add(f));
    void this.receive();
    const draw = (): void => {
      if (this.closed.signal.aborted) return;
      this.choose();
      this.raf = requestAnimationFrame(draw);
    };
    this.raf = requestAnimationFrame(draw);
  }

  close(): void {
    this.closed.abort();
    this.off();
    cancelAnimationFrame(this.raf);
    for (const p of this.pictures) p.bitmap.close();
    this.current?.bitmap.close();
    this.pictures = [];
    this.current = undefined;
  }

  private add(f: Frame): void {
    this.seen.push({ capture: millis(f.captureTime), observations: f.observations ?? [] });
    if (this.seen.length > 1 && this.seen.at(-1)!.capture < this.seen.at(-2)!.capture) this.seen.sort((a, b) => a.capture - b.capture);
    if (this.seen.length > keptSeen) this.seen.shift();
  }

  /** receive reads the stream of pictures for as long as the view lives. */
  private async receive(): Promise<void> {
    while (!this.closed.signal.aborted) {
      try {
        const answer = await fetch(`/live/${lastPart(this.camera)}/pictures`, { signal: this.closed.signal });
        if (!answer.ok || !answer.body) throw new Error(`pictures: ${answer.status}`);
        await this.read(answer.body.getReader());
      } catch {
        if (this.closed.signal.aborted) return;
        this.trouble = "No pictures: the appliance does not answer.";
      }
      await new Promise((r) => setTimeout(r, 1000));
    }
  }

  private async read(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
    let pending = new Uint8Array(0);
    const need = async (n: number): Promise<Uint8Array | null> => {
      while (pending.length < n) {
        const { value, done } = await reader.read();
        if (done) return null;
        const joined = new Uint8Array(pending.length + value.length);
        joined.set(pending);
        joined.set(value, pending.length);
        pending = joined;
      }
      const taken = pending.slice(0, n);
      pending = pending.slice(n);
      return taken;
    };
    for (;;) {
      const sizes = await need(8);
      if (!sizes) return;
      const v = new DataView(sizes.buffer);
      const head = await need(v.getUint32(0));
      const jpeg = await need(v.getUint32(4));
      if (!head || !jpeg) return;
      const h = JSON.parse(new TextDecoder().decode(head)) as { capture: number; error?: string };
      if (h.error !== undefined) {
        this.trouble = h.error;
        continue;
      }
      this.trouble = "";
      const bitmap = await createImageBitmap(new Blob([jpeg as BlobPart], { type: "image/jpeg" }));
      if (this.closed.signal.aborted) return bitmap.close();
      this.pictures.push({ capture: h.capture, bitmap, arrived: performance.now() });
      while (this.pictures.length > keptPictures) this.pictures.shift()!.bitmap.close();
    }
  }

  /** choose shows the newest picture whose boxes are known, or one that has waited long enough. */
  private choose(): void {
    const known = this.seen.at(-1)?.capture ?? -Infinity;
    const now = performance.now();
    let next = -1;
    this.pictures.forEach((p, i) => {
      if (p.capture <= known + 0.5 || now - p.arrived > patience) next = i;
    });
    if (next < 0) return;
    for (const p of this.pictures.splice(0, next)) p.bitmap.close();
    this.current?.bitmap.close();
    this.current = this.pictures.shift();
    this.shown = this.current!.capture;
    this.paint();
  }

  private paint(): void {
    const p = this.current!;
    const scale = window.devicePixelRatio || 1;
    const width = Math.max(1, Math.round(this.canvas.clientWidth * scale)) || p.bitmap.width;
    const height = Math.round((width * p.bitmap.height) / p.bitmap.width);
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    const g = this.canvas.getContext("2d")!;
    g.imageSmoothingQuality = "high";
    g.drawImage(p.bitmap, 0, 0, width, height);
    const boxes = this.at(p.capture);
    if (this.layers.trails) this.paintTrails(g, p.capture, boxes);
    if (this.layers.boxes) for (const b of boxes) this.paintBox(g, b, scale);
    this.canvas.dispatchEvent(new CustomEvent("drawn", { detail: { capture: p.capture, boxes } }));
  }

  /** at returns the boxes at a capture time: those seen then, or between the frames before and after it. */
  private at(capture: number): DrawnBox[] {
    let before: Seen | undefined;
    let after: Seen | undefined;
    for (const s of this.seen) {
      if (s.capture <= capture + 0.5) before = s;
      else {
        after = s;
        break;
      }
    }
    if (!before || capture - before.capture > 400) return [];
    const t = after && after.capture - before.capture < 800 ? (capture - before.capture) / (after.capture - before.capture) : 0;
    return before.observations.map((o) => {
      const to = t > 0.01 ? after!.observations.find((x) => x.track === o.track) : undefined;
      const mix = (k: keyof Observation["box"]): number => (o.box[k] ?? 0) + (to ? ((to.box[k] ?? 0) - (o.box[k] ?? 0)) * t : 0);
      return { id: o.localId ?? "", class: o.class ?? "", x1: mix("xMin"), y1: mix("yMin"), x2: mix("xMax"), y2: mix("yMax") };
    });
  }

  private paintBox(g: CanvasRenderingContext2D, b: DrawnBox, scale: number): void {
    const { width, height } = this.canvas;
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
    const { width, height } = this.canvas;
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
}
