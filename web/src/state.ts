// All live state, fed by one stream of server-sent events. Screens subscribe and draw what they need.

import type { Camera, Event, Frame, System, Track } from "./api";
import { millis } from "./dom";

type Topic = "cameras" | "tracks" | "events" | "system" | "link" | "frame";
type Listener = (what?: Frame) => void;

const keepTracks = 200;
const keepEvents = 200;

class LiveState {
  cameras = new Map<string, Camera>();
  /** Newest first. */
  tracks = new Map<string, Track>();
  events: Event[] = [];
  system: System | undefined;
  /** Whether the stream is connected and has told everything that was before. */
  synced = false;
  refused = 0;
  /** The box's clock minus the browser's, in milliseconds. */
  clockOffset = 0;

  private listeners = new Map<Topic, Set<Listener>>();
  private source: EventSource | undefined;

  /** on calls listener on every change of a topic until the returned function is called. */
  on(topic: Topic, listener: Listener): () => void {
    const set = this.listeners.get(topic) ?? new Set();
    this.listeners.set(topic, set);
    set.add(listener);
    return () => set.delete(listener);
  }

  private tell(topic: Topic, what?: Frame): void {
    for (const l of this.listeners.get(topic) ?? []) l(what);
  }

  /** now is the box's time in milliseconds. */
  now(): number {
    return Date.now() + this.clockOffset;
  }

  connect(): void {
    this.source?.close();
    const source = new EventSource("/live");
    this.source = source;
    source.addEventListener("open", () => {
      // A new stream begins with a new snapshot.
      this.cameras.clear();
      this.refused = 0;
      this.tell("link");
    });
    source.addEventListener("error", () => {
      this.synced = false;
      this.tell("link");
      if (source.readyState === EventSource.CLOSED) void this.whyRefused();
    });
    source.addEventListener("cameras", (e) => this.onCamera(JSON.parse((e as MessageEvent<string>).data)));
    source.addEventListener("analytics", (e) => this.onAnalytics(JSON.parse((e as MessageEvent<string>).data)));
    source.addEventListener("events", (e) => this.onEvent(JSON.parse((e as MessageEvent<string>).data)));
    source.addEventListener("system", (e) => {
      this.system = JSON.parse((e as MessageEvent<string>).data) as System;
      const offset = millis(this.system.serverTime) - Date.now();
      if (Number.isFinite(offset)) this.clockOffset = offset;
      this.tell("system");
    });
  }

  /** An event source does not say why it was refused; asking once does. */
  private async whyRefused(): Promise<void> {
    try {
      this.refused = (await fetch("/v1/system")).status;
    } catch {
      this.refused = 0;
    }
    this.tell("link");
    if (this.refused !== 401) setTimeout(() => this.connect(), 2000);
  }

  private onCamera(m: { change?: { kind: string; camera: Camera }; synced?: object }): void {
    if (m.change) {
      const c = m.change.camera;
      if (m.change.kind === "CHANGE_KIND_REMOVED") this.cameras.delete(c.name);
      else this.cameras.set(c.name, c);
      if (this.synced) this.tell("cameras");
    }
    if (m.synced) {
      this.synced = true;
      this.tell("link");
      this.tell("cameras");
    }
  }

  private onAnalytics(m: { track?: { kind: string; track: Track }; frame?: Frame }): void {
    if (m.track) {
      const t = m.track.track;
      this.tracks.delete(t.name);
      this.tracks.set(t.name, t);
      if (this.tracks.size > keepTracks) this.tracks.delete(this.tracks.keys().next().value as string);
      this.tell("tracks");
    }
    if (m.frame) this.tell("frame", m.frame);
  }

  private onEvent(m: { event?: Event }): void {
    if (!m.event) return;
    this.events.unshift(m.event);
    this.events.length = Math.min(this.events.length, keepEvents);
    this.tell("events");
  }
}

export const live = new LiveState();
