// All live state, fed by one stream of server-sent events. Screens subscribe and draw what they need.

import type { Camera, Event, Frame, Model, Session, Sink, System, Timing, Track } from "./api";
import { lastPart, millis } from "./dom";

/** What is told, and with what. */
interface Topics {
  cameras: undefined;
  tracks: undefined;
  /** A new event; undefined after a gap, when the list is to be read again. */
  events: Event | undefined;
  /** An event that has a picture or a clip now. */
  media: Event;
  system: undefined;
  link: undefined;
  /** Somebody else looks now, or may do something else. */
  session: undefined;
  models: Model[];
  sinks: Sink[];
  timing: Timing;
}
type Topic = keyof Topics;
type Listener<T extends Topic> = (what: Topics[T]) => void;

const keepTracks = 200;
const keepSighted = 2000;
/** The box says something every two seconds; after so many milliseconds without, what it said is old. */
const patience = 6000;
/** So long after nobody can see the page the stream ends, since a browser has few connections to one box; in milliseconds. */
const unseen = 30000;

class LiveState {
  cameras = new Map<string, Camera>();
  /** Oldest change first. */
  tracks = new Map<string, Track>();
  system: System | undefined;
  /** Whether the stream is connected and has told everything that was before. */
  synced = false;
  refused = 0;
  /** Who looks; undefined until the box has told. */
  session: Session | undefined;
  /** The box's clock minus the browser's, in milliseconds. */
  clockOffset = 0;

  /** Capture times, in milliseconds: of the newest analysed picture of each camera, and of the last one each track was seen in. */
  private readonly analysed = new Map<string, number>();
  private readonly sighted = new Map<string, number>();
  private readonly frames = new Map<string, Set<(f: Frame) => void>>();
  private listeners: { [T in Topic]?: Set<Listener<T>> } = {};
  private source: EventSource | undefined;
  private coming: EventSource | undefined;
  private wanted = "";
  private heard = performance.now();
  /** Since when the box is connected and says nothing; 0: it speaks. */
  private quiet = 0;
  /** Whether the stream broke off since it was last in step: what happened meanwhile was not told. */
  private broken = false;

  constructor() {
    setInterval(() => this.listen(), 1000);
    let rest = 0;
    document.addEventListener("visibilitychange", () => {
      clearTimeout(rest);
      if (document.hidden) rest = window.setTimeout(() => this.pause(), unseen);
      else if (!(this.source ?? this.coming) && this.refused !== 401) this.connect();
    });
  }

  /** silence is for how long the box is connected and has said nothing, in milliseconds; 0: it speaks, or is not connected. */
  get silence(): number {
    return this.quiet ? performance.now() - this.quiet : 0;
  }

  /** listen takes what was told as old when nothing follows. */
  private listen(): void {
    if (this.synced && performance.now() - this.heard > patience) {
      this.synced = false;
      this.quiet = this.heard;
    }
    if (this.quiet) this.tell("link", undefined);
  }

  /** on calls listener on every change of a topic until the returned function is called. */
  on<T extends Topic>(topic: T, listener: Listener<T>): () => void {
    const set = (this.listeners[topic] ??= new Set() as never) as Set<Listener<T>>;
    set.add(listener);
    return () => set.delete(listener);
  }

  /** onFrame calls listener with what was seen in each analysed picture of a camera. */
  onFrame(camera: string, listener: (f: Frame) => void): () => void {
    const set = this.frames.get(camera) ?? new Set();
    this.frames.set(camera, set);
    set.add(listener);
    return () => set.delete(listener);
  }

  private tell<T extends Topic>(topic: T, what: Topics[T]): void {
    for (const l of (this.listeners[topic] ?? []) as Iterable<Listener<T>>) l(what);
  }

  /** forgetOpen lets tracks go that may have ended unheard; those that have not are told again within a second. */
  private forgetOpen(): void {
    for (const [name, t] of this.tracks) if (t.state === "TRACK_STATE_OPEN") this.tracks.delete(name);
  }

  private analyse(f: Frame): void {
    const at = millis(f.captureTime);
    this.analysed.set(f.camera, at);
    for (const o of f.observations ?? []) if (o.track) {
      this.sighted.delete(o.track);
      this.sighted.set(o.track, at);
      if (this.sighted.size > keepSighted) this.sighted.delete(this.sighted.keys().next().value as string);
    }
    for (const l of this.frames.get(f.camera) ?? []) l(f);
  }

  /** missing is for how long a track has not been found in its camera's pictures, in milliseconds; 0 while none was analysed since. */
  missing(t: Track): number {
    return Math.max(0, (this.analysed.get(t.camera) ?? 0) - Math.max(this.sighted.get(t.name) ?? 0, millis(t.endTime)));
  }

  /** title is what people call a camera. */
  title(camera: string | undefined): string {
    return this.cameras.get(camera ?? "")?.displayName || lastPart(camera);
  }

  /** now is the box's time in milliseconds. */
  now(): number {
    return Date.now() + this.clockOffset;
  }

  /** detail makes the stream carry what one screen alone shows; the one before goes on until the new one is there. */
  detail(wanted: string): void {
    if (wanted === this.wanted) return;
    this.wanted = wanted;
    if (this.source ?? this.coming) this.connect();
  }

  /** pause ends the stream until somebody looks again. */
  private pause(): void {
    this.source?.close();
    this.coming?.close();
    this.source = this.coming = undefined;
    this.synced = false;
    this.broken = true;
    this.quiet = 0;
    this.tell("link", undefined);
  }

  connect(): void {
    this.coming?.close();
    const source = new EventSource(`/live${this.wanted ? `?detail=${encodeURIComponent(this.wanted)}` : ""}`);
    this.coming = source;
    const cameras = new Map<string, Camera>();
    source.addEventListener("open", () => {
      // A new stream begins with a new snapshot.
      cameras.clear();
      this.forgetOpen();
      this.refused = 0;
      if (this.source !== source) this.source?.close();
      this.source = source;
      this.coming = undefined;
      this.tell("link", undefined);
    });
    source.addEventListener("error", () => {
      this.synced = false;
      this.broken = true;
      this.quiet = 0;
      this.tell("link", undefined);
      if (source.readyState === EventSource.CLOSED) void this.whyRefused();
    });
    const hear = <M>(name: string, then: (m: M) => void): void => source.addEventListener(name, (e) => {
      this.heard = performance.now();
      if (this.quiet) { // nothing was lost meanwhile
        this.quiet = 0;
        this.synced = true;
        this.tell("link", undefined);
      }
      then(JSON.parse((e as MessageEvent<string>).data) as M);
    });
    hear<Session>("session", (s) => {
      const same = JSON.stringify(s) === JSON.stringify(this.session);
      this.session = s;
      if (!same) this.tell("session", undefined);
    });
    hear<{ change?: { kind: string; camera: Camera }; synced?: object }>("cameras", (m) => {
      if (m.change) {
        const c = m.change.camera;
        if (m.change.kind === "CHANGE_KIND_REMOVED") cameras.delete(c.name);
        else cameras.set(c.name, c);
        if (this.cameras === cameras) this.tell("cameras", undefined);
      }
      if (m.synced) {
        this.cameras = cameras;
        this.synced = true;
        this.heard = performance.now();
        this.tell("link", undefined);
        this.tell("cameras", undefined);
        if (this.broken) this.tell("events", undefined);
        this.broken = false;
      }
    });
    hear<{ track?: { kind: string; track: Track }; frame?: Frame; gap?: object }>("analytics", (m) => {
      if (m.gap) this.forgetOpen();
      if (m.track) {
        const t = m.track.track;
        this.tracks.delete(t.name);
        this.tracks.set(t.name, t);
        if (this.tracks.size > keepTracks) this.tracks.delete(this.tracks.keys().next().value as string);
        this.tell("tracks", undefined);
      }
      if (m.frame) this.analyse(m.frame);
    });
    hear<{ event?: Event; media?: Event; gap?: object }>("events", (m) => {
      if (m.event || m.gap) this.tell("events", m.event);
      if (m.media) this.tell("media", m.media);
    });
    hear<System>("system", (s) => {
      this.system = s;
      const offset = millis(s.serverTime) - Date.now();
      if (Number.isFinite(offset)) this.clockOffset = offset;
      this.tell("system", undefined);
    });
    hear<Timing>("timing", (m) => this.tell("timing", m));
    hear<{ models?: Model[] }>("models", (m) => this.tell("models", m.models ?? []));
    hear<{ sinks?: Sink[] }>("sinks", (m) => this.tell("sinks", m.sinks ?? []));
  }

  /** An event source does not say why it was refused; asking once does. */
  private async whyRefused(): Promise<void> {
    try {
      this.refused = (await fetch("/v1/system")).status;
    } catch {
      this.refused = 0;
    }
    this.tell("link", undefined);
    if (this.refused !== 401) setTimeout(() => this.connect(), 2000);
  }
}

export const live = new LiveState();
