// The box itself: its processes, and what is served where.

import { el, fill, millis, scrollable, span, words } from "./dom";
import { live } from "./state";

const jobs: Record<string, string> = {
  vedette: "control plane, database, API, this page", "vedette-ingest": "connects and decodes cameras, makes pictures", "vedette-infer": "runs the models; also a v2 inference server of its own",
};

export function systemScreen(main: HTMLElement): () => void {
  const body = el("tbody");
  const head = el("p", {});
  fill(main, el("h1", {}, "System"), head, scrollable("Processes", el("table", {}, el("thead", {}, el("tr", {}, ...["Process", "Job", "State", "Restarts"].map((h) => el("th", { scope: "col" }, h)))), body)),
    el("p", {}, "Elsewhere: ", el("a", { href: "/metrics" }, "metrics"), " · ", el("a", { href: "/openapi.json" }, "OpenAPI document"), " · ", el("a", { href: "/v1/tracks" }, "tracks as JSON")));
  const update = (): void => {
    const s = live.system;
    if (!s) return;
    fill(head, `Vedette ${s.version ?? ""}, running for ${span(millis(s.serverTime) - millis(s.startTime))}${s.demo ? "; this is the demonstration: one rendered street as a camera" : ""}.`);
    fill(body, ...(s.processes ?? []).map((p) => {
      const state = words(p.state, "PROCESS_STATE_");
      return el("tr", {}, el("td", {}, p.name), el("td", {}, jobs[p.name] ?? ""),
        el("td", {}, el("span", { class: `badge bad${state === "ready" ? 0 : state === "starting" ? 1 : 2}` }, state), el("small", { class: "why" }, p.message ?? "")), el("td", {}, p.restarts ?? "0"));
    }));
  };
  update();
  return live.on("system", update);
}
