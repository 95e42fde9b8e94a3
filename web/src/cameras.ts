// Adding, changing and removing cameras.

import { ask, type Camera, type Capacity, Refusal } from "./api";
import { fixFor, fixLink } from "./camera";
import { el, fill, lastPart, noCamera, nothing, seconds, span, table, text } from "./dom";
import { note } from "./notes";
import { noCameras, stateOf } from "./overview";
import { may, needs } from "./rights";
import { live } from "./state";

/** takeApart moves user and password out of a pasted address; they have fields of their own. */
export function takeApart(address: string): { uri: string; username?: string; password?: string } {
  const m = /^([a-z]+:\/\/)(.*)@([^@]*)$/i.exec(address.trim());
  if (!m) return { uri: address.trim() };
  const [, scheme, credentials, rest] = m;
  const colon = credentials!.indexOf(":");
  const decode = (s: string): string => {
    try {
      return decodeURIComponent(s);
    } catch {
      return s;
    }
  };
  return { uri: scheme! + rest!, username: decode(colon < 0 ? credentials! : credentials!.slice(0, colon)), password: colon < 0 ? "" : decode(credentials!.slice(colon + 1)) };
}

const field = (label: string, hint: string, input: HTMLElement): HTMLElement => el("label", { class: "field" }, el("span", {}, label), input, hint ? el("small", {}, hint) : null);

interface Discovered { service?: string; manufacturer?: string; model?: string; displayName?: string; streams?: { profile?: string; uri?: string; media?: { codec?: string; width?: number; height?: number; fps?: number } }[]; clockOffset?: string; reason?: string; message?: string }

interface Probe { media?: { codec?: string; width?: number; height?: number; fps?: number }; duration?: string; jpeg?: string; warnings?: { kind?: string; message?: string }[] }

/** warnings says what of a stream costs more than it needs to: what the box saw, and what it does not judge. */
function warnings(p: Probe): string[] {
  const fps = p.media?.fps ?? 0;
  return [...(p.warnings ?? []).map((w) => w.message ?? w.kind ?? ""), ...(fps > 30 ? [`${fps.toFixed(0)} pictures a second are decoded, also those that are not analysed: 10 to 15 are enough for the camera's setting.`] : [])];
}

/** cameraForm is for a new camera, or for one that is there. focus names the field to begin at. */
export function cameraForm(main: HTMLElement, camera?: Camera, focus?: string): () => void {
  if (!may("admin", !camera)) {
    fill(main, el("div", { class: "panel narrow" }, el("h1", {}, camera ? `Change ${camera.displayName || lastPart(camera.name)}` : "Add a camera"), needs("admin", camera ? "change it" : "add a camera", !camera)));
    return () => undefined;
  }
  const id = el("input", { name: "id", pattern: "[a-z][a-z0-9\\-]{0,62}", required: true, value: camera ? lastPart(camera.name) : "", disabled: camera !== undefined, autocomplete: "off", placeholder: "front-door" });
  const title = el("input", { name: "displayName", value: camera?.displayName ?? "", maxlength: 200, autocomplete: "off" });
  const uri = el("input", { name: "uri", required: true, value: camera?.source?.uri ?? "", placeholder: "rtsp://192.0.2.10:554/stream1", autocomplete: "off", spellcheck: "false" });
  const mainUri = el("input", { name: "mainUri", value: camera?.source?.mainUri ?? "", placeholder: "rtsp://192.0.2.10:554/stream0", autocomplete: "off", spellcheck: "false" });
  const username = el("input", { name: "username", value: camera?.source?.username ?? "", autocomplete: "off" });
  const password = el("input", { name: "password", type: "password", autocomplete: "new-password", placeholder: camera?.source?.passwordSet ? "unchanged" : "" });
  const transport = el("select", { name: "transport" }, ...[["TRANSPORT_UNSPECIFIED", "TCP (safe choice)"], ["TRANSPORT_UDP", "UDP (less delay, loses packets)"]].map(([v, label]) => el("option", { value: v!, selected: camera?.source?.transport === v }, label!)));
  const fps = el("input", { name: "fps", type: "number", min: "0", max: "60", step: "0.5", value: String(camera?.analysis?.fps ?? 5) });
  const priority = el("select", { name: "priority" }, ...[["PRIORITY_LOW", "low: given up first"], ["PRIORITY_NORMAL", "normal"], ["PRIORITY_HIGH", "high: given up last"]].map(([v, label]) => el("option", { value: v!, selected: (camera?.analysis?.priority || "PRIORITY_UNSPECIFIED").replace("UNSPECIFIED", "NORMAL") === v }, label!)));
  const gate = el("input", { type: "checkbox", name: "gate", checked: camera?.analysis?.motionGate !== undefined && camera.analysis.motionGate !== null });
  const pictures = el("input", { type: "checkbox", name: "pictures", checked: !camera?.recording?.noPictures });
  const clip = el("input", { name: "clip", type: "number", min: "0", max: "30", step: "1", value: String(seconds(camera?.recording?.clip)) });
  const answer = el("div", { class: "answer", role: "status" });
  const found = el("div", { class: "found" });
  const add = el("button", { type: "submit", class: "main" }, camera ? "Save" : "Add");
  const fields: Record<string, HTMLElement> = { id, uri, username, password, fps, transport };
  uri.addEventListener("change", () => {
    const parts = takeApart(uri.value);
    uri.value = parts.uri;
    if (parts.username !== undefined) username.value = parts.username;
    if (parts.password) password.value = parts.password;
  });
  const source = (): object => ({ uri: uri.value, mainUri: mainUri.value, username: username.value, transport: transport.value, ...(password.value ? { password: password.value } : {}) });
  /** failed says what is wrong, and takes the person to the field that mends it. */
  const failed = (e: unknown): void => {
    const r = e instanceof Refusal ? e : undefined;
    const at = (Object.entries({ AUTH_FAILED: "password", NOT_FOUND: "uri", UNREACHABLE: "uri", TIMEOUT: "uri", INVALID_CONFIG: "uri", TRANSPORT_REFUSED: "transport", ALREADY_EXISTS: "id" }) as [string, string][]).find(([reason]) => r?.reason === reason)?.[1]
      ?? Object.keys(fields).find((f) => r?.message.includes(`source.${f}`) || r?.message.includes(`${f}_id`) || r?.message.includes(`analysis.${f}`) || (f === "id" && r?.message.includes("camera_id")));
    const advice: Record<string, string> = {
      AUTH_FAILED: "Wrong user or password: fix it here.", NOT_FOUND: "The camera answers, but has no stream at this path: look it up in the camera's manual, or try its substream.",
      UNREACHABLE: "Nothing answers at this address: is the camera on, on this network, and the port right (mostly 554)?", TIMEOUT: "The camera does not answer in time: is it reachable from this box?",
      CODEC_UNSUPPORTED: "The camera sends video this box cannot decode: choose H.264 or H.265 in the camera's settings.", TRANSPORT_REFUSED: "The camera refuses this transport: choose the other one.",
      CAMERA_BUSY: "The camera has no session left: close other viewers, or raise its limit.", TLS_CERT: "The camera's certificate is not trusted by this box.", ALREADY_EXISTS: "There is a camera of this name: choose another.",
      CAPACITY_EXCEEDED: "This box is full: lower the analysed pictures a second, here or of other cameras.",
    };
    for (const f of Object.values(fields)) f.removeAttribute("aria-invalid");
    answer.className = "answer bad";
    fill(answer, el("b", {}, advice[r?.reason ?? ""] ?? "That did not work."), ` ${r ? r.message : String(e)}${r && /^[A-Z]/.test(r.reason) ? ` (${r.reason})` : ""}`,
      r?.reason === "CAPACITY_EXCEEDED" ? el("p", {}, el("button", { type: "button", onclick: () => void save(true) }, camera ? "Save it all the same" : "Add it all the same")) : null);
    const wrong = at ? fields[at] : undefined;
    wrong?.setAttribute("aria-invalid", "true");
    wrong?.focus();
  };
  const network = el("div", { class: "network", role: "status" });
  const only = el("input", { name: "device", placeholder: "192.0.2.10", autocomplete: "off", spellcheck: "false", onkeydown: (e) => {
    if ((e as KeyboardEvent).key !== "Enter") return;
    e.preventDefault();
    void discover();
  } });
  /** discover lists what answers on the network, or one device; user and password, when given, open its list of streams. */
  const discover = async (): Promise<void> => {
    fill(network, el("p", { class: "meaning" }, "Asking the network for ONVIF cameras …"));
    try {
      const { cameras = [] } = await ask<{ cameras?: Discovered[] }>("POST", "/v1/cameras:discover", { address: only.value.trim(), username: username.value, password: password.value, timeout: "10s" });
      const use = (d: Discovered, s: NonNullable<Discovered["streams"]>[number]): void => {
        const largest = d.streams?.[0];
        uri.value = s.uri ?? "";
        mainUri.value = largest && largest.uri !== s.uri ? (largest.uri ?? "") : "";
        if (!title.value) title.value = d.displayName || d.model || "";
        uri.focus();
      };
      fill(network, ...(cameras.length ? cameras.map((d) => el("div", { class: "device" }, el("b", {}, [d.manufacturer, d.model].filter(Boolean).join(" ") || d.displayName || d.service || "ONVIF device"), el("small", { class: "why" }, d.service ?? ""),
        d.clockOffset && Math.abs(seconds(d.clockOffset)) > 2 ? el("p", { class: "warn" }, `Its clock is ${span(1000 * Math.abs(seconds(d.clockOffset)))} off: point it to a time server (NTP).`) : null,
        d.streams?.length ? el("p", { class: "buttons" }, ...d.streams.map((s) => el("button", { type: "button", onclick: () => use(d, s) }, `Use ${s.profile ?? "stream"}: ${s.media?.codec ?? "?"} ${s.media?.width ?? 0}×${s.media?.height ?? 0} px`)))
          : el("p", { class: "warn" }, d.reason === "AUTH_FAILED" ? "Give user and password below and search again to see its streams." : (d.message ?? "It told no streams.")))) :
        [el("p", { class: "meaning" }, "No ONVIF camera answered. Switch ONVIF on in the camera's settings, look whether box and camera are on one network, or type the address.")]));
    } catch (e) {
      fill(network, el("p", { class: "answer bad" }, (e as Error).message));
    }
  };
  const probe = async (): Promise<Probe | undefined> => {
    answer.className = "answer";
    fill(answer, "Asking the camera …");
    fill(found);
    for (const f of Object.values(fields)) f.removeAttribute("aria-invalid");
    try {
      const p = await ask<Probe>("POST", "/v1/cameras:probe", { source: source() });
      answer.className = "answer good";
      fill(answer, el("b", {}, "It works."), ` ${p.media?.codec ?? "?"}, ${p.media?.width ?? 0}×${p.media?.height ?? 0} px, ${(p.media?.fps ?? 0).toFixed(1)} pictures a second; first picture after ${span(1000 * seconds(p.duration))}.`);
      fill(found, p.jpeg ? el("img", { class: "preview", src: `data:image/jpeg;base64,${p.jpeg}`, alt: "The first picture the camera sent" }) : null, ...warnings(p).map((w) => el("p", { class: "warn" }, w)), await capacity(p));
      return p;
    } catch (e) {
      failed(e);
      return undefined;
    }
  };
  const capacity = async (p: Probe): Promise<HTMLElement | null> => {
    try {
      const q = new URLSearchParams({ codec: p.media?.codec ?? "", width: String(p.media?.width ?? 0), height: String(p.media?.height ?? 0), fps: String(p.media?.fps ?? 0), analysisFps: fps.value || "0" });
      const c = await ask<Capacity>("GET", `/v1/system/capacity?${q.toString()}`);
      if (!c.measured) return el("p", { class: "meaning" }, c.summary || "This box has not measured itself yet, so it cannot tell how many cameras fit.");
      return el("p", { class: (c.camerasLeft ?? 0) > 0 ? "meaning" : "warn" }, `It would take ${(100 * (c.cameraCost ?? 0)).toFixed(1)} % of this box, of which ${(100 * (c.used ?? 0)).toFixed(0)} % is in use; ${c.camerasLeft ?? 0} more such cameras fit.`
        + (c.unmeasuredPipelines?.length ? ` What analysis by ${c.unmeasuredPipelines.join(", ")} takes is not measured yet and not counted.` : ""));
    } catch {
      return null; // capacity is an extra; adding a camera does not depend on it
    }
  };
  const done = (name: string): void => {
    location.hash = `#/camera/${name}`;
  };
  const save = async (allowOverload = false): Promise<void> => {
    const body = {
      ...(camera ? { name: camera.name, etag: camera.etag } : {}), displayName: title.value, source: source(), analysis: { ...camera?.analysis, fps: Number(fps.value), priority: priority.value, motionGate: gate.checked ? (camera?.analysis?.motionGate ?? {}) : undefined },
      recording: { noPictures: !pictures.checked, clip: `${Number(clip.value)}s` },
    };
    add.setAttribute("disabled", "");
    try {
      if (camera) await ask("PATCH", `/v1/${camera.name}?updateMask=display_name,source.uri,source.main_uri,source.username,source.transport,${password.value ? "source.password," : ""}analysis.fps,analysis.priority,analysis.motion_gate,recording.no_pictures,recording.clip${allowOverload ? "&allowOverload=true" : ""}`, body);
      else await ask("POST", `/v1/cameras?cameraId=${encodeURIComponent(id.value)}${allowOverload ? "&allowOverload=true" : ""}`, body);
      note(`${id.value}: saved`);
      done(id.value);
    } catch (e) {
      failed(e);
    }
    add.removeAttribute("disabled");
  };
  fill(main, el("p", { class: "crumbs" }, el("a", { href: camera ? `#/camera/${id.value}` : "#/cameras" }, camera ? `‹ ${id.value}` : "‹ Cameras")), el("h1", {}, camera ? `Change ${camera.displayName || id.value}` : "Add a camera"),
    el("form", { class: "panel wizard", onsubmit: (e) => { e.preventDefault(); void save(); } },
      el("fieldset", {}, el("legend", {}, "1. Where it is"), camera ? null : el("p", { class: "buttons" }, el("button", { type: "button", onclick: () => void discover() }, "Search the network")), camera ? null : el("details", {}, el("summary", {}, "Ask one device only"), field("Device", "Host or host:port of its ONVIF service: a search does not pass routers. Empty: the whole network.", only)), network,
        field("Address", "rtsp:// or rtsps://, best of the camera's substream. User and password in a pasted address move to their fields.", uri), field("User", "", username), field("Password", "Stored encrypted, never shown again.", password), field("Transport", "", transport)),
      el("fieldset", {}, el("legend", {}, "2. Does it answer?"), may("admin", true) ? el("p", { class: "buttons" }, el("button", { type: "button", onclick: () => void probe() }, "Test the connection")) : needs("admin", "test the connection before it is saved", true), answer, found),
      el("fieldset", {}, el("legend", {}, "3. What it is called"),
        field("Name", "1 to 63 of a-z, 0-9 and -, beginning with a letter. It never changes.", id), field("Title", "What people call it.", title), field("Analysed pictures a second", "5 follows people and cars well; 0: every picture.", fps),
        el("details", {}, el("summary", {}, "More"), field("Address of the main stream", "A larger stream of the same camera, for live video, full pictures and clips; analysis uses the address above. Empty: one stream for all.", mainUri), field("Priority", "Which cameras keep their analysis when the box has more to do than it can.", priority), el("label", { class: "check" }, gate, "Analyse only while something moves"), el("label", { class: "check" }, pictures, "Keep the best picture of each track and a picture of each event"),
          field("Video around events, seconds", "Kept before and after each event of a zone or line, as the camera sends it; 0: none, at most 30.", clip))),
      el("p", { class: "buttons" }, add, el("a", { class: "button", href: camera ? `#/camera/${id.value}` : "#/cameras" }, "Cancel"))));
  (focus ? main.querySelector<HTMLElement>(`[name="${CSS.escape(focus)}"]`) : uri)?.focus();
  return () => undefined;
}

/** editScreen waits for the camera to be known, then shows its form. */
export function editScreen(main: HTMLElement, id: string, focus?: string): () => void {
  const off = live.on("cameras", () => attempt());
  let shown = false;
  const attempt = (): void => {
    const c = live.cameras.get(`cameras/${id}`);
    if (shown || (!c && !live.synced)) return;
    shown = true;
    if (c) cameraForm(main, c, focus);
    else fill(main, noCamera(id));
  };
  fill(main, el("p", {}, "…"));
  attempt();
  return off;
}

export function camerasScreen(main: HTMLElement): () => void {
  const body = el("tbody");
  const remove = async (c: Camera): Promise<void> => {
    if (!confirm(`Remove camera ${lastPart(c.name)}? What it saw stays until retention removes it.`)) return;
    try {
      await ask("DELETE", `/v1/${c.name}`);
      note(`${lastPart(c.name)}: removed`);
    } catch (e) {
      note((e as Error).message, true);
    }
  };
  const toggle = async (c: Camera, allowOverload = false): Promise<void> => {
    const verb = c.desiredState === "DESIRED_STATE_DISABLED" ? "enable" : "disable";
    try {
      await ask("POST", `/v1/${c.name}:${verb}`, allowOverload ? { allowOverload } : {});
    } catch (e) {
      if (e instanceof Refusal && e.reason === "CAPACITY_EXCEEDED" && confirm(`${e.message}\n\nEnable it all the same?`)) return toggle(c, true);
      note((e as Error).message, true);
    }
  };
  fill(main, el("h1", {}, "Cameras"), may("admin", true) ? el("p", { class: "buttons" }, el("a", { class: "button main", href: "#/add" }, "Add a camera")) : may("admin") ? needs("admin", "add cameras", true) : needs("admin", may("operator") ? "add, change and remove cameras" : "add and change cameras, or as an operator to switch them on and off"),
    table("Cameras", [["Camera", ""], ["Address", "Without credentials"], ["State", ""], ["Analysed", "Pictures a second that went through the pipeline"], ["", ""]], body, true));
  // A row stays the same element for as long as it says the same, so that its buttons can be pressed.
  let rows = new Map<string, { says: string; row: HTMLElement; fps: HTMLElement }>();
  const update = (): void => {
    const all = [...live.cameras.values()].sort((a, b) => a.name.localeCompare(b.name));
    const before = rows;
    rows = new Map(all.map((c) => {
      const [state, fix, id, off] = [stateOf(c), fixFor(c), lastPart(c.name), c.desiredState === "DESIRED_STATE_DISABLED"];
      const says = JSON.stringify([c.displayName, c.source?.uri, state, fix, off]);
      let r = before.get(c.name);
      if (r?.says !== says) {
        const fps = el("td");
        r = { says, fps, row: el("tr", { "data-camera": id },
          el("td", {}, el("a", { href: `#/camera/${id}` }, c.displayName || id)),
          el("td", { class: "address" }, c.source?.uri ?? ""),
          el("td", {}, el("span", { class: `badge bad${state.bad}${off ? " off" : ""}` }, state.word), el("small", { class: "why" }, state.bad ? state.sentence : ""), fix ? fixLink(fix) : null), fps,
          el("td", { class: "buttons" }, may("admin") ? el("a", { class: "button", href: `#/edit/${id}`, "aria-label": `Change ${id}` }, "Change") : null, el("a", { class: "button", href: `#/zones/${id}`, "aria-label": `Zones and lines of ${id}` }, "Zones"),
            may("operator") ? el("button", { onclick: () => void toggle(c), "aria-label": `${off ? "Enable" : "Disable"} ${id}` }, off ? "Enable" : "Disable") : null, may("admin") ? el("button", { onclick: () => void remove(c), "aria-label": `Remove ${id}` }, "Remove") : null)) };
      }
      text(r.fps, `${(c.status?.analysedFps ?? 0).toFixed(1)} fps`);
      return [c.name, r];
    }));
    const list = [...rows.values()].map((r) => r.row);
    if (list.length && list.length === body.childElementCount && list.every((r, i) => r === body.children[i])) return;
    const focused = (document.activeElement as HTMLElement | null)?.getAttribute("aria-label");
    fill(body, ...(list.length ? list : [nothing(5, live.synced ? noCameras() : "Asking …")]));
    if (focused) body.querySelector<HTMLElement>(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  };
  update();
  return live.on("cameras", update);
}
