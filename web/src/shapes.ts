// Drafts of zones, lines and masks, and how they become what the API takes. No drawing here.

import type { Line, Mask, Point, Zone } from "./api";
import { lastPart, seconds } from "./dom";

export interface Place { x: number; y: number }

/** kinds are what is drawn, and what people call it. */
export const kinds = { zone: "zone", line: "line", privacy: "privacy mask", motion: "motion mask" };

/** Shape is what is being edited; points are fractions of the picture. */
export interface Shape {
  kind: keyof typeof kinds;
  id: string;
  points: Place[];
  displayName: string;
  classes: string[];
  minScore: number;
  /** Seconds; NaN: the box's default. */
  inertia: number;
  dwell: number;
  loitering: number;
  occupancy: number;
  anchor: string;
  disabled: boolean;
  /** As it is stored, a mask as if it were a zone; undefined: it is new. */
  stored?: Zone | Line;
}

const place = (p: Point): Place => ({ x: p.x ?? 0, y: p.y ?? 0 });

export const minPoints = (s: { kind: string }): number => (s.kind === "line" ? 2 : 3);
export const maxPoints = (s: { kind: string }): number => (s.kind === "line" ? 2 : 64);
export const isMask = (s: { kind: string }): boolean => s.kind === "privacy" || s.kind === "motion";

/** draft is a new shape. */
export const draft = (kind: Shape["kind"], id: string, points: Place[]): Shape => ({
  kind, id, points, displayName: "", classes: [], minScore: 0, inertia: NaN, dwell: 0, loitering: 0, occupancy: 0, anchor: "ANCHOR_BOTTOM_CENTER", disabled: false,
});

/** edited is a stored zone or line as a shape. */
export function edited(stored: Zone | Line): Shape {
  const zone = "polygon" in stored ? stored : undefined;
  return {
    kind: zone ? "zone" : "line", id: lastPart(stored.name), points: zone ? zone.polygon.map(place) : [place((stored as Line).start), place((stored as Line).end)],
    displayName: stored.displayName ?? "", classes: [...(stored.classes ?? [])], minScore: Math.round(1000 * (stored.minScore ?? 0)) / 1000, inertia: stored.inertia ? seconds(stored.inertia) : NaN,
    dwell: seconds(zone?.dwell), loitering: seconds(zone?.loitering), occupancy: zone?.occupancy ?? 0,
    anchor: stored.anchor && stored.anchor !== "ANCHOR_UNSPECIFIED" ? stored.anchor : "ANCHOR_BOTTOM_CENTER", disabled: stored.disabled ?? false, stored,
  };
}

/** masked are a camera's masks of one kind as shapes. */
export const masked = (kind: "privacy" | "motion", masks: Mask[] = []): Shape[] => masks.map((m, i) => ({ ...edited({ name: `${kind}-${i + 1}`, polygon: m.points ?? [] }), kind }));

/** same tells whether a shape says what is stored. */
export function same(s: Shape): boolean {
  if (!s.stored) return false;
  return JSON.stringify({ ...edited(s.stored), kind: s.kind, stored: 0 }) === JSON.stringify({ ...s, stored: 0 });
}

/** resource is a shape as the API takes it. */
export function resource(camera: string, s: Shape): Record<string, unknown> {
  const common = {
    name: `${camera}/${s.kind}s/${s.id}`, displayName: s.displayName, classes: s.classes, minScore: s.minScore, anchor: s.anchor, disabled: s.disabled,
    ...(s.stored ? { etag: s.stored.etag } : {}), ...(s.stored?.schedule ? { schedule: s.stored.schedule } : {}),
    ...(Number.isNaN(s.inertia) ? {} : { inertia: `${s.inertia}s` }),
  };
  if (s.kind === "line") return { ...common, start: s.points[0], end: s.points[1] };
  return { ...common, polygon: s.points, dwell: `${s.dwell}s`, loitering: `${s.loitering}s`, occupancy: s.occupancy };
}

/** mask names what an update changes. */
export const mask = (s: Shape): string =>
  (s.kind === "line" ? ["start", "end"] : ["polygon", "dwell", "loitering", "occupancy"]).concat(["display_name", "classes", "min_score", "anchor", "disabled"], Number.isNaN(s.inertia) ? [] : ["inertia"]).join(",");

/** snap moves a place onto the picture's edge or onto a point of another shape when it is within reach. */
export function snap(p: Place, others: Place[], reach: number): Place {
  const near = others.find((o) => Math.hypot(o.x - p.x, o.y - p.y) < reach);
  if (near) return { ...near };
  const edge = (v: number): number => (v < reach ? 0 : v > 1 - reach ? 1 : v);
  const round = (v: number): number => Math.round(Math.min(1, Math.max(0, v)) * 10000) / 10000;
  return { x: round(edge(p.x)), y: round(edge(p.y)) };
}

const side = (a: Place, b: Place, c: Place): number => Math.sign((b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x));
const cross = (a: Place, b: Place, c: Place, d: Place): boolean => side(a, b, c) * side(a, b, d) < 0 && side(c, d, a) * side(c, d, b) < 0;

/** tooFew is what to say of a shape with too few points. */
export const tooFew = (s: { kind: Shape["kind"] }): string => (s.kind === "line" ? "A line needs two ends: set the other one." : `A ${kinds[s.kind]} needs three corners or more: set another one.`);

/** fault says what is wrong with a shape's form; empty: nothing. */
export function fault(s: Shape): string {
  const p = s.points;
  if (p.length < minPoints(s)) return tooFew(s);
  if (s.kind === "line") return Math.hypot(p[0]!.x - p[1]!.x, p[0]!.y - p[1]!.y) < 0.005 ? "The two ends are at the same place; move one away." : "";
  for (let i = 0; i < p.length; i++) {
    for (let j = i + 2; j < p.length; j++) {
      if ((j + 1) % p.length !== i && cross(p[i]!, p[(i + 1) % p.length]!, p[j]!, p[(j + 1) % p.length]!)) return "Its sides cross; move a corner until they do not.";
    }
  }
  return "";
}

/** History is what undo and redo go through. */
export class History {
  private readonly past: string[] = [];
  private future: string[] = [];
  private now: string;

  constructor(shapes: Shape[]) {
    this.now = JSON.stringify(shapes, keepNaN);
  }

  /** keep remembers a state when it differs from the one before. */
  keep(shapes: Shape[]): void {
    const next = JSON.stringify(shapes, keepNaN);
    if (next === this.now) return;
    this.past.push(this.now);
    this.future = [];
    this.now = next;
  }

  get undoable(): boolean {
    return this.past.length > 0;
  }

  get redoable(): boolean {
    return this.future.length > 0;
  }

  undo(): Shape[] {
    this.future.push(this.now);
    this.now = this.past.pop()!;
    return JSON.parse(this.now, backToNaN) as Shape[];
  }

  redo(): Shape[] {
    this.past.push(this.now);
    this.now = this.future.pop()!;
    return JSON.parse(this.now, backToNaN) as Shape[];
  }
}

const keepNaN = (_: string, v: unknown): unknown => (Number.isNaN(v) ? "NaN" : v);
const backToNaN = (_: string, v: unknown): unknown => (v === "NaN" ? NaN : v);
