// The editor of a camera's zones, lines and masks.

import { ask, type Camera, type Line, Refusal, type Zone } from "./api";
import { el, fill, lastPart, noCamera, text } from "./dom";
import { Drawing, type Editor, keys } from "./drawing";
import { note } from "./notes";
import { Replay } from "./replay";
import { edited, fault, History, isMask, kinds, mask, masked, resource, same, type Shape } from "./shapes";
import { may, needs } from "./rights";
import { live } from "./state";
import { CameraView } from "./view";

const classes = ["person", "bicycle", "car", "motorcycle", "bus", "truck"];

const field = (label: string, hint: string, input: HTMLElement): HTMLElement => el("label", { class: "field" }, el("span", {}, label), input, hint ? el("small", {}, hint) : null);

/** loadRules reads the zones and lines of a camera. */
export async function loadRules(camera: string): Promise<{ zones: Zone[]; lines: Line[] }> {
  const [z, l] = await Promise.all([ask<{ zones?: Zone[] }>("GET", `/v1/${camera}/zones?pageSize=1000`), ask<{ lines?: Line[] }>("GET", `/v1/${camera}/lines?pageSize=1000`)]);
  return { zones: z.zones ?? [], lines: l.lines ?? [] };
}

/** What each kind is for. */
const meanings: Record<Shape["kind"], string> = {
  zone: "Tells who is inside it", line: "Counts who crosses it", privacy: "Blanks an area in every picture, before anything else looks at it",
  motion: "Motion in it does not open the camera's motion gate: a tree, a flag, a clock in the picture",
};

export function zonesScreen(main: HTMLElement, id: string): () => void {
  const camera = `cameras/${id}`;
  const view = new CameraView(camera);
  view.layers = { boxes: true, ids: false, trails: true, rules: false };
  let removed: Shape[] = [];
  let stored: Camera | undefined;
  let history = new History([]);
  const counted = new Map<string, number>();

  const title = el("h1", {}, `Zones, lines and masks of ${id}`);
  const status = el("p", { class: "status", role: "status", "aria-live": "polite" });
  const list = el("ul", { class: "shapes" });
  const form = el("form", { class: "panel", onsubmit: (e) => e.preventDefault() });
  const answer = el("p", { class: "answer bad", role: "alert" });
  const save = el("button", { type: "button", class: "main", onclick: () => void store() }, "Save");
  const undo = el("button", { type: "button", onclick: () => travel("undo"), title: "Ctrl+Z" }, "Undo");
  const redo = el("button", { type: "button", onclick: () => travel("redo"), title: "Ctrl+Shift+Z" }, "Redo");
  const drawers = (Object.keys(kinds) as Shape["kind"][]).map((kind): [Shape["kind"], HTMLElement] =>
    [kind, el("button", { type: "button", title: meanings[kind], onclick: () => (drawing.drawing === kind ? drawing.cancel() : drawing.begin(kind)) })]);

  const fixed = !may("admin");
  const editor: Editor = {
    shapes: [], selected: -1, fixed,
    changed: () => refresh(),
    done: () => {
      history.keep(editor.shapes);
      drawing.redraw();
      refresh();
      showFixed();
    },
    say: (message) => text(status, message),
    freeId: (kind) => {
      for (let n = 1; ; n++) if (![...editor.shapes, ...removed].some((s) => s.kind === kind && s.id === `${kind}-${n}`)) return `${kind}-${n}`;
    },
  };
  const drawing = new Drawing(editor);
  const flash = (rule: string): void => {
    const i = editor.shapes.findIndex((s) => s.id === rule);
    for (const e of drawing.root.querySelectorAll(`.shape[data-shape="${i}"]`)) {
      e.classList.remove("fires");
      void (e as SVGElement).getBoundingClientRect(); // begins the animation again
      e.classList.add("fires");
    }
  };
  const replay = new Replay(camera, () => editor.shapes.filter((s) => !isMask(s)), flash, (on) => {
    picture.classList.toggle("replaying", on);
    view.layers.boxes = view.layers.trails = !on;
  });
  const picture = el("div", { class: "picture edit" }, view.canvas, replay.canvas, el("p", { class: "recorded" }, "Recorded tracks, not live"));
  picture.append(drawing.root);
  fill(main, el("p", { class: "crumbs" }, el("a", { href: `#/camera/${id}` }, `‹ ${id}`)), title,
    el("div", { class: "columns" },
      el("section", {}, fixed ? needs("admin", "draw and change them") : el("div", { class: "buttons tools" }, ...drawers.map(([, b]) => b), undo, redo, save), picture, replay.bar, status, fixed ? null : keys(), replay.panel),
      el("section", { class: "stack" }, el("div", { class: "panel" }, el("h2", {}, "Zones, lines and masks"), list, answer), form)));

  const dirty = (): boolean => removed.length > 0 || editor.shapes.some((s) => !same(s));
  const refresh = (): void => {
    undo.toggleAttribute("disabled", !history.undoable);
    redo.toggleAttribute("disabled", !history.redoable);
    const bad = editor.shapes.find((s) => fault(s));
    save.toggleAttribute("disabled", !dirty() || bad !== undefined);
    text(save, dirty() ? "Save" : "Saved");
    for (const [kind, b] of drawers) text(b, drawing.drawing === kind ? "Give up drawing" : `Draw a ${kinds[kind]}`);
    text(answer, bad ? `${bad.displayName || bad.id}: ${fault(bad)}` : "");
    fill(list, ...editor.shapes.map((s, i) => el("li", { class: i === editor.selected ? "chosen" : "" },
      el("button", { type: "button", class: "pick", "aria-pressed": String(i === editor.selected), onclick: () => choose(i) }, el("span", { class: `sign ${s.kind}`, "aria-hidden": "true" }), s.displayName || s.id,
        el("small", {}, [kinds[s.kind], s.disabled && "off", !s.stored ? "new" : !same(s) && "changed"].filter(Boolean).join(", "))),
      isMask(s) ? null : el("span", { class: "fired-count", title: "Events since this page was opened" }, String(counted.get(s.id) ?? 0)))),
    editor.shapes.length ? null : el("li", { class: "empty" }, fixed ? "None yet." : "None yet. Draw a zone to learn who is inside it, a line to count who crosses it, a privacy mask to hide an area."));
  };
  const choose = (i: number): void => {
    editor.selected = i;
    drawing.redraw();
    refresh();
    showFixed();
  };
  const travel = (way: "undo" | "redo"): void => {
    if (way === "undo" ? !history.undoable : !history.redoable) return;
    editor.shapes = history[way]();
    removed = removed.filter((r) => !editor.shapes.some((s) => s.kind === r.kind && s.id === r.id));
    editor.selected = Math.min(editor.selected, editor.shapes.length - 1);
    drawing.redraw();
    refresh();
    showFixed();
  };
  const showForm = (): void => {
    const s = editor.shapes[editor.selected];
    form.hidden = !s;
    if (!s || form.contains(document.activeElement)) return;
    if (isMask(s)) {
      fill(form, el("h2", {}, s.kind === "privacy" ? "Privacy mask" : "Motion mask"), el("p", {}, `${meanings[s.kind]}. `, s.kind === "privacy"
        ? "What is under it is neither analysed nor kept. Live video then comes as pictures (MJPEG), and clips are no longer kept: the camera's own video does not show the mask."
        : `It stays visible and is analysed. ${gated() ? "" : "The camera's motion gate is off; Save switches it on: pictures in which nothing moves are then not analysed."}`),
      el("p", { class: "buttons" }, el("button", { type: "button", onclick: () => remove(s) }, `Delete this ${kinds[s.kind]}`)));
      return;
    }
    const number = (key: "minScore" | "inertia" | "dwell" | "loitering" | "occupancy", attributes: Record<string, string | number>): HTMLInputElement =>
      el("input", { type: "number", min: 0, ...attributes, value: Number.isNaN(s[key]) ? "" : s[key], onchange: (e) => set(s, { [key]: (e.target as HTMLInputElement).value === "" && key === "inertia" ? NaN : Number((e.target as HTMLInputElement).value) }) });
    fill(form, el("h2", {}, s.kind === "zone" ? "Zone" : "Line"),
      field("Name", s.stored ? "It never changes." : "a-z, 0-9 and -, beginning with a letter; it never changes later.", el("input", { value: s.id, disabled: s.stored !== undefined, pattern: "[a-z]([a-z0-9\\-]{0,46}[a-z0-9])?", onchange: (e) => set(s, { id: (e.target as HTMLInputElement).value.trim() }) })),
      field("Title", "What people call it.", el("input", { value: s.displayName, maxlength: 200, onchange: (e) => set(s, { displayName: (e.target as HTMLInputElement).value }) })),
      el("fieldset", {}, el("legend", {}, "Classes (none chosen: every class)"), el("div", { class: "chips" }, ...classes.concat(s.classes.filter((c) => !classes.includes(c))).map((c) => el("label", {}, el("input", {
        type: "checkbox", checked: s.classes.includes(c), onchange: (e) => set(s, { classes: (e.target as HTMLInputElement).checked ? [...s.classes, c] : s.classes.filter((x) => x !== c) }),
      }), c)))),
      field("Looks at", "", el("select", { onchange: (e) => set(s, { anchor: (e.target as HTMLSelectElement).value }) },
        ...[["ANCHOR_BOTTOM_CENTER", "where an object touches the ground"], ["ANCHOR_CENTER", "an object's centre"]].map(([v, label]) => el("option", { value: v!, selected: s.anchor === v }, label!)))),
      field("Score at least", "0 to 1; 0: any.", number("minScore", { max: 1, step: 0.05 })),
      field("Inertia, seconds", s.kind === "line" ? "How long on the other side before it has crossed; empty: 0.2 s." : "How long inside, or outside, before that counts; empty: 0.3 s.", number("inertia", { max: 60, step: 0.1 })),
      ...(s.kind === "line" ? [el("p", {}, el("button", { type: "button", onclick: () => set(s, { points: [...s.points].reverse() }) }, "Turn its direction round"))] : [
        field("Dwell, seconds", "Tell when an object has been inside this long without a break; 0: never.", number("dwell", { max: 604800, step: 1 })),
        field("Loitering, seconds", "Tell when one object's visits add up to this; 0: never.", number("loitering", { max: 604800, step: 1 })),
        field("Occupancy", "Tell when this many objects are inside, and when they no longer are; 0: never.", number("occupancy", { max: 10000, step: 1 }))]),
      el("label", { class: "check" }, el("input", { type: "checkbox", checked: s.disabled, onchange: (e) => set(s, { disabled: (e.target as HTMLInputElement).checked }) }), "Kept, but not watched"),
      el("p", { class: "buttons" }, el("button", { type: "button", onclick: () => remove(s) }, `Delete this ${s.kind}`)));
  };
  /** showFixed shows the form of a shape to somebody who may not change it. */
  const showFixed = (): void => {
    showForm();
    if (fixed) for (const e of form.querySelectorAll<HTMLInputElement | HTMLSelectElement | HTMLButtonElement>("input, select, button")) {
      e.disabled = true;
      if (e instanceof HTMLButtonElement) e.remove();
    }
  };
  const set = (s: Shape, change: Partial<Shape>): void => {
    Object.assign(s, change);
    editor.done();
  };
  const remove = (s: Shape): void => {
    if (s.stored) removed.push(s);
    editor.shapes = editor.shapes.filter((x) => x !== s);
    editor.selected = -1;
    editor.say(`The ${kinds[s.kind]} ${s.id} is gone from the draft; Save makes it so, Undo brings it back.`);
    editor.done();
  };
  const load = async (): Promise<void> => {
    try {
      const before = editor.shapes[editor.selected];
      const [{ zones, lines }, c] = await Promise.all([loadRules(camera), ask<Camera>("GET", `/v1/${camera}`)]);
      stored = c;
      editor.shapes = [...[...zones, ...lines].map(edited), ...masked("privacy", c.privacyMasks), ...masked("motion", c.analysis?.motionGate?.ignore)];
      removed = [];
      history = new History(editor.shapes);
      const chosen = editor.shapes.findIndex((s) => s.kind === before?.kind && s.id === before.id);
      editor.selected = chosen;
      drawing.redraw();
      refresh();
      showFixed();
    } catch (e) {
      text(answer, (e as Error).message);
    }
  };
  const gated = (): boolean => (live.cameras.get(camera)?.analysis?.motionGate ?? null) !== null;
  /** storeMasks saves those of a kind, which are a list of the camera, when one of them changed. */
  const storeMasks = async (kind: "privacy" | "motion", paths: string, body: (masks: object[]) => object): Promise<void> => {
    const [all, gone] = [editor.shapes, removed].map((list) => list.filter((s) => s.kind === kind)) as [Shape[], Shape[]];
    if (!gone.length && all.every(same)) return;
    stored = await ask<Camera>("PATCH", `/v1/${camera}?updateMask=${paths}`, { name: camera, etag: stored?.etag, ...body(all.map((s) => ({ points: s.points }))) });
    removed = removed.filter((s) => s.kind !== kind);
    masked(kind, all.map((s) => ({ points: s.points }))).forEach((s, i) => Object.assign(all[i]!, s));
  };
  /** store saves shape by shape, masks together; what fails stays in the draft, with the reason. */
  const store = async (): Promise<void> => {
    const faults: string[] = [];
    const attempt = async (s: Shape, what: () => Promise<Zone | Line | undefined>): Promise<boolean> => {
      try {
        const stored = await what();
        if (stored) Object.assign(s, edited(stored));
        return true;
      } catch (e) {
        const r = e as Refusal;
        faults.push(`${s.id}: ${r.message}${r.reason === "ABORTED" || r.status === 409 ? " Reload the page to see what it is now." : ""}`);
        return false;
      }
    };
    save.setAttribute("disabled", "");
    const gone = removed.filter((s) => !isMask(s));
    removed = removed.filter(isMask);
    for (const s of gone) if (!(await attempt(s, () => ask("DELETE", `/v1/${camera}/${s.kind}s/${s.id}?etag=${encodeURIComponent(s.stored!.etag ?? "")}`).then(() => undefined)))) removed.push(s);
    for (const s of editor.shapes) {
      if (isMask(s) || same(s)) continue;
      if (s.stored) await attempt(s, () => ask("PATCH", `/v1/${camera}/${s.kind}s/${s.id}?updateMask=${mask(s)}`, resource(camera, s)));
      else await attempt(s, () => ask("POST", `/v1/${camera}/${s.kind}s?${s.kind}Id=${encodeURIComponent(s.id)}`, { ...resource(camera, s), name: undefined }));
    }
    try {
      await storeMasks("privacy", "privacy_masks", (privacyMasks) => ({ privacyMasks }));
      await storeMasks("motion", "analysis.motion_gate", (ignore) => ({ analysis: { motionGate: { ...stored?.analysis?.motionGate, ignore } } }));
    } catch (e) {
      const r = e as Refusal;
      faults.push(`masks: ${r.message}${r.status === 409 ? " Reload the page to see what they are now." : ""}`);
    }
    if (!faults.length) {
      note("Saved. It is in force from the next picture on.");
      editor.say("");
      await load();
    }
    drawing.redraw();
    refresh();
    if (faults.length) text(answer, faults.join("\n"));
  };

  const shape = (): void => {
    const m = live.cameras.get(camera)?.status?.media;
    if (m?.width && m.height) {
      drawing.aspect(m.width, m.height);
      picture.style.aspectRatio = `${m.width} / ${m.height}`;
    }
    const c = live.cameras.get(camera);
    if (!c && live.synced) fill(main, noCamera(id));
    if (c) text(title, `Zones, lines and masks of ${c.displayName || id}`);
  };
  const shortcuts = (e: KeyboardEvent): void => {
    if (!(e.ctrlKey || e.metaKey) || e.key.toLowerCase() !== "z" || (e.target as HTMLElement).matches("input:not([type=checkbox])")) return;
    e.preventDefault();
    travel(e.shiftKey ? "redo" : "undo");
  };
  const leaving = (e: BeforeUnloadEvent): void => {
    if (dirty()) e.preventDefault();
  };
  document.addEventListener("keydown", shortcuts);
  window.addEventListener("beforeunload", leaving);
  const offs = [live.on("cameras", shape), live.on("events", (e) => {
    const rule = lastPart(e?.attributes?.line ?? e?.attributes?.zone);
    if (e?.camera !== camera || !rule) return;
    counted.set(rule, (counted.get(rule) ?? 0) + 1);
    flash(rule);
    refresh();
  })];
  shape();
  refresh();
  showFixed();
  void load();
  return () => {
    if (dirty()) note(`The zones, lines and masks of ${id} were left without saving; what is stored stays as it was.`, true);
    offs.forEach((off) => off());
    document.removeEventListener("keydown", shortcuts);
    window.removeEventListener("beforeunload", leaving);
    replay.close();
    drawing.close();
    view.close();
  };
}
