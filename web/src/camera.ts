// One camera: its picture with layers to switch, what it is and how it is doing.

import { ask, type Camera, type Event } from "./api";
import { clockTime, el, fill, millis, span, text } from "./dom";
import { stateOf } from "./overview";
import { live } from "./state";
import { CameraView } from "./view";
import { note } from "./notes";

const dropWords: Record<string, string> = {
  stale: "older than its staleness budget", busy: "the frame before was still being analysed", no_slot: "no free slot for the decoded picture",
  overwritten: "the slot was reused before it was read", infer_error: "the inference sidecar refused or failed", unavailable: "the inference sidecar was away",
};

export function cameraScreen(main: HTMLElement, id: string): () => void {
  const name = `cameras/${id}`;
  const view = new CameraView(name);
  const title = el("h1", {});
  const facts = el("dl", { class: "facts" });
  const drops = el("tbody");
  const history = el("tbody");
  const buttons = el("p", { class: "buttons" });
  const layer = (key: "boxes" | "ids" | "trails", label: string): HTMLElement =>
    el("label", {}, el("input", { type: "checkbox", checked: view.layers[key], onchange: (e) => { view.layers[key] = (e.target as HTMLInputElement).checked; } }), label);
  fill(main, title,
    el("div", { class: "columns" },
      el("section", {}, el("div", { class: "picture" }, view.canvas), el("p", { class: "layers" }, layer("boxes", "boxes"), layer("ids", "classes and ids"), layer("trails", "trails of 3 s"))),
      el("section", { class: "side" }, el("h2", {}, "State"), facts, buttons,
        el("h2", {}, "Pictures not analysed, by cause"), el("table", {}, drops),
        el("h2", {}, "What happened"), el("table", {}, history))));

  const act = (label: string, verb: string): HTMLElement => el("button", { onclick: () => void ask("POST", `/v1/${name}:${verb}`, {}).then(() => note(`${id}: ${verb}d`), (e: Error) => note(e.message, true)) }, label);
  const fact = (term: string, value: string, meaning: string): Node[] => [el("dt", { title: meaning }, term), el("dd", {}, value)];
  const update = (): void => {
    const c: Camera | undefined = live.cameras.get(name);
    if (!c) {
      if (live.synced) fill(main, el("p", { class: "empty" }, `There is no camera ${id}. `, el("a", { href: "#/cameras" }, "All cameras")));
      return;
    }
    const s = c.status ?? {};
    const state = stateOf(c);
    text(title, c.displayName || id);
    fill(facts,
      ...fact("State", state.word + (state.sentence ? `: ${state.sentence}` : ""), "What the camera is doing now"),
      ...fact("For", span(live.now() - millis(s.sinceTime)), "Since the state was entered"),
      ...fact("Address", c.source?.uri ?? "", "Without credentials; those are never shown"),
      ...fact("Stream", s.media ? `${s.media.codec ?? "?"}, ${s.media.width ?? 0}×${s.media.height ?? 0} px, ${(s.media.fps ?? 0).toFixed(1)} fps` : "–", "What the camera sends"),
      ...fact("Received", `${(s.receivedFps ?? 0).toFixed(1)} fps`, "Pictures decoded a second"),
      ...fact("Analysed", `${(s.analysedFps ?? 0).toFixed(1)} fps, ${s.analysedFrames ?? 0} in all`, "Pictures that went through the pipeline"),
      ...fact("Stream epoch", s.streamEpoch ?? "–", "An unbroken run of the stream; a reconnect opens a new one"),
      ...fact("Sequence", s.sequence ?? "–", "The tracker's correlation id; part of every track's id"),
      s.nextRetryTime ? el("dt", {}, "Next attempt") : null, s.nextRetryTime ? el("dd", {}, `in ${span(millis(s.nextRetryTime) - live.now())}`) : null);
    fill(buttons, c.desiredState === "DESIRED_STATE_DISABLED" ? act("Enable", "enable") : act("Disable", "disable"));
    const causes = Object.entries(s.drops ?? {}).filter(([, n]) => Number(n) > 0);
    fill(drops, ...(causes.length ? causes.map(([cause, n]) => el("tr", {}, el("td", { title: dropWords[cause] ?? "" }, cause), el("td", {}, n))) : [el("tr", {}, el("td", { class: "empty" }, "None: every picture was analysed."))]));
  };
  const recall = async (): Promise<void> => {
    try {
      const { events } = await ask<{ events?: Event[] }>("GET", `/v1/${name}/events?pageSize=20`);
      fill(history, ...(events ?? []).map((e) => el("tr", {}, el("td", { class: "time" }, clockTime(millis(e.time))), el("td", {}, e.type), el("td", {}, Object.entries(e.attributes ?? {}).map(([k, v]) => `${k} ${v}`).join(", ")))));
    } catch (e) {
      fill(history, el("tr", {}, el("td", { class: "empty" }, (e as Error).message)));
    }
  };
  const offs = [live.on("cameras", update), live.on("events", () => void recall())];
  const timer = setInterval(update, 1000);
  update();
  void recall();
  return () => {
    offs.forEach((o) => o());
    clearInterval(timer);
    view.close();
  };
}

