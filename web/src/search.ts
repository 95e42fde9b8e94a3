// Finding tracks and events of the past.

import { ask, type Event, type Line, type Track, type Zone } from "./api";
import { said } from "./camera";
import { clockTime, el, eventTypes, explained, fill, lastPart, millis, nothing, percent, span, table, text } from "./dom";
import { note } from "./notes";
import { endWord, inView, trackRow, trackTable, whereabouts } from "./overview";
import { live } from "./state";
import { colourOf } from "./view";
import { loadRules } from "./zones";

const quote = (s: string): string => JSON.stringify(s);

/** cameraChoice is a list of the cameras there are; it follows them. */
function cameraChoice(chosen: string): { select: HTMLSelectElement; off: () => void } {
  const select = el("select", { "aria-label": "Camera" });
  const update = (): void => {
    const now = select.value || chosen;
    const names = new Set([...[...live.cameras.keys()].map(lastPart), ...(now ? [now] : [])]);
    if ([...select.options].map((o) => o.value).join() === ["", ...[...names].sort()].join()) return;
    fill(select, el("option", { value: "" }, "every camera"), ...[...names].sort().map((c) => el("option", { value: c, selected: c === now }, live.title(`cameras/${c}`))));
  };
  update();
  return { select, off: live.on("cameras", update) };
}

/** ruleChoice is a list of the zones and lines of all cameras. */
function ruleChoice(): { select: HTMLSelectElement; off: () => void } {
  const select = el("select", { "aria-label": "Zone or line" }, el("option", { value: "" }, "every zone and line"));
  let rules: (Zone | Line)[] = [];
  const update = (): void => rules.forEach((r, i) => text(select.options[i + 1]!, `${r.displayName || lastPart(r.name)} (${live.title(r.name.split("/").slice(0, 2).join("/"))})`));
  void loadRules("cameras/-").then(({ zones, lines }) => {
    rules = [...zones, ...lines];
    select.append(...rules.map((r) => el("option", { value: r.name })));
    update();
  }, () => undefined);
  return { select, off: live.on("cameras", update) };
}

/** save hands a file to the person. */
function save(name: string, type: string, content: string): void {
  const a = el("a", { download: name });
  a.href = URL.createObjectURL(new Blob([content], { type }));
  a.click();
  URL.revokeObjectURL(a.href);
}

const csv = (rows: (string | number)[][]): string => rows.map((r) => r.map((v) => (/[",\n]/.test(String(v)) ? `"${String(v).replaceAll('"', '""')}"` : v)).join(",")).join("\n") + "\n";

/** curl is a request as a command; the token stays out of it. */
const curl = (path: string): string => `curl -H "Authorization: Bearer $VEDETTE_TOKEN" '${location.origin}${path.replaceAll("'", "%27")}'`;

/** grpcurl is a request to list things as a command of the gRPC API, which has an address of its own. */
function grpcurl(path: string, method: string): string {
  const { searchParams: q, pathname } = new URL(path, location.origin);
  const message = method.includes("/Get") ? { name: pathname.replace("/v1/", "") } : { ...(q.get("filter") ? { filter: q.get("filter") } : {}), pageSize: Number(q.get("pageSize")) };
  return `grpcurl ${location.protocol === "http:" ? "-plaintext " : ""}-H "authorization: Bearer $VEDETTE_TOKEN" -d '${JSON.stringify(message).replaceAll("'", "'\\''")}' "\${VEDETTE_GRPC:-${location.hostname}:8090}" vedette.v1.${method}`;
}

/** copyable are buttons that copy what the page asked for as commands. */
function copyable(path: () => string, method: string): HTMLElement[] {
  const copy = (tool: string, command: () => string): HTMLElement =>
    el("button", { type: "button", title: `Copies what this page asks for as a ${tool} command; the token stays out of it`, onclick: () => void copied(command(), `Copied: a ${tool} command`) }, `Copy as ${tool}`);
  return [copy("curl", () => curl(path())), copy("grpcurl", () => grpcurl(path(), method))];
}

/** copied puts a text on the clipboard, or shows it where the browser has none: it has one only by HTTPS. */
async function copied(text: string, done: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    note(done);
  } catch {
    note(text, true);
  }
}

/** classList is what the class field offers; others can be typed. */
const classList = (): HTMLElement => el("datalist", { id: "classes" }, ...["person", "bicycle", "car", "motorcycle", "bus", "truck"].map((c) => el("option", { value: c })));

/** unseen says why a search found nothing, and what to do. */
const unseen = (what: string): (HTMLElement | string)[] =>
  live.synced && !live.cameras.size ? [`No ${what} yet: there is no camera. `, el("a", { href: "#/add" }, "Add the first one"), "."] : [`No ${what} matches. Widen the time, or leave a condition empty.`];

export function tracksScreen(main: HTMLElement, chosen: string): () => void {
  const { select: camera, off } = cameraChoice(chosen);
  const kind = el("input", { "aria-label": "Class", placeholder: "any class", size: "10", list: "classes" });
  const score = el("input", { "aria-label": "Score at least", type: "number", min: "0", max: "1", step: "0.05", placeholder: "any score" });
  const stay = el("input", { "aria-label": "In view at least, seconds", type: "number", min: "0", step: "1", placeholder: "any seconds" });
  const from = el("input", { "aria-label": "From", type: "datetime-local" });
  const to = el("input", { "aria-label": "Until", type: "datetime-local" });
  const cards = el("ul", { class: "finds" });
  const body = el("tbody");
  const asTable = el("div", { hidden: true }, trackTable(body));
  const toggle = el("button", { type: "button", "aria-pressed": "false", onclick: () => {
    asTable.hidden = !asTable.hidden;
    cards.hidden = !asTable.hidden;
    toggle.setAttribute("aria-pressed", String(!asTable.hidden));
  } }, "As a table");
  const more = el("button", { hidden: true, onclick: () => void load() }, "More");
  const fault = el("p", { class: "answer bad", role: "status" });
  let token = "";
  let found: Track[] = [];
  const path = (): string => {
    const conditions = [
      camera.value && `camera = ${quote(camera.value)}`, kind.value && `class = ${quote(kind.value)}`, score.value && `score >= ${score.value}`, stay.value && `duration >= ${quote(`${stay.value}s`)}`,
      from.value && `start_time >= ${quote(new Date(from.value).toISOString())}`, to.value && `start_time < ${quote(new Date(to.value).toISOString())}`,
    ].filter(Boolean);
    return `/v1/tracks?${new URLSearchParams({ pageSize: "60", ...(conditions.length ? { filter: conditions.join(" AND ") } : {}) }).toString()}`;
  };
  const load = async (fresh = false): Promise<void> => {
    try {
      const page = await ask<{ tracks?: Track[]; nextPageToken?: string }>("GET", path() + (!fresh && token ? `&pageToken=${encodeURIComponent(token)}` : ""));
      fill(fault);
      if (fresh) {
        found = [];
        fill(body);
        fill(cards);
      }
      found.push(...(page.tracks ?? []));
      body.append(...(page.tracks ?? []).map(trackRow));
      cards.append(...(page.tracks ?? []).map(find));
      if (!found.length) {
        fill(body, nothing(6, "No track matches."));
        fill(cards, el("li", { class: "empty" }, ...unseen("track")));
      }
      token = page.nextPageToken ?? "";
      more.hidden = !token;
    } catch (e) {
      fill(fault, (e as Error).message);
    }
  };
  // The list goes on by itself when its end comes into view; the button is for the keyboard.
  const end = new IntersectionObserver((entries) => entries.some((e) => e.isIntersecting) && !more.hidden && void load(), { rootMargin: "400px" });
  end.observe(more);
  fill(main, el("h1", {}, "Tracks"),
    el("form", { class: "filters", onsubmit: (e) => { e.preventDefault(); void load(true); } }, camera, kind, score, stay, el("label", {}, "from ", from), el("label", {}, "until ", to), el("button", { class: "main" }, "Search"), classList()),
    el("div", { class: "filters" }, toggle, el("button", { type: "button", onclick: () => save("tracks.json", "application/json", JSON.stringify(found, null, 1)) }, "Save as JSON"),
      el("button", { type: "button", onclick: () => save("tracks.csv", "text/csv", csv([["track", "camera", "class", "score", "start", "end", "end_reason"], ...found.map((t) => [t.name, lastPart(t.camera), t.class ?? "", t.score ?? 0, t.startTime ?? "", t.endTime ?? "", t.endReason ?? ""])])) }, "Save as CSV"), ...copyable(path, "AnalyticsService/ListTracks")),
    fault, cards, asTable, more);
  void load(true);
  return () => {
    end.disconnect();
    off();
  };
}

/** find is a track as a card, with its best picture. */
function find(t: Track): HTMLElement {
  const dot = el("span", { class: "dot" });
  dot.style.background = colourOf(t.class);
  const picture = t.picture ? el("img", { src: t.picture, alt: `${t.class ?? "object"} on ${lastPart(t.camera)}`, loading: "lazy" }) : el("span", { class: "nopicture" }, "no picture");
  return el("li", { "data-track": lastPart(t.name) }, el("a", { href: `#/track/${t.name}` }, picture, el("b", {}, dot, t.class ?? "?", ` ${Math.round((t.score ?? 0) * 100)} %`),
    el("span", {}, `${live.title(t.camera)}, ${clockTime(millis(t.startTime))}`), el("span", {}, `${span(millis(t.endTime) - millis(t.startTime))}, ${t.state !== "TRACK_STATE_OPEN" ? endWord(t) : whereabouts(t)}`)));
}

export function trackScreen(main: HTMLElement, name: string): () => void {
  const [, cam] = name.split("/");
  const id = lastPart(name);
  fill(main, el("h1", {}, `Track ${id}`), el("p", {}, "…"));
  const show = async (): Promise<void> => {
    const t = await ask<Track>("GET", `/v1/${name}`);
    const filter = `track = ${quote(name)}`;
    const { events = [] } = await ask<{ events?: Event[] }>("GET", `/v1/events?${new URLSearchParams({ filter, pageSize: "50" }).toString()}`);
    const media = live.cameras.get(t.camera)?.status?.media;
    const [width, height] = [960, Math.round((960 * (media?.height || 9)) / (media?.width || 16))];
    const canvas = el("canvas", { width, height, role: "img", "aria-label": "Its way through the picture" });
    const draw = (): void => paintPath(canvas, t);
    const backdrop = new Image();
    backdrop.src = `/v1/cameras/${cam ?? ""}/snapshot.jpg`;
    backdrop.onload = () => {
      const g = canvas.getContext("2d")!;
      g.filter = "grayscale(.7) brightness(.6)";
      g.drawImage(backdrop, 0, 0, width, height);
      g.filter = "none";
      draw();
    };
    draw();
    const fact = (term: string, value: string, meaning: string): Node[] => [el("dt", {}, explained(term, meaning)), el("dd", {}, value)];
    const start = millis(t.startTime);
    const around = (ms: number): string => new Date(ms).toISOString();
    const near = `/v1/tracks?${new URLSearchParams({ pageSize: "12", filter: `camera = ${quote(cam ?? "")} AND start_time >= ${quote(around(start - 60000))} AND start_time < ${quote(around(start + 60000))}` }).toString()}`;
    const { tracks = [] } = await ask<{ tracks?: Track[] }>("GET", near);
    fill(main, el("p", { class: "crumbs" }, el("a", { href: "#/tracks" }, "‹ Tracks")), el("h1", {}, `${t.class ?? "Object"} on ${live.title(t.camera)}, ${clockTime(start)}`),
      el("div", { class: "columns" },
        el("section", {}, el("div", { class: "picture path" }, canvas), el("p", { class: "meaning" }, "Where its centre was, from ○ to ●, and its last box, over a picture of the camera as it is now."),
          t.picture ? el("figure", { class: "panel crop" }, el("h2", {}, "Best picture"), el("img", { src: t.picture, alt: `Best picture of this ${t.class ?? "object"}` })) : el("p", { class: "empty" }, "There is no picture of it: the camera keeps none, retention removed it, or the track is still too new.")),
        el("section", { class: "stack" },
          el("div", { class: "panel" }, el("dl", { class: "facts" },
            ...fact("Class", t.class ?? "?", "As the detector names it"), ...fact("Score", percent(t.score), "The detector's highest score for it"),
            ...fact("In view", `${span(millis(t.endTime) - start)}, ${t.state === "TRACK_STATE_OPEN" && inView(t) ? "still" : `until ${clockTime(millis(t.endTime))}`}`, "From the first to the last observation"),
            ...fact("End", t.state === "TRACK_STATE_OPEN" ? "–" : endWord(t), "Why it ended"), ...fact("Observations", t.observations ?? "0", "Pictures it was found in"), ...fact("Id", id, "Sequence and number within it; never used again")),
          el("p", { class: "buttons" }, el("button", { type: "button", onclick: () => save(`track-${id}.json`, "application/json", JSON.stringify(t, null, 1)) }, "Save as JSON"), ...copyable(() => `/v1/${name}`, "AnalyticsService/GetTrack"))),
          el("div", { class: "panel" }, el("h2", {}, "Its events"), events.length ? el("ul", { class: "finds wide" }, ...events.map(happened)) : el("p", { class: "empty" }, "It crossed no line and entered no zone.")),
          el("div", { class: "panel" }, el("h2", {}, "At the same time"), tracks.length > 1 ? el("ul", { class: "plain" }, ...tracks.filter((x) => x.name !== t.name).map((x) => el("li", {}, el("a", { href: `#/track/${x.name}` }, `${x.class ?? "?"}, ${clockTime(millis(x.startTime))}`)))) : el("p", { class: "empty" }, "Nothing else within a minute.")))));
  };
  show().catch((e: Error) => fill(main, el("h1", {}, `Track ${id}`), el("p", { class: "answer bad" }, e.message), el("p", {}, el("a", { href: "#/tracks" }, "All tracks"))));
  return () => undefined;
}

function paintPath(canvas: HTMLCanvasElement, t: Track): void {
  const g = canvas.getContext("2d")!;
  const { width, height } = canvas;
  const path = (t.path ?? []).map((p): [number, number] => [(p.x ?? 0) * width, (p.y ?? 0) * height]);
  for (const [colour, thick] of [["rgba(0,0,0,.6)", 6], [colourOf(t.class), 3]] as const) {
    g.strokeStyle = g.fillStyle = colour;
    g.lineWidth = thick;
    g.lineJoin = "round";
    g.beginPath();
    path.forEach(([x, y], i) => (i ? g.lineTo(x, y) : g.moveTo(x, y)));
    g.stroke();
    const b = t.box ?? {};
    g.strokeRect((b.xMin ?? 0) * width, (b.yMin ?? 0) * height, ((b.xMax ?? 0) - (b.xMin ?? 0)) * width, ((b.yMax ?? 0) - (b.yMin ?? 0)) * height);
  }
  for (const [i, fillIt] of [[0, false], [path.length - 1, true]] as const) {
    const p = path[i];
    if (!p) continue;
    g.beginPath();
    g.arc(p[0], p[1], 7, 0, 7);
    if (fillIt) g.fill();
    else g.stroke();
  }
}

/** happened is an event as a card, with its picture and its clip when there are any. */
function happened(e: Event): HTMLElement {
  const clip = e.clip ? el("button", { type: "button", onclick: () => play(e) }, "Play clip") : null;
  return el("li", { "data-event": lastPart(e.name) }, e.snapshot ? el("a", { href: e.snapshot, target: "_blank", rel: "noopener" }, el("img", { src: e.snapshot, alt: `${e.type.replaceAll("_", " ")} on ${lastPart(e.camera)}`, loading: "lazy" })) : null,
    el("b", {}, e.type.replaceAll("_", " ")), el("span", {}, `${live.title(e.camera) || "the box"}, ${clockTime(millis(e.time))}`), el("span", {}, said(e)), clip, e.clip ? el("a", { class: "button", href: e.clip, download: `${lastPart(e.camera)}-${lastPart(e.name)}.mp4` }, "Download") : null);
}

/** play shows an event's clip over the page. */
function play(e: Event): void {
  const video = el("video", { controls: true, autoplay: true, muted: true, src: e.clip });
  const dialog = el("dialog", { class: "clip", "aria-label": `Clip of ${e.type.replaceAll("_", " ")} on ${lastPart(e.camera)}` }, video, el("p", { class: "answer bad" }), el("form", { method: "dialog" }, el("button", {}, "Close")));
  video.addEventListener("error", () => fill(dialog.querySelector("p")!, "This clip cannot be played here: it is not there yet, retention removed it, or this browser does not play its codec. Download it and try another player."));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

export function eventsScreen(main: HTMLElement, chosen: string): () => void {
  const { select: camera, off } = cameraChoice(chosen);
  const type = el("select", { "aria-label": "Event" }, el("option", { value: "" }, "every event"), ...eventTypes.map((t) => el("option", { value: t }, t.replaceAll("_", " "))));
  const { select: rule, off: offRules } = ruleChoice();
  const kind = el("input", { "aria-label": "Class", placeholder: "any class", size: "10", list: "classes" });
  const from = el("input", { "aria-label": "From", type: "datetime-local" });
  const to = el("input", { "aria-label": "Until", type: "datetime-local" });
  const body = el("tbody");
  const fault = el("p", { class: "answer bad", role: "status" });
  const more = el("button", { hidden: true, onclick: () => void load() }, "More");
  let token = "";
  const path = (): string => {
    const conditions = [camera.value && `camera = ${quote(camera.value)}`, type.value && `type = ${quote(type.value)}`, rule.value && `${rule.value.includes("/lines/") ? "line" : "zone"} = ${quote(rule.value)}`, kind.value && `class = ${quote(kind.value)}`, from.value && `time >= ${quote(new Date(from.value).toISOString())}`, to.value && `time < ${quote(new Date(to.value).toISOString())}`].filter(Boolean);
    return `/v1/events?${new URLSearchParams({ pageSize: "60", ...(conditions.length ? { filter: conditions.join(" AND ") } : {}) }).toString()}`;
  };
  const row = (e: Event): HTMLElement => el("tr", { "data-event": lastPart(e.name) }, el("td", { class: "time" }, clockTime(millis(e.time))), el("td", {}, live.title(e.camera) || "the box"), el("td", { class: "span" }, e.type.replaceAll("_", " ")), el("td", {}, said(e)),
    el("td", { class: "media" }, e.snapshot ? el("a", { href: e.snapshot, target: "_blank", rel: "noopener" }, el("img", { src: e.snapshot, alt: "Picture of the event", loading: "lazy" })) : null, e.clip ? el("button", { type: "button", onclick: () => play(e) }, "Play clip") : null, e.track ? el("a", { href: `#/track/${e.track}` }, "track") : null));
  let wanted = (_: Event): boolean => true;
  const load = async (fresh = false): Promise<void> => {
    try {
      if (fresh) {
        const [c, t, r, k, first, last] = [camera.value, type.value, rule.value, kind.value, new Date(from.value).getTime(), new Date(to.value).getTime()];
        wanted = (e) => (!c || lastPart(e.camera) === c) && (!t || e.type === t) && (!r || [e.attributes?.zone, e.attributes?.line].includes(r)) && (!k || e.attributes?.class === k) && !(millis(e.time) < first) && !(millis(e.time) >= last);
      }
      const page = await ask<{ events?: Event[]; nextPageToken?: string }>("GET", path() + (!fresh && token ? `&pageToken=${encodeURIComponent(token)}` : ""));
      fill(fault);
      if (fresh) fill(body);
      body.append(...(page.events ?? []).map(row));
      if (!body.childElementCount) fill(body, nothing(5, ...unseen("event"), live.cameras.size ? " Lines and zones make events once they are drawn." : ""));
      token = page.nextPageToken ?? "";
      more.hidden = !token;
    } catch (e) {
      fill(fault, (e as Error).message);
    }
  };
  fill(main, el("h1", {}, "Events"),
    el("form", { class: "filters", onsubmit: (e) => { e.preventDefault(); void load(true); } }, camera, type, rule, kind, el("label", {}, "from ", from), el("label", {}, "until ", to), el("button", { class: "main" }, "Search"), ...copyable(path, "EventService/ListEvents"), classList()),
    fault, table("Events", [["Time", "In this browser's time zone"], ["Camera", ""], ["Event", ""], ["What there is to know", ""], ["Picture, clip, track", ""]], body, true), more);
  void load(true);
  // New events appear at the top, and their pictures and clips once they are there.
  const add = (e: Event | undefined): void => {
    if (!e) return void load(true);
    if (!wanted(e)) return;
    body.querySelector(".empty")?.closest("tr")?.remove();
    body.prepend(row(e));
  };
  const complete = (e: Event): void => body.querySelector(`[data-event="${CSS.escape(lastPart(e.name))}"]`)?.replaceWith(row(e));
  const offs = [off, offRules, live.on("events", add), live.on("media", complete)];
  return () => offs.forEach((o) => o());
}
