// Drawing zones, lines and masks over a picture, by mouse, touch and keyboard.

import { el } from "./dom";
import { draft, fault, kinds, maxPoints, minPoints, type Place, type Shape, snap, tooFew } from "./shapes";
import { arrow } from "./view";

const ns = "http://www.w3.org/2000/svg";

function svg<K extends keyof SVGElementTagNameMap>(tag: K, attributes: Record<string, string | number>, ...children: Node[]): SVGElementTagNameMap[K] {
  const e = document.createElementNS(ns, tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, String(v));
  e.append(...children);
  return e;
}

const where = (p: Place): string => `${Math.round(p.x * 100)} % from the left, ${Math.round(p.y * 100)} % from the top`;

/** How near a place must be to snap, as a share of the picture. */
const reach = 0.015;

export interface Editor {
  shapes: Shape[];
  selected: number;
  /** Whoever looks may choose a shape, and change none. */
  fixed: boolean;
  /** changed is called while something moves, done when a change is complete. */
  changed(): void;
  done(): void;
  /** say tells what happened to those who do not see it. */
  say(message: string): void;
  freeId(kind: Shape["kind"]): string;
}

export class Drawing {
  readonly root: SVGSVGElement;
  /** What is being drawn; undefined: nothing. */
  private fresh: { kind: Shape["kind"]; points: Place[]; cursor: Place; keyboard: boolean } | undefined;
  private drag: { shape: number; point: number; from?: Place; start?: Place[] } | undefined;
  private width = 1000;
  private height = 562;
  private readonly sizes = new ResizeObserver(() => this.redraw());

  constructor(private readonly editor: Editor) {
    this.root = svg("svg", { class: "drawing", tabindex: 0, role: "application", "aria-label": "Zones, lines and masks over the picture. Tab goes from point to point, arrow keys move a point, Delete removes it, plus adds one after it." });
    this.root.addEventListener("pointerdown", (e) => this.down(e));
    this.root.addEventListener("pointermove", (e) => this.move(e));
    for (const end of ["pointerup", "pointercancel"] as const) this.root.addEventListener(end, () => this.up());
    this.root.addEventListener("dblclick", () => this.fresh && this.finish());
    this.root.addEventListener("keydown", (e) => this.key(e));
    this.sizes.observe(this.root);
  }

  close(): void {
    this.sizes.disconnect();
  }

  get drawing(): Shape["kind"] | undefined {
    return this.fresh?.kind;
  }

  /** begin draws a new shape: every click, or Space at the cursor, is a point of it. */
  begin(kind: Shape["kind"]): void {
    this.fresh = { kind, points: [], cursor: { x: 0.5, y: 0.5 }, keyboard: false };
    this.editor.say(kind === "line" ? "Click its start and its end. Objects cross it forward in the arrow's direction. Escape gives up." : "Click its corners; click the first one again, double-click or press Enter to close it. Escape gives up.");
    this.root.focus();
    this.redraw();
  }

  cancel(): void {
    this.fresh = undefined;
    this.editor.say("");
    this.redraw();
    this.editor.changed();
  }

  private place(e: PointerEvent): Place {
    const r = this.root.getBoundingClientRect();
    return { x: (e.clientX - r.left) / r.width, y: (e.clientY - r.top) / r.height };
  }

  /** others are the points a moving one may snap to. */
  private others(except?: number): Place[] {
    return this.editor.shapes.flatMap((s, i) => (i === except ? [] : s.points));
  }

  private down(e: PointerEvent): void {
    if (e.button !== 0) return;
    const p = this.place(e);
    if (this.fresh) {
      e.preventDefault();
      this.root.focus();
      this.fresh.keyboard = false;
      this.add(p);
      return;
    }
    const target = (e.target as Element).closest<SVGElement>("[data-shape]");
    if (!target) return;
    e.preventDefault();
    const shape = Number(target.dataset.shape);
    const s = this.editor.shapes[shape]!;
    this.editor.selected = shape;
    if (this.editor.fixed) return this.editor.done();
    if (target.dataset.between !== undefined) {
      const at = Number(target.dataset.between) + 1;
      s.points.splice(at, 0, snap(p, [], 0));
      this.drag = { shape, point: at };
    } else if (target.dataset.point !== undefined) this.drag = { shape, point: Number(target.dataset.point) };
    else this.drag = { shape, point: -1, from: p, start: s.points.map((q) => ({ ...q })) };
    this.root.setPointerCapture(e.pointerId);
    this.redraw();
    this.editor.changed();
    this.focus(shape, this.drag.point);
  }

  private move(e: PointerEvent): void {
    const p = this.place(e);
    if (this.fresh) {
      this.fresh.cursor = snap(p, this.others().concat(this.fresh.points), reach);
      this.redraw();
      return;
    }
    if (!this.drag) return;
    const s = this.editor.shapes[this.drag.shape]!;
    if (this.drag.point >= 0) s.points[this.drag.point] = snap(p, this.others(this.drag.shape), reach);
    else {
      // The whole shape moves, and stays in the picture.
      const start = this.drag.start!;
      const [xs, ys] = [start.map((q) => q.x), start.map((q) => q.y)];
      const dx = Math.min(1 - Math.max(...xs), Math.max(-Math.min(...xs), p.x - this.drag.from!.x));
      const dy = Math.min(1 - Math.max(...ys), Math.max(-Math.min(...ys), p.y - this.drag.from!.y));
      s.points = start.map((q) => snap({ x: q.x + dx, y: q.y + dy }, [], 0));
    }
    this.redraw();
    this.editor.changed();
  }

  private up(): void {
    if (!this.drag) return;
    this.drag = undefined;
    this.editor.done();
  }

  private add(p: Place): void {
    const f = this.fresh!;
    const first = f.points[0];
    if (f.kind !== "line" && first && f.points.length >= 3 && Math.hypot(first.x - p.x, first.y - p.y) < 2 * reach) return this.finish();
    const q = snap(p, this.others(), reach);
    const last = f.points.at(-1);
    if (last && Math.hypot(last.x - q.x, last.y - q.y) < 0.004) return; // the second half of a double click
    f.points.push(q);
    this.editor.say(`Point ${f.points.length}: ${where(q)}.`);
    if (f.points.length === maxPoints(f)) return this.finish();
    this.redraw();
  }

  private finish(): void {
    const f = this.fresh!;
    if (f.points.length < minPoints(f)) {
      this.editor.say(tooFew(f));
      return;
    }
    this.fresh = undefined;
    this.editor.shapes.push(draft(f.kind, this.editor.freeId(f.kind), f.points));
    this.editor.selected = this.editor.shapes.length - 1;
    this.editor.say(`The ${kinds[f.kind]} is drawn, and not saved yet.`);
    this.editor.done();
  }

  private key(e: KeyboardEvent): void {
    const step = e.shiftKey ? 0.05 : 0.01;
    const by: Record<string, [number, number]> = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    const way = by[e.key];
    if (this.fresh) {
      const f = this.fresh;
      if (e.key === "Escape") this.cancel();
      else if (e.key === "Enter") this.finish();
      else if (e.key === "Backspace") f.points.pop();
      else if (e.key === " ") this.add(f.cursor);
      else if (way) {
        f.keyboard = true;
        f.cursor = snap({ x: f.cursor.x + way[0], y: f.cursor.y + way[1] }, [], 0);
        this.editor.say(`Cursor: ${where(f.cursor)}.`);
      } else return;
      e.preventDefault();
      this.redraw();
      return;
    }
    const handle = (e.target as Element).closest<SVGElement>("[data-point]");
    if (!handle || this.editor.fixed) return;
    const [shape, point] = [Number(handle.dataset.shape), Number(handle.dataset.point)];
    const s = this.editor.shapes[shape]!;
    let to = point;
    if (way) {
      const p = s.points[point]!;
      s.points[point] = snap({ x: p.x + way[0], y: p.y + way[1] }, [], 0);
      this.editor.say(where(s.points[point]!));
    } else if (e.key === "Delete" || e.key === "Backspace") {
      if (s.points.length <= minPoints(s)) {
        this.editor.say(`A ${kinds[s.kind]} needs ${minPoints(s)} points; delete the whole ${kinds[s.kind]} beside the picture.`);
        e.preventDefault();
        return;
      }
      s.points.splice(point, 1);
      to = point % s.points.length;
      this.editor.say("Point removed.");
    } else if ((e.key === "+" || e.key === "Insert") && s.points.length < maxPoints(s)) {
      const [a, b] = [s.points[point]!, s.points[(point + 1) % s.points.length]!];
      s.points.splice(point + 1, 0, snap({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 }, [], 0));
      to = point + 1;
      this.editor.say("Point added.");
    } else return;
    e.preventDefault();
    e.stopPropagation();
    this.editor.selected = shape;
    this.editor.done();
    this.focus(shape, to);
  }

  private focus(shape: number, point: number): void {
    this.root.querySelector<SVGElement>(`[data-shape="${shape}"][data-point="${point}"]`)?.focus();
  }

  /** aspect sets the picture's shape. */
  aspect(width: number, height: number): void {
    if (this.height === Math.round((1000 * height) / width)) return;
    this.height = Math.round((1000 * height) / width);
    this.redraw();
  }

  redraw(): void {
    const focused = document.activeElement instanceof SVGElement && this.root.contains(document.activeElement) && document.activeElement !== this.root ? [document.activeElement.dataset.shape, document.activeElement.dataset.point] : undefined;
    const px = this.width / Math.max(200, this.root.clientWidth); // one pixel of the screen, in units of the drawing
    this.root.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.root.classList.toggle("active", this.fresh !== undefined);
    const at = (p: Place): [number, number] => [p.x * this.width, p.y * this.height];
    const list = (points: Place[]): string => points.map((p) => at(p).map((v) => v.toFixed(1)).join(",")).join(" ");
    const parts: Node[] = [];
    const handles: Node[] = []; // above every shape, so that none covers them
    this.editor.shapes.forEach((s, i) => {
      const chosen = i === this.editor.selected;
      const state = `shape ${s.kind}${chosen ? " chosen" : ""}${s.disabled ? " off" : ""}${fault(s) ? " faulty" : ""}`;
      if (s.kind !== "line") parts.push(svg("polygon", { points: list(s.points), class: state, "data-shape": i }));
      else {
        parts.push(svg("polyline", { points: list(s.points), class: `${state} hit`, "data-shape": i, "stroke-width": 22 * px }));
        parts.push(svg("polyline", { points: list(s.points), class: state, "data-shape": i }));
        parts.push(svg("polygon", { points: arrow(at(s.points[0]!), at(s.points[1]!), 16 * px).map((p) => p.join(",")).join(" "), class: `${state} arrow`, "data-shape": i }));
      }
      const [x, y] = at(s.points[0]!);
      const name = svg("text", { x: Math.min(x + 8 * px, this.width - 60 * px), y: Math.max(14 * px, y - 10 * px), class: "label", "font-size": 13 * px });
      name.textContent = s.displayName || s.id;
      parts.push(name);
      if (!chosen || this.fresh || this.editor.fixed) return;
      if (s.points.length < maxPoints(s)) {
        s.points.forEach((p, k) => {
          const q = s.points[(k + 1) % s.points.length]!;
          const [mx, my] = at({ x: (p.x + q.x) / 2, y: (p.y + q.y) / 2 });
          handles.push(svg("circle", { cx: mx, cy: my, r: 14 * px, class: "touch", "data-shape": i, "data-between": k }), svg("circle", { cx: mx, cy: my, r: 4 * px, class: "between" }));
        });
      }
      s.points.forEach((p, k) => {
        const [cx, cy] = at(p);
        const what = s.kind === "line" ? (k ? "End" : "Start") : `Corner ${k + 1} of ${s.points.length}`;
        handles.push(svg("circle", { cx, cy, r: 20 * px, class: "touch", "data-shape": i, "data-point": k }),
          svg("circle", { cx, cy, r: 7 * px, class: "handle", "data-shape": i, "data-point": k, tabindex: 0, role: "button", "aria-label": `${what} of ${s.displayName || s.id}: ${where(p)}` }));
      });
    });
    if (this.fresh) {
      const [x, y] = at(this.fresh.cursor);
      parts.push(svg("polyline", { points: list([...this.fresh.points, this.fresh.cursor]), class: `shape ${this.fresh.kind} chosen fresh` }),
        ...this.fresh.points.map((p) => svg("circle", { cx: at(p)[0], cy: at(p)[1], r: 6 * px, class: "handle" })),
        svg("path", { d: `M${x - 12 * px} ${y}h${24 * px}M${x} ${y - 12 * px}v${24 * px}`, class: "cross" }));
    }
    this.root.replaceChildren(...parts, ...handles);
    if (focused) this.root.querySelector<SVGElement>(`[data-shape="${focused[0]}"][data-point="${focused[1]}"][tabindex]`)?.focus({ preventScroll: true });
  }
}

/** keys is what the keyboard does, for people. */
export const keys = (): HTMLElement => el("details", { class: "keys" }, el("summary", {}, "Mouse, touch and keyboard"),
  el("p", {}, "Drag a point, an edge's middle (adds a point) or a whole shape. With the keyboard: Tab to a point; arrow keys move it by 1 %, with Shift by 5 %; Delete removes it; + adds one after it. While drawing: arrow keys move the cursor, Space sets a point, Backspace takes the last one back, Enter closes the shape, Escape gives up. Ctrl+Z undoes, Ctrl+Shift+Z does it again."));
