// Pictures of many cameras over one connection, since a browser has few of them to one box.

export interface Picture { capture: number; bitmap: ImageBitmap; arrived: number }

/** What is to be streamed: cameras by id, pictures a second of each, and their width in pixels (0: as they come). */
export interface Wanted { cameras: string[]; rate: number; width: number }

interface Viewer { take: (p: Picture) => void; trouble: (message: string) => void }

export class Pictures {
  private readonly viewers = new Map<string, Viewer>();
  private streaming: AbortController | undefined;
  private closed = false;
  private due = 0;
  private streamed = "";

  /** wanted is asked whenever viewers come or go, and when changed is called. */
  constructor(private readonly wanted: () => Wanted) {}

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
      const query = new URLSearchParams([...w.cameras.filter((c) => this.viewers.has(c)).sort().map((c): [string, string] => ["camera", c]), ["rate", String(w.rate)], ["width", String(w.width)]]).toString();
      if (this.closed || query === this.streamed) return;
      this.streaming?.abort();
      this.streamed = query;
      if (query.startsWith("camera")) void this.stream(query, (this.streaming = new AbortController()));
    }, 50);
  }

  close(): void {
    this.closed = true;
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
    let pending = new Uint8Array(0);
    const need = async (n: number): Promise<Uint8Array | null> => {
      const parts = [pending];
      let have = pending.length;
      while (have < n) {
        const { value, done } = await reader.read();
        if (done) return null;
        parts.push(value as Uint8Array<ArrayBuffer>);
        have += value.length;
      }
      const all = new Uint8Array(have);
      let at = 0;
      for (const p of parts) {
        all.set(p, at);
        at += p.length;
      }
      pending = all.slice(n);
      return all.subarray(0, n);
    };
    for (;;) {
      const sizes = await need(8);
      if (!sizes) return;
      const v = new DataView(sizes.buffer, sizes.byteOffset);
      const head = await need(v.getUint32(0));
      const jpeg = await need(v.getUint32(4));
      if (!head || !jpeg) return;
      const h = JSON.parse(new TextDecoder().decode(head)) as { camera: string; capture: number; error?: string };
      const viewer = this.viewers.get(h.camera);
      if (h.error !== undefined) {
        viewer?.trouble(h.error);
        continue;
      }
      if (!viewer) continue;
      const bitmap = await createImageBitmap(new Blob([jpeg as BlobPart], { type: "image/jpeg" }));
      if (signal.aborted || this.viewers.get(h.camera) !== viewer) bitmap.close();
      else viewer.take({ capture: h.capture, bitmap, arrived: performance.now() });
    }
  }
}
