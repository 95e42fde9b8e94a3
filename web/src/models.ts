// The models of the inference sidecar: what is in the repository, where each runs and how long it takes.

import { ask, type Model } from "./api";
import { clockTime, el, Facts, fill, lastPart, millis, ms, nothing, seconds, table } from "./dom";
import { note } from "./notes";
import { may, needs } from "./rights";
import { live } from "./state";

/** badness of a model by its state. */
export const badness: Record<string, 0 | 1 | 2> = { READY: 0, LOADING: 1, UNLOADING: 1, UNAVAILABLE: 2 };

const mean = (duration: string | undefined): string => (duration ? ms(seconds(duration) * 1000) : "–");

/** batches shows how executions spread over the sizes of batches. */
function batches(m: Model): HTMLElement {
  const all = m.batches ?? [];
  const most = Math.max(1, ...all.map((b) => Number(b.count ?? 0)));
  return el("ul", { class: "bars", "aria-label": "Executions by batch size" }, ...all.map((b) => {
    const bar = el("span", { class: "bar" });
    bar.style.width = `${Math.max(2, (100 * Number(b.count ?? 0)) / most)}%`;
    return el("li", {}, el("span", {}, `${b.size ?? 0}`), el("span", { class: "track" }, bar), el("span", {}, `${b.count ?? 0} × ${mean(b.meanCompute)}`));
  }));
}

/** where says on what a model runs, and whether that is what was asked for. */
function where(m: Model): HTMLElement {
  const got = m.effectiveProviders ?? [];
  const wanted = m.wantedProviders ?? [];
  const missing = got.length > 0 && wanted.some((w) => !got.some((g) => g.includes(w)));
  return el("div", {}, got.join(", ") || (m.backend === "ensemble" ? "its steps' models" : "–"),
    missing ? el("p", { class: "warn" }, `asked for ${wanted.join(", ")}: ${m.fallbackReason || "that provider is not available on this box; the sidecar's log says why"}`) : null);
}

export function modelsScreen(main: HTMLElement): () => void {
  const body = el("tbody");
  const more = el("div", { class: "cards" });
  fill(main, el("h1", {}, "Models"),
    el("p", { class: "lead" }, "What the inference sidecar has loaded. Cameras go through the ensemble “pipeline” unless they name another. ",
      "Stronger detectors: ", el("code", {}, "vedette model list"), " tells which, ", el("code", {}, "vedette model pull NAME"), " fetches one, and ",
      el("code", {}, "vedette camera update CAMERA --pipeline NAME"), " sends a camera to it."),
    may("admin", true) ? null : needs("admin", "load and unload models", true),
    table("Models", [["Model", ""], ["State", ""], ["Runs on", "The execution provider its instances really use, such as cpu or cuda"], ["Batching", "How requests are put together, and the largest batch it takes"],
      ["Waiting", "Requests in its queue now"], ["Answered", "Requests since it was loaded"], ["Refused", "Requests that failed since it was loaded"], ["Time", "Mean time from a request's arrival to its answer"], ["Last", "When it answered last"], ["", ""]], body),
    el("h2", {}, "Where the time goes"), more);
  const act = async (m: Model, verb: "load" | "unload"): Promise<void> => {
    const name = lastPart(m.name);
    if (verb === "unload" && !confirm(`Unload ${name}? Cameras whose pipeline needs it are not analysed until it is loaded again.`)) return;
    try {
      await ask("POST", `/v1/${m.name}:${verb}`, {});
      note(`${name}: ${verb}ed`);
    } catch (e) {
      note((e as Error).message, true);
    }
  };
  const row = (m: Model): HTMLElement => {
    const ready = m.state === "READY";
    return el("tr", { "data-model": lastPart(m.name) },
      el("td", {}, el("b", {}, lastPart(m.name)), el("small", { class: "why" }, [m.version && `version ${m.version}`, m.backend].filter(Boolean).join(", ")),
        m.description ? el("small", { class: "why" }, m.description) : null),
      el("td", {}, el("span", { class: `badge bad${badness[m.state ?? ""] ?? 1}` }, (m.state || "not loaded").toLowerCase()), m.reason && !ready ? el("small", { class: "why" }, m.reason) : null),
      el("td", {}, where(m)),
      el("td", { class: "span" }, ready ? `${m.scheduling ?? "none"}${m.maxBatchSize ? `, up to ${m.maxBatchSize}` : ""}` : "–"),
      el("td", {}, m.pendingRequests ?? "0"), el("td", {}, m.successes ?? "0"), el("td", { class: Number(m.failures ?? 0) ? "warn" : "" }, m.failures ?? "0"),
      el("td", { class: "span" }, mean(m.mean)), el("td", { class: "time" }, m.lastInferenceTime ? clockTime(millis(m.lastInferenceTime)) : "never"),
      !may("admin", true) ? el("td") : el("td", { class: "buttons" },
        el("button", { onclick: () => void act(m, "load"), "aria-label": `${ready ? "Reload" : "Load"} ${lastPart(m.name)}` }, ready ? "Reload" : "Load"),
        ready ? el("button", { onclick: () => void act(m, "unload"), "aria-label": `Unload ${lastPart(m.name)}` }, "Unload") : null));
  };
  const cards = new Map<string, { root: HTMLElement; facts: Facts; spread: HTMLElement }>();
  const card = (m: Model): HTMLElement => {
    let c = cards.get(m.name);
    if (!c) {
      const [facts, spread] = [new Facts(), el("div")];
      c = { root: el("section", { class: "panel" }, el("h3", {}, lastPart(m.name)), facts.root, spread), facts, spread };
      cards.set(m.name, c);
    }
    c.facts.show([["In the queue", mean(m.meanQueue), "Mean wait before a request's batch began"], ["Copying inputs", mean(m.meanInput), "Mean time to gather a request's tensors"],
      ["Computing", mean(m.meanCompute), "Mean time in the backend"], ["Copying outputs", mean(m.meanOutput), "Mean time to hand the answer over"]]);
    fill(c.spread, ...(m.batches?.length ? [el("h4", {}, "Executions by batch size"), batches(m)] : []));
    return c.root;
  };
  let shown = "";
  const off = live.on("models", (models) => {
    const fault = models.length === 1 && !models[0]!.name ? models[0]!.reason : "";
    const key = JSON.stringify(models);
    if (key === shown) return;
    shown = key;
    const focused = document.activeElement?.getAttribute("aria-label");
    if (fault) fill(body, nothing(10, `${fault}. ${/is not for|needs the role/.test(fault ?? "") ? "Sign in as somebody who may see all of the box." : "Models appear here when it is back."}`));
    else fill(body, ...(models.length ? models.map(row) : [nothing(10, "The model repository is empty. Put a model into it (a folder with config.pbtxt), and load it here.")]));
    const told = models.filter((m) => m.state === "READY" && m.mean).map(card);
    if (told.length !== more.childElementCount || told.some((c, i) => c !== more.children[i])) fill(more, ...told);
    if (focused) main.querySelector<HTMLElement>(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  });
  fill(body, nothing(10, "Asking the inference sidecar …"));
  live.detail("models");
  return () => {
    off();
    live.detail("");
  };
}
