// Pictures of many cameras over one connection, since a browser has few of them to one box.

import { live } from "./state";

export interface Picture { capture: number; bitmap: ImageBitmap; arrived: number }

/** What is to be streamed: cameras by id, pictures a second of each, and their width in pixels (0: as they come). */
export interface Wanted { cameras: string[]; rate: number; width: number }

/** lags tells that pictures pile up on their way: one is this old that came over a connection that is no longer new. Fewer
 * of them, over a new connection, are fresher. */
export const lags = (capture: number, began: number): boolean => live.now() - capture > 3000 && performance.now() - began > 5000;

/** recovered tells that a connection has been good for long enough to try more pictures. */
export const recovered = (began: number): boolean => performance.now() - began > 60000;

/** Incoming is a stream that is read by lengths and by lines; undefined is its end. */
export class Incoming {
  private pending: Uint8Array = new Uint8Array(0);

  constructor(private readonly reader: ReadableStreamDefaultReader<Uint8Array>) {}

  async take(n: number): Promise<Uint8Array | undefined> {
    if (!(await this.wait(n))) return undefined;
    const taken = this.pending.subarray(0, n);
    this.pending = this.pending.subarray(n);
    return taken;
  }

  /** line is the next line without its end. */
  async line(): Promise<string | undefined> {
    for (;;) {
      const end = this.pending.indexOf(10);
      if (end >= 0) return new TextDecoder().decode(await this.take(end + 1)).trimEnd();
      if (!(await this.wait(this.pending.length + 1))) return undefined;
    }
  }

  /** wait returns true once n bytes are there, false when the stream ends before. */
  private async wait(n: number): Promise<boolean> {
    const parts = [this.pending];
    let have = this.pending.length;
    while (have < n) {
      const { value } = await this.reader.read();
      if (!value) return false;
      parts.push(value);
      have += value.length;
    }
    if (parts.length === 1) return true;
    this.pending = new Uint8Array(have);
    let at = 0;
    for (const p of parts) {
      this.pending.set(p, at);
      at += p.length;
    }
    return true;
  }
}

interface Viewer { take: (p: Picture) => void; trouble: (message: string) => void }

export class Pictures {
  private readonly viewers = new Map<string, Viewer>();
  private streaming: AbortController | undefined;
  private closed = false;
  private due = 0;
  private streamed = "";
  /** By how much the rate is divided, over a slow connection. */
  private slowed = 1;

  /** wanted is asked whenever viewers come or go, the page is hidden or shown, and when changed is called. */
  constructor(private readonly wanted: () => Wanted) {
    document.addEventListener("visibilitychange", this.seen);
  }

  private readonly seen = (): void => this.changed();

  /** on shows a camera's pictures until the returned function is called. A viewer owns the bitmaps it takes. */
  on(camera: string, take: (p: Picture) => void, trouble: (message: string) => void): () => void {
    this.viewers.set(camera, { take, trouble });
    this.changed();
    return () => {
      this.viewers.delete(camera);
      this.changed();
    };
  }

  /** changed streams what is wanted now; several calls at once make one change. */
  changed(): void {
    clearTimeout(this.due);
    this.due = window.setTimeout(() => {
      const w = this.wanted();
      const query = new URLSearchParams([...w.cameras.filter((c) => this.viewers.has(c) && !document.hidden).sort().map((c): [string, string] => ["camera", c]), ["rate", String(Math.max(0.5, w.rate / this.slowed))], ["width", String(w.width)]]).toString();
      if (this.closed || query === this.streamed) return;
      this.streaming?.abort();
      this.streamed = query;
      if (query.startsWith("camera")) void this.stream(query, (this.streaming = new AbortController()));
    }, 50);
  }

  close(): void {
    this.closed = true;
    document.removeEventListener("visibilitychange", this.seen);
    clearTimeout(this.due);
    this.streaming?.abort();
  }

  /** stream receives for as long as it is wanted, connecting again when the box was away. */
  private async stream(query: string, until: AbortController): Promise<void> {
    while (!until.signal.aborted) {
      try {
        const answer = await fetch(`/live/pictures?${query}`, { signal: until.signal });
        if (!answer.ok || !answer.body) throw new Error(`pictures: ${answer.status}`);
        await this.read(answer.body.getReader(), until.signal);
      } catch {
        if (until.signal.aborted) return;
        for (const v of this.viewers.values()) v.trouble("No pictures: the appliance does not answer.");
      }
      await new Promise((r) => setTimeout(r, 1000));
    }
  }

  private async read(reader: ReadableStreamDefaultReader<Uint8Array>, signal: AbortSignal): Promise<void> {
    const incoming = new Incoming(reader);
    let began = performance.now();
    for (;;) {
      const sizes = await incoming.take(8);
      if (!sizes) return;
      const v = new DataView(sizes.buffer, sizes.byteOffset);
      const head = await incoming.take(v.getUint32(0));
      const jpeg = await incoming.take(v.getUint32(4));
      if (!head || !jpeg) return;
      const h = JSON.parse(new TextDecoder().decode(head)) as { camera: string; capture: number; error?: string };
      const viewer = this.viewers.get(h.camera);
      if (h.error !== undefined) {
        viewer?.trouble(h.error);
        continue;
      }
      if (!viewer) continue;
      const late = lags(h.capture, began);
      if (late ? this.slowed < 16 : this.slowed > 1 && recovered(began)) {
        this.slowed *= late ? 2 : 0.5;
        this.changed();
        began = performance.now(); // what still comes over this connection tells nothing new
      }
      const bitmap = await createImageBitmap(new Blob([jpeg as BlobPart], { type: "image/jpeg" }));
      if (signal.aborted || this.viewers.get(h.camera) !== viewer) bitmap.close();
      else viewer.take({ capture: h.capture, bitmap, arrived: performance.now() });
    }
  }
}
