// Adding, changing and removing cameras.

import { ask, type Camera, Refusal } from "./api";
import { el, fill, lastPart, scrollable } from "./dom";
import { note } from "./notes";
import { stateOf } from "./overview";
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

const field = (label: string, hint: string, input: HTMLElement): HTMLElement => el("label", { class: "field" }, el("span", {}, label), input, el("small", {}, hint));

function form(done: () => void, camera?: Camera): HTMLElement {
  const id = el("input", { name: "id", pattern: "[a-z][a-z0-9\\-]{0,62}", required: true, value: camera ? lastPart(camera.name) : "", disabled: camera !== undefined, autocomplete: "off" });
  const uri = el("input", { name: "uri", required: true, value: camera?.source?.uri ?? "", placeholder: "rtsp://192.0.2.10:554/stream1", autocomplete: "off", spellcheck: "false" });
  const username = el("input", { name: "username", value: camera?.source?.username ?? "", autocomplete: "off" });
  const password = el("input", { name: "password", type: "password", autocomplete: "new-password", placeholder: camera?.source?.passwordSet ? "unchanged" : "" });
  const fps = el("input", { name: "fps", type: "number", min: "0", max: "60", step: "0.5", value: String(camera?.analysis?.fps ?? 5) });
  const answer = el("p", { class: "answer", role: "status" });
  uri.addEventListener("change", () => {
    const parts = takeApart(uri.value);
    uri.value = parts.uri;
    if (parts.username !== undefined) username.value = parts.username;
    if (parts.password) password.value = parts.password;
  });
  const source = (): object => ({ uri: uri.value, username: username.value, ...(password.value ? { password: password.value } : {}) });
  const say = (message: string, bad = false): void => {
    answer.className = bad ? "answer bad" : "answer";
    fill(answer, message);
  };
  const failed = (e: unknown): void => say(e instanceof Refusal ? `${e.message} (${e.reason})` : String(e), true);
  const probe = async (): Promise<void> => {
    say("Asking the camera …");
    try {
      const p = await ask<{ media?: { codec?: string; width?: number; height?: number; fps?: number }; duration?: string }>("POST", "/v1/cameras:probe", { source: source() });
      say(`It works: ${p.media?.codec ?? "?"}, ${p.media?.width ?? 0}×${p.media?.height ?? 0} px, first picture after ${p.duration ?? "?"}.`);
    } catch (e) {
      failed(e);
    }
  };
  const save = async (): Promise<void> => {
    const body = { ...(camera ? { name: camera.name, etag: camera.etag } : {}), source: source(), analysis: { ...camera?.analysis, fps: Number(fps.value) } };
    try {
      if (camera) await ask("PATCH", `/v1/${camera.name}?updateMask=source.uri,source.username,${password.value ? "source.password," : ""}analysis.fps`, body);
      else await ask("POST", `/v1/cameras?cameraId=${encodeURIComponent(id.value)}`, body);
      note(`${id.value}: saved`);
      done();
    } catch (e) {
      failed(e);
    }
  };
  return el("form", { class: "panel", onsubmit: (e) => { e.preventDefault(); void save(); } },
    el("h2", {}, camera ? `Change ${lastPart(camera.name)}` : "Add a camera"),
    field("Name", "1 to 63 of a-z, 0-9 and -, beginning with a letter. It never changes.", id),
    field("Address", "rtsp:// or rtsps://. User and password in a pasted address move to their fields.", uri),
    field("User", "", username), field("Password", "Stored encrypted, never shown again.", password),
    field("Analysed pictures a second", "0: every picture.", fps),
    el("p", { class: "buttons" }, el("button", { type: "submit", class: "main" }, camera ? "Save" : "Add"), el("button", { type: "button", onclick: () => void probe() }, "Test"), el("button", { type: "button", onclick: done }, "Cancel")),
    answer);
}

export function camerasScreen(main: HTMLElement): () => void {
  const body = el("tbody");
  const place = el("div", {});
  const edit = (camera?: Camera): void => {
    fill(place, form(() => fill(place), camera));
    place.querySelector<HTMLInputElement>("input:not([disabled])")?.focus();
  };
  const remove = async (c: Camera): Promise<void> => {
    if (!confirm(`Remove camera ${lastPart(c.name)}? What it saw stays until retention removes it.`)) return;
    try {
      await ask("DELETE", `/v1/${c.name}`);
      note(`${lastPart(c.name)}: removed`);
    } catch (e) {
      note((e as Error).message, true);
    }
  };
  const toggle = async (c: Camera): Promise<void> => {
    const verb = c.desiredState === "DESIRED_STATE_DISABLED" ? "enable" : "disable";
    try {
      await ask("POST", `/v1/${c.name}:${verb}`, {});
    } catch (e) {
      note((e as Error).message, true);
    }
  };
  fill(main, el("h1", {}, "Cameras"), el("p", { class: "buttons" }, el("button", { class: "main", onclick: () => edit() }, "Add a camera")), place,
    scrollable("Cameras", el("table", {}, el("thead", {}, el("tr", {}, ...["Camera", "Address", "State", "Analysed", ""].map((h) => el("th", { scope: "col" }, h)))), body)));
  const update = (): void => {
    const all = [...live.cameras.values()].sort((a, b) => a.name.localeCompare(b.name));
    fill(body, ...(all.length ? all.map((c) => {
      const state = stateOf(c);
      return el("tr", { "data-camera": lastPart(c.name) },
        el("td", {}, el("a", { href: `#/camera/${lastPart(c.name)}` }, c.displayName || lastPart(c.name))),
        el("td", { class: "address" }, c.source?.uri ?? ""),
        el("td", {}, el("span", { class: `badge bad${state.bad}` }, state.word), el("small", { class: "why" }, state.bad ? state.sentence : "")),
        el("td", {}, `${(c.status?.analysedFps ?? 0).toFixed(1)} fps`),
        el("td", { class: "buttons" }, el("button", { onclick: () => edit(c) }, "Change"), el("button", { onclick: () => void toggle(c) }, c.desiredState === "DESIRED_STATE_DISABLED" ? "Enable" : "Disable"), el("button", { onclick: () => void remove(c) }, "Remove")));
    }) : [el("tr", {}, el("td", { colspan: 5, class: "empty" }, "No camera yet."))]));
  };
  update();
  return live.on("cameras", update);
}
