// Finding tracks and events of the past.

import { ask, type Event, type Track } from "./api";
import { clockTime, el, fill, lastPart, millis, scrollable } from "./dom";
import { trackRow, trackTable } from "./overview";
import { live } from "./state";
import { colourOf } from "./view";

const quote = (s: string): string => JSON.stringify(s);

export function tracksScreen(main: HTMLElement): () => void {
  const camera = el("select", { "aria-label": "Camera" });
  const kind = el("input", { "aria-label": "Class", placeholder: "any class", size: "10", list: "classes" });
  const score = el("input", { "aria-label": "Score at least", type: "number", min: "0", max: "1", step: "0.05", placeholder: "any score" });
  const from = el("input", { "aria-label": "From", type: "datetime-local" });
  const to = el("input", { "aria-label": "Until", type: "datetime-local" });
  const body = el("tbody");
  const more = el("button", { hidden: true, onclick: () => void load() }, "More");
  const fault = el("p", { class: "answer bad", role: "status" });
  let token = "";
  const load = async (fresh = false): Promise<void> => {
    const conditions = [
      camera.value && `camera = ${quote(camera.value)}`, kind.value && `class = ${quote(kind.value)}`, score.value && `score >= ${score.value}`,
      from.value && `start_time >= ${quote(new Date(from.value).toISOString())}`, to.value && `start_time < ${quote(new Date(to.value).toISOString())}`,
    ].filter(Boolean);
    const q = new URLSearchParams({ pageSize: "50", filter: conditions.join(" AND ") });
    if (!fresh && token) q.set("pageToken", token);
    try {
      const page = await ask<{ tracks?: Track[]; nextPageToken?: string }>("GET", `/v1/tracks?${q.toString()}`);
      fill(fault);
      if (fresh) fill(body);
      body.append(...(page.tracks ?? []).map(trackRow));
      if (!body.childElementCount) fill(body, el("tr", {}, el("td", { colspan: 7, class: "empty" }, "No track matches. Widen the time, or leave a condition empty.")));
      token = page.nextPageToken ?? "";
      more.hidden = !token;
    } catch (e) {
      fill(fault, (e as Error).message);
    }
  };
  fill(main, el("h1", {}, "Tracks"),
    el("form", { class: "filters", onsubmit: (e) => { e.preventDefault(); void load(true); } }, camera, kind, score, el("label", {}, "from ", from), el("label", {}, "until ", to), el("button", { class: "main" }, "Search"),
      el("datalist", { id: "classes" }, ...["person", "bicycle", "car", "motorcycle", "bus", "truck"].map((c) => el("option", { value: c })))),
    fault, trackTable(body), more);
  const cameras = (): void => {
    const chosen = camera.value;
    fill(camera, el("option", { value: "" }, "every camera"), ...[...live.cameras.keys()].sort().map((c) => el("option", { value: lastPart(c), selected: lastPart(c) === chosen }, lastPart(c))));
  };
  cameras();
  void load(true);
  return live.on("cameras", cameras);
}

export function trackScreen(main: HTMLElement, name: string): () => void {
  fill(main, el("h1", {}, `Track ${lastPart(name)}`), el("p", {}, "…"));
  void ask<Track>("GET", `/v1/${name}`).then((t) => {
    const canvas = el("canvas", { width: 640, height: 360, role: "img", "aria-label": "Its way through the picture" });
    const g = canvas.getContext("2d")!;
    g.strokeStyle = g.fillStyle = colourOf(t.class);
    g.lineWidth = 2;
    g.beginPath();
    (t.path ?? []).forEach((p, i) => {
      const [x, y] = [(p.x ?? 0) * 640, (p.y ?? 0) * 360];
      if (i) g.lineTo(x, y);
      else g.moveTo(x, y);
    });
    g.stroke();
    const b = t.box ?? {};
    g.strokeRect((b.xMin ?? 0) * 640, (b.yMin ?? 0) * 360, ((b.xMax ?? 0) - (b.xMin ?? 0)) * 640, ((b.yMax ?? 0) - (b.yMin ?? 0)) * 360);
    const body = el("tbody", {}, trackRow(t));
    fill(main, el("h1", {}, `Track ${lastPart(name)}`), trackTable(body), el("h2", {}, "Its way through the picture (foot of its box), and its last box"), el("div", { class: "picture path" }, canvas));
  }, (e: Error) => fill(main, el("h1", {}, `Track ${lastPart(name)}`), el("p", { class: "answer bad" }, e.message)));
  return () => undefined;
}

export function eventsScreen(main: HTMLElement): () => void {
  const body = el("tbody");
  fill(main, el("h1", {}, "Events"), scrollable("Events", el("table", {}, el("thead", {}, el("tr", {}, ...["Time", "Camera", "Event", "What there is to know"].map((h) => el("th", { scope: "col" }, h)))), body)));
  const load = async (): Promise<void> => {
    try {
      const { events } = await ask<{ events?: Event[] }>("GET", "/v1/events?pageSize=100");
      fill(body, ...(events?.length ? events.map((e) => el("tr", {}, el("td", { class: "time" }, clockTime(millis(e.time))), el("td", {}, lastPart(e.camera)), el("td", {}, e.type.replaceAll("_", " ")),
        el("td", {}, Object.entries(e.attributes ?? {}).map(([k, v]) => `${k}: ${v}`).join(" · ")))) : [el("tr", {}, el("td", { colspan: 4, class: "empty" }, "Nothing happened yet."))]));
    } catch (e) {
      fill(body, el("tr", {}, el("td", { colspan: 4, class: "answer bad" }, (e as Error).message)));
    }
  };
  void load();
  return live.on("events", () => void load());
}
