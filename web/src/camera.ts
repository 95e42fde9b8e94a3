// One camera: its picture with layers to switch, what it is, how it is doing and where the time goes.

import { ask, type Camera, type CameraSample, type Event, type Timing } from "./api";
import { clockTime, el, explained, Facts, fill, gently, lastPart, millis, ms, noCamera, nothing, seconds, span, table, text, words } from "./dom";
import { note } from "./notes";
import { showState, stateOf } from "./overview";
import { Plot } from "./plot";
import { may, needs } from "./rights";
import { live } from "./state";
import { ageAlarm, ageWarning, CameraView } from "./view";
import { loadRules } from "./zones";

const dropWords: Record<string, string> = {
  stale: "older than its staleness budget when its turn came", busy: "the picture before was still being analysed", no_slot: "no free slot for the decoded picture",
  no_lease: "the slot could not be held long enough", overwritten: "the slot was reused before it was read", infer_error: "the inference sidecar refused it or failed",
  no_inference: "the inference sidecar was away, or the model not loaded", no_turn: "a newer one came while it waited for its turn among the cameras", shed: "the box is overloaded: this camera's analysis is given up for a while", epoch_ended: "the stream ended while it waited", decode_late: "decoding could not follow", no_keyframe: "no keyframe had come yet", paused: "analysis is paused",
};

const stageWords: Record<string, string> = {
  receive: "From capture until the picture's data had arrived", decode: "Decoding", queue: "Waiting for its turn at inference", prepare: "Scaling to the model's input", infer: "The detector",
  boxes: "From the detector's output to boxes", track: "Joining boxes to tracks", commit: "Until it was on disk",
};

/** How many events the page shows. */
const kept = 12;

/** fixFor is where an operator mends what a camera complains about; undefined: elsewhere. */
export function fixFor(c: Camera): { href: string; label: string } | undefined {
  const id = lastPart(c.name);
  switch (c.status?.reason) {
    case "AUTH_FAILED": return { href: `#/edit/${id}/password`, label: "Wrong user or password: fix it here" };
    case "TRANSPORT_REFUSED": return { href: `#/edit/${id}/transport`, label: "The camera refuses this transport: choose the other one" };
    case "NOT_FOUND": return { href: `#/edit/${id}/uri`, label: "Wrong path: fix the address here" };
    case "INVALID_CONFIG": case "UNREACHABLE": return { href: `#/edit/${id}/uri`, label: "Check the address here" };
    default: return undefined;
  }
}

/** fixLink leads there whoever may mend it; others are told who may. */
export const fixLink = (fix: { href: string; label: string }, style = ""): HTMLElement =>
  may("admin") ? el("a", { class: style, href: fix.href }, fix.label) : el("small", { class: "why" }, "An admin can fix this.");

/** Waterfall shows the stages of a picture one after the other, each as long as it takes. */
class Waterfall {
  readonly root = el("div", { class: "waterfall" });

  show(t: Timing): void {
    const stages = (t.stages ?? []).filter((s) => s.p50 !== undefined);
    if (!stages.length) {
      fill(this.root, el("p", { class: "empty" }, "No picture was analysed yet; the stages appear with the first one."));
      return;
    }
    const whole = Math.max(stages.reduce((sum, s) => sum + seconds(s.p50), 0), seconds(t.total?.p50)) || 1;
    let at = 0;
    fill(this.root, el("ol", {}, ...stages.map((s, i) => {
      const bar = el("span", { class: "bar" });
      bar.style.marginLeft = `${(100 * at) / whole}%`;
      bar.style.width = `${Math.max(0.6, (100 * seconds(s.p50)) / whole)}%`;
      bar.dataset.stage = String(i % 8);
      at += seconds(s.p50);
      return el("li", {}, explained(s.stage, stageWords[s.stage] ?? `The model ${s.stage}`), el("span", { class: "track" }, bar), el("span", { class: "figure" }, `${ms(1000 * seconds(s.p50))}`, el("small", {}, ` p99 ${ms(1000 * seconds(s.p99))}`)));
    })), t.total ? el("p", { class: "meaning" }, explained("Capture to commit", "From the moment the camera took the picture until what was seen in it was on disk: half of the newest pictures took at most the first number, 99 of 100 the second"), `: ${ms(1000 * seconds(t.total.p50))}, p99 ${ms(1000 * seconds(t.total.p99))}, over ${t.total.frames ?? 0} pictures`) : null);
  }
}

/** timeline draws the states of a day as a bar. */
function timeline(events: Event[], c: Camera | undefined): HTMLElement {
  const now = live.now();
  const changes = events.filter((e) => e.type === "camera_state").map((e) => ({ at: millis(e.time), state: words(e.attributes?.state, "CAMERA_STATE_"), why: e.attributes?.reason ?? "" })).sort((a, b) => a.at - b.at);
  const from = Math.max(now - 86400000, changes[0]?.at ?? now - 60000);
  const bar = el("div", { class: "timeline", role: "img", "aria-label": `States since ${clockTime(from)}` });
  changes.forEach((s, i) => {
    const end = changes[i + 1]?.at ?? now;
    if (end <= from) return;
    const part = el("span", { class: `state-${s.state.replaceAll(" ", "-")}`, title: `${s.state}${s.why ? ` (${words(s.why, "")})` : ""}: ${clockTime(s.at)}, for ${span(end - s.at)}` });
    part.style.left = `${(100 * (Math.max(s.at, from) - from)) / (now - from)}%`;
    part.style.width = `${Math.max(0.3, (100 * (end - Math.max(s.at, from))) / (now - from))}%`;
    bar.append(part);
  });
  const up = changes.reduce((sum, s, i) => (s.state === "streaming" ? sum + Math.max(0, (changes[i + 1]?.at ?? now) - Math.max(s.at, from)) : sum), 0);
  return el("div", {}, bar, el("p", { class: "meaning" }, changes.length ? `Streaming for ${span(up)} of the last ${span(now - from)}; ${changes.length} changes of state.` : `No change of state is on record${c ? "" : "; the camera is gone"}.`));
}

export function cameraScreen(main: HTMLElement, id: string): () => void {
  const name = `cameras/${id}`;
  const view = new CameraView(name);
  const title = el("h1", {});
  const badge = el("span", { class: "badge" });
  const age = el("span", { class: "age", title: "Age of the picture: the box's clock minus its capture time" });
  const facts = new Facts();
  const drops = el("tbody");
  const history = el("tbody");
  const states = el("div");
  const rated = el("div", { class: "rated" });
  const way = el("abbr", { class: "meaning", tabindex: 0 });
  const buttons = el("div", { class: "buttons" });
  const trouble = el("p", { class: "trouble" });
  const picture = el("div", { class: "picture" }, view.canvas, trouble);
  const keep = el("a", { class: "button", href: `/v1/${name}/snapshot.jpg`, download: `${id}.jpg` }, "Save picture");
  const waterfall = new Waterfall();
  const layer = (key: keyof CameraView["layers"], label: string): HTMLElement =>
    el("label", {}, el("input", { type: "checkbox", checked: view.layers[key], onchange: (e) => {
      view.layers[key] = (e.target as HTMLInputElement).checked;
      view.redraw();
    } }), label);
  fill(main, el("div", { class: "heading" }, title, badge, age, way),
    el("div", { class: "columns" },
      el("section", {}, picture, el("div", { class: "layers" }, layer("boxes", "boxes"), layer("ids", "classes and ids"), layer("trails", "trails of 3 s"), layer("rules", "zones and lines"),
        el("button", { type: "button", onclick: () => void picture.requestFullscreen?.() }, "Full screen"), keep),
        el("div", { class: "panel" }, el("h2", {}, "Where a picture's time goes"), waterfall.root),
        el("div", { class: "panel" }, el("h2", {}, "States of the last day"), states), rated),
      el("section", { class: "stack" },
        el("div", { class: "panel" }, el("h2", {}, "State"), facts.root, buttons),
        el("div", { class: "panel" }, el("h2", {}, explained("Pictures not analysed, by cause", "Since the appliance started. Fresh pictures go first; what is left out is counted here, never hidden.")), table("Drops", [["Cause", ""], ["Pictures", ""], ["That is", ""]], drops)),
        el("div", { class: "panel" }, el("h2", {}, "What happened"), table("Events", [["Time", ""], ["Event", ""], ["More", ""]], history), el("p", {}, el("a", { href: `#/events/${id}` }, "All events of this camera"), " · ", el("a", { href: `#/tracks/${id}` }, "Its tracks"))))));

  const act = (label: string, verb: string, done = `${verb}d`): HTMLElement => el("button", { onclick: () => void ask("POST", `/v1/${name}:${verb}`, {}).then(() => note(`${id}: ${done}`), (e: Error) => note(e.message, true)) }, label);
  const restart = async (): Promise<void> => {
    try {
      await ask("POST", `/v1/${name}:disable`, {});
      await ask("POST", `/v1/${name}:enable`, {});
      note(`${id}: restarted`);
    } catch (e) {
      note((e as Error).message, true);
    }
  };
  const probe = async (): Promise<void> => {
    const c = live.cameras.get(name);
    note(`${id}: asking the camera …`);
    try {
      const p = await ask<{ media?: { codec?: string; width?: number; height?: number; fps?: number }; duration?: string }>("POST", `/v1/cameras:probe`, { source: { uri: c?.source?.uri, username: c?.source?.username } });
      note(`${id} answers: ${p.media?.codec ?? "?"}, ${p.media?.width ?? 0}×${p.media?.height ?? 0} px, first picture after ${span(1000 * seconds(p.duration))}`);
    } catch (e) {
      note((e as Error).message, true);
    }
  };
  let buttonsFor = "";
  let begun = false;
  const update = (): void => {
    const c: Camera | undefined = live.cameras.get(name);
    if (!c) {
      if (live.synced) fill(main, noCamera(id));
      return;
    }
    if (!begun) {
      begun = true;
      rules();
      void recall();
      remember().catch(() => undefined);
    }
    const s = c.status ?? {};
    const state = stateOf(c);
    text(title, c.displayName || id);
    if (s.media?.width && s.media.height) picture.style.aspectRatio = `${s.media.width} / ${s.media.height}`;
    const m = s.media ?? {};
    const i = s.ingest ?? {};
    const rate = i.bitRate ? `, ${(i.bitRate / 1e6).toFixed(2)} Mbit/s` : "";
    const offset = 1000 * seconds(i.clockOffset);
    const on = m.width !== undefined;
    facts.show([
      ["State", state.word + (state.sentence ? `: ${state.sentence}` : ""), "What the camera is doing now"],
      ["For", span(live.now() - millis(s.sinceTime)), "Since the state was entered"],
      ["Address", c.source?.uri ?? "", "Without credentials; those are never shown"],
      ["Stream", on ? `${m.codec ?? "?"}, ${m.width ?? 0}×${m.height ?? 0} px, ${(m.fps ?? 0).toFixed(1)} fps${rate}` : "–", "What the camera sends: codec, size in pixels, pictures a second, measured bit rate"],
      ["Keyframes", on && i.gop ? `one in ${i.gop} pictures` : "–", "After a loss, and when video begins, one waits for the next keyframe; every 1 to 2 s is good"],
      ["Way in", on ? [i.transport || "file", `decoded by ${i.decoder || "nothing yet"}`, i.decoderFallback].filter(Boolean).join(", ") : "–", "How the stream travels, and what decodes it"],
      ["Camera's clock", !on ? "–" : !i.senderReports ? "not told: times are by arrival" : `${ms(Math.abs(offset))} ${offset < 0 ? "behind" : "ahead of"} the box's`, "By the camera's RTCP sender reports, which tie its pictures to its clock"],
      ["Lost", `${i.packetsLost ?? "0"} packets, ${i.decodeErrors ?? "0"} pictures damaged`, "Since ingest started"],
      ["Received", `${(s.receivedFps ?? 0).toFixed(1)} fps`, "Pictures that came in a second, over the last seconds"],
      ["Analysed", `${(s.analysedFps ?? 0).toFixed(1)} fps, ${s.analysedFrames ?? 0} in all`, "Pictures that went through the pipeline, over the last seconds and since the appliance started"],
      ...(s.limitedFps ? [["Held to", `${s.limitedFps.toFixed(1)} fps`, "The box is overloaded: every camera's rate is lowered for a while"] as [string, string, string]] : []),
      ["Stream epoch", s.streamEpoch || "–", "An unbroken run of the stream; a reconnect opens a new one"],
      ["Sequence", s.sequence && s.sequence !== "0" ? s.sequence : "–", "The tracker's correlation id; part of every track's id"],
      ...(s.nextRetryTime ? [["Next attempt", `in ${span(millis(s.nextRetryTime) - live.now())}`, "When the camera is tried again by itself"] as [string, string, string]] : []),
    ]);
    const fix = fixFor(c);
    const enabled = c.desiredState !== "DESIRED_STATE_DISABLED";
    const key = `${String(enabled)}${String(!!s.nextRetryTime)}${fix?.href ?? ""}`;
    if (key !== buttonsFor) {
      buttonsFor = key;
      fill(buttons, fix ? fixLink(fix, "button main") : null, may("operator") ? act(enabled ? "Disable" : "Enable", enabled ? "disable" : "enable") : null, enabled && !s.nextRetryTime && may("operator") ? el("button", { title: "Ends the stream and connects again", onclick: () => void restart() }, "Restart") : null, enabled && s.nextRetryTime && may("operator") ? act("Try now", "enable", "tried now") : null,
        c.source?.passwordSet || !may("admin", true) ? null : el("button", { onclick: () => void probe() }, "Probe"), may("admin") ? el("a", { class: "button", href: `#/edit/${id}` }, "Change") : null, el("a", { class: "button", href: `#/zones/${id}` }, "Zones and lines"), el("a", { class: "button", href: `#/counts/${id}` }, "Counts"), may("admin") ? null : needs("admin", may("operator") ? "change it" : "change it, or as an operator to switch it on and off"));
    }
    const causes = Object.entries(s.drops ?? {}).filter(([, n]) => Number(n) > 0).sort((a, b) => Number(b[1]) - Number(a[1]));
    fill(drops, ...(causes.length ? causes.map(([cause, n]) => el("tr", {}, el("td", {}, cause.replaceAll("_", " ")), el("td", {}, n), el("td", {}, dropWords[cause] ?? ""))) : [nothing(3, s.analysedFrames && s.analysedFrames !== "0" ? "None: every picture was analysed." : "None: no picture has come yet.")]));
    tick();
  };
  const tick = (): void => {
    way.hidden = keep.hidden = !Number.isFinite(view.shown);
    text(way, { whep: "WebRTC", fmp4: "MP4", mjpeg: "MJPEG" }[view.way]);
    way.title = { whep: "Live video as the camera sends it, by WebRTC", fmp4: "Live video as the camera sends it, as MP4 over a WebSocket", mjpeg: "JPEG after JPEG, at most 15 a second" }[view.way] + (view.why ? ` (${view.why})` : "");
    const old = live.now() - view.shown;
    text(age, Number.isFinite(old) ? `${span(old)} old` : "no picture yet");
    age.classList.toggle("warn", old > ageWarning);
    age.classList.toggle("alarm", old > ageAlarm);
    picture.classList.toggle("stale", !(old <= ageAlarm));
    const c = live.cameras.get(name);
    if (c) showState(badge, stateOf(c), old);
    text(trouble, !(old <= ageAlarm) ? (c && stateOf(c).sentence) || view.trouble : "");
  };
  let newest: Event[] = [];
  let changes: Event[] = [];
  const recount = (): void => {
    fill(history, ...(newest.length ? newest.map((e) => el("tr", {}, el("td", { class: "time" }, clockTime(millis(e.time))), el("td", { class: "span" }, e.type.replaceAll("_", " ")), el("td", { class: "said" }, said(e)))) : [nothing(3, "Nothing yet.")]));
    fill(states, timeline(changes, live.cameras.get(name)));
  };
  const recountSoon = gently(recount);
  /** recall reads the past, once and after a gap in what the live stream tells. */
  const recall = async (): Promise<void> => {
    try {
      const [{ events = [] }, { events: days = [] }] = await Promise.all([
        ask<{ events?: Event[] }>("GET", `/v1/${name}/events?pageSize=${kept}`),
        ask<{ events?: Event[] }>("GET", `/v1/${name}/events?${new URLSearchParams({ pageSize: "500", filter: `type = "camera_state" AND time >= "${new Date(live.now() - 86400000).toISOString()}"` }).toString()}`),
      ]);
      [newest, changes] = [events, days];
      recount();
    } catch (e) {
      fill(history, nothing(3, (e as Error).message));
    }
  };
  const happened = (e: Event | undefined): void => {
    if (!e) return void recall();
    if (e.camera !== name) return;
    newest = [e, ...newest].slice(0, kept);
    if (e.type === "camera_state") changes = [e, ...changes];
    recountSoon();
  };
  const rules = (): void => void loadRules(name).then((r) => Object.assign(view, r), () => undefined);
  const rates = new Plot("Pictures a second", "What came in, what went through the pipeline and what was left out, over the last half hour", (v) => `${v.toFixed(1)} fps`);
  rated.append(rates.root);
  let samples: CameraSample[] = [];
  const draw = (): void => rates.show({ times: samples.map((s) => millis(s.time) / 1000), series: [
    { label: "received", values: samples.map((s) => s.receivedFps ?? 0) }, { label: "analysed", values: samples.map((s) => s.analysedFps ?? 0) }, { label: "left out", values: samples.map((s) => s.droppedFps ?? 0) },
  ] });
  /** remember reads the past once, and then follows the live stream. */
  const remember = async (): Promise<void> => {
    samples = (await ask<{ cameras?: CameraSample[] }>("GET", `/v1/system/history?${new URLSearchParams({ cameras: name }).toString()}`)).cameras ?? [];
    draw();
  };
  let dropped: { total: number; at: number } | undefined;
  const sample = (): void => {
    const c = live.cameras.get(name);
    const at = millis(live.system?.sample?.time);
    if (!c || !samples.length || !(at > millis(samples.at(-1)!.time))) return;
    const total = Object.values(c.status?.drops ?? {}).reduce((a, n) => a + Number(n), 0);
    samples = [...samples, { camera: name, time: live.system!.sample!.time, receivedFps: c.status?.receivedFps, analysedFps: c.status?.analysedFps, droppedFps: dropped ? Math.max(0, (1000 * (total - dropped.total)) / (at - dropped.at)) : 0 }].slice(-360);
    dropped = { total, at };
    draw();
    recountSoon(); // the timeline goes on
  };
  const offs = [live.on("link", update), live.on("system", sample), live.on("cameras", update), live.on("timing", (t) => waterfall.show(t)), live.on("events", happened)];
  const timer = setInterval(tick, 500);
  live.detail(name);
  view.canvas.addEventListener("drawn", tick, { once: true });
  waterfall.show({});
  update();
  return () => {
    offs.forEach((o) => o());
    clearInterval(timer);
    live.detail("");
    rates.close();
    view.close();
  };
}

/** said is what an event says beyond its type. */
export function said(e: Event): string {
  const a = { ...e.attributes };
  const low = (v: string | undefined): string => (/^[A-Z_]+$/.test(v ?? "") ? v!.toLowerCase().replaceAll("_", " ") : (v ?? "").replaceAll("_", " "));
  const spent = a.spent ? `after ${span(1000 * Number(a.spent))}` : "";
  if (e.type === "camera_state") return [[a.before, a.state].filter(Boolean).map(low).join(" → "), a.message || low(a.reason)].filter(Boolean).join(": ");
  if (e.type === "line_crossed") return `${a.class ?? "object"} ${a.direction ?? ""} over ${lastPart(a.line)}`;
  if (e.type.startsWith("zone_") && a.zone) return [`${a.class ?? ""} ${lastPart(a.zone)}`.trim(), spent, a.inside && `${a.inside} inside`, low(a.reason)].filter(Boolean).join(", ");
  const hidden = ["since", "sequence", "score"];
  return Object.entries(a).filter(([k, v]) => v && !hidden.includes(k)).map(([k, v]) => `${k.replaceAll("_", " ")} ${v.startsWith("cameras/") ? lastPart(v) : low(v)}`).join(", ");
}
