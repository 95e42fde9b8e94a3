// The box itself: its processes, what they spend, and where the time of a picture goes.

import { ask, type BoxSample, type CameraSample, type Finding, type Refusal, type System } from "./api";
import { bytes, clockTime, el, explained, Facts, fill, lastPart, millis, ms, nothing, percent, span, table, text, words } from "./dom";
import { Plot, type PlotData } from "./plot";
import { may, needs } from "./rights";
import { badness as modelBadness } from "./models";
import { state as stateOf } from "./sinks";
import { live } from "./state";

const jobs: Record<string, string> = {
  vedette: "control plane, database, API, this page", "vedette-ingest": "connects and decodes cameras, makes pictures", "vedette-infer": "runs the models; also a v2 inference server of its own",
};

const seconds = (s: { time: string }): number => millis(s.time) / 1000;

/** cameraPlot collects what one number of every camera was. */
function cameraPlot(samples: CameraSample[], of: (s: CameraSample) => number | undefined): PlotData {
  const times = [...new Set(samples.map(seconds))].sort((a, b) => a - b);
  const byCamera = new Map<string, Map<number, number>>();
  for (const s of samples) {
    const m = byCamera.get(s.camera) ?? new Map<number, number>();
    byCamera.set(s.camera, m);
    m.set(seconds(s), of(s) ?? 0);
  }
  // The eight busiest have a line of their own; more would be no plot to read.
  const busiest = [...byCamera].sort((a, b) => Math.max(0, ...b[1].values()) - Math.max(0, ...a[1].values()) || a[0].localeCompare(b[0])).slice(0, 8);
  return { times, series: busiest.map(([name, m]) => ({ label: lastPart(name), values: times.map((t) => m.get(t) ?? null) })) };
}

/** lastsOf says how long the disk lasts. */
export function lastsOf(s: System): string {
  const { outlook: o = {}, days = 0 } = s.storage ?? {};
  const n = Math.floor(o.daysLeft ?? 0);
  const all = days === 1 ? "1 day" : `${days} days`;
  switch (o.course) {
    case "DISK_COURSE_FILLING": return n > 3650 ? "more than 10 years left" : n > 1 ? `${n} days left` : n === 1 ? "1 day left" : `${span((o.daysLeft ?? 0) * 86400e3)} left`;
    case "DISK_COURSE_SUFFICIENT": return "room for all days that are to be kept";
    case "DISK_COURSE_FULL": return `full history kept: ${all}, oldest deleted first`;
    default: return "days left not known yet";
  }
}

/** troublesOf lists what needs a person, each with what to do. */
export function troublesOf(s: System): string[] {
  const st = s.storage ?? {};
  const list: string[] = [];
  if (s.load?.message) list.push(s.load.message);
  if (st.pressure === "DISK_PRESSURE_WARN") list.push("The disk is nearly full, and no old days are left that could be deleted. Free space on it.");
  if (st.pressure === "DISK_PRESSURE_SHED_SNAPSHOTS") list.push("The disk is full: no pictures and clips are kept. Free space on it.");
  if (st.pressure === "DISK_PRESSURE_SHED_DETECTIONS") list.push("The disk is full: no detections are kept, tracks and events still are. Free space on it now.");
  if (st.damaged?.length) list.push(`${st.damaged.length} damaged files were set aside in the data folder's damaged folder: restore a backup, or keep them for a look.`);
  if (Number(st.commitErrors ?? 0)) list.push(`${st.commitErrors ?? 0} commits failed since the start and were tried again: look at the disk's health.`);
  return list;
}

const severities: Record<string, [string, 0 | 1 | 2]> = { SEVERITY_OK: ["well", 0], SEVERITY_WARNING: ["look at it", 1], SEVERITY_ERROR: ["mend it", 2] };

/** doctorPart is the doctor's checklist, and what to send with a report of a fault. */
function doctorPart(): HTMLElement {
  const body = el("tbody");
  const again = el("button", { onclick: () => void load() }, "Check again");
  const load = async (): Promise<void> => {
    fill(body, nothing(4, "Looking …"));
    again.disabled = true;
    try {
      const { findings = [] } = await ask<{ findings?: Finding[] }>("GET", "/v1/system/findings");
      const worst = (f: Finding): number => severities[f.severity ?? ""]?.[1] ?? 2;
      fill(body, ...findings.toSorted((a, b) => worst(b) - worst(a)).map((f) => {
        const [word, bad] = severities[f.severity ?? ""] ?? ["?", 2];
        return el("tr", { "data-check": f.check }, el("td", {}, el("span", { class: `badge bad${bad}` }, word)), el("td", {}, (f.check ?? "").replaceAll("-", " ")), el("td", { class: "said" }, f.message ?? ""), el("td", { class: "said" }, f.advice || "–"));
      }));
    } catch (e) {
      fill(body, nothing(4, (e as Refusal).message));
    }
    again.disabled = false;
  };
  void load();
  return el("section", { class: "panel" }, el("h2", {}, explained("Checklist", "What vedette doctor looks at on the box: limits, processor, clock, disk, programs, libraries and models")),
    table("Checklist", [["", ""], ["Check", ""], ["Found", ""], ["What to do", ""]], body),
    el("p", { class: "buttons" }, again, el("a", { class: "button", href: "/v1/system/support-bundle.tar.gz", download: "vedette-support.tar.gz" }, "Download a support bundle")),
    el("p", { class: "meaning" }, "The bundle is what a report of a fault needs: this checklist, versions, states, metrics and the newest log, without passwords, keys, tokens and pictures. Read it before you send it."));
}

/** partsOf are the models, and the sinks with what waits for them, in short; each has a screen of its own. */
function partsOf(): { root: HTMLElement; close: () => void } {
  const [models, sinks] = [el("tbody"), el("tbody")];
  const badge = (bad: 0 | 1 | 2, word: string): HTMLElement => el("span", { class: `badge bad${bad}` }, word);
  const told = new Map<HTMLElement, string>();
  const show = (body: HTMLElement, list: { name?: string }[], empty: string, fault: string | undefined, rows: () => HTMLElement[]): void => {
    const key = JSON.stringify(list);
    if (told.get(body) === key) return;
    told.set(body, key);
    const focused = document.activeElement?.closest<HTMLElement>("tr[data-name]")?.dataset.name;
    const refused = /is not for|needs the role/.test(fault ?? "");
    fill(body, ...(refused ? [nothing(4, el("a", { href: "#/signin" }, "Sign in as an admin"), " for all cameras to see this.")] : fault !== undefined ? [nothing(4, fault)] : list.length ? rows() : [nothing(4, empty)]));
    if (focused) body.querySelector<HTMLElement>(`[data-name="${CSS.escape(focused)}"] a`)?.focus({ preventScroll: true });
  };
  fill(models, nothing(3, "Asking …"));
  fill(sinks, nothing(4, "Asking …"));
  const offs = [live.on("models", (list) => show(models, list.map(({ name, version, state, reason }) => ({ name, version, state, reason })), "The model repository is empty.", list.length === 1 && !list[0]!.name ? list[0]!.reason : undefined, () => list.map((m) =>
    el("tr", { "data-name": m.name }, el("td", {}, el("a", { href: "#/models" }, lastPart(m.name))), el("td", {}, m.version ?? "–"),
      el("td", {}, badge(modelBadness[m.state ?? ""] ?? 1, (m.state || "not loaded").toLowerCase())))))),
  live.on("sinks", (list) => show(sinks, list, "Events go nowhere yet but into this box.", list.length === 1 && !list[0]!.name ? list[0]!.status?.message : undefined, () => list.map((s) => {
    const t = s.status ?? {};
    return el("tr", { "data-name": s.name }, el("td", {}, el("a", { href: "#/settings" }, s.displayName || lastPart(s.name))), stateOf(s), el("td", { class: "time" }, t.oldestWaitingTime ? clockTime(millis(t.oldestWaitingTime)) : "nothing waits"), el("td", {}, t.delivered ?? "0"));
  })))];
  live.detail("system");
  const root = el("div", { class: "cards two" },
    el("section", { class: "panel" }, el("h2", {}, el("a", { href: "#/models" }, "Models")), table("Models", [["Model", ""], ["Version", ""], ["State", ""]], models)),
    el("section", { class: "panel" }, el("h2", {}, el("a", { href: "#/settings" }, "Sinks")), table("Sinks", [["Sink", "Where events go besides this box"], ["State", ""], ["Waiting since", "Time of the oldest event that is not delivered yet"], ["Delivered", "Events since the appliance started"]], sinks)));
  return { root, close: () => {
    offs.forEach((o) => o());
    live.detail("");
  } };
}

export function systemScreen(main: HTMLElement): () => void {
  const body = el("tbody");
  const head = el("p", { class: "lead" });
  const parts = partsOf();
  const facts = new Facts("facts wide");
  const fps = (v: number): string => `${v.toFixed(v < 10 ? 1 : 0)} fps`;
  const plots = {
    cpu: new Plot("Processor", "Busy share of all processors together, and what each process takes of it", (v) => `${v.toFixed(0)} %`),
    memory: new Plot("Memory", "What each process holds in memory (resident set)", bytes),
    analysed: new Plot("Analysed pictures", "Pictures a second that went through the pipeline, by camera (the eight busiest)", fps),
    dropped: new Plot("Pictures not analysed", "Pictures a second that were left out, by camera; the camera's page says why", fps),
    stages: new Plot("Time by stage, mean", "How long a picture spends in each stage, mean over all cameras", ms),
    p99: new Plot("Time by stage, 99 of 100", "99 of 100 pictures took at most this, to the next bound of the histogram", ms),
    queue: new Plot("Queues", "Requests that wait in the inference sidecar, and rows that wait to be committed", (v) => v.toFixed(0)),
    disk: new Plot("Disk", "Free space of the file system that holds the data, and what the store takes", bytes),
    gpu: new Plot("GPU", "Busy share of each GPU", (v) => `${v.toFixed(0)} %`, "lines", "No GPU was found on this box, or its driver's library is missing. Models run on the processor."),
  };
  fill(main, el("h1", {}, "System"), head,
    table("Processes", [["Process", ""], ["Job", ""], ["State", ""], ["Processor", "Processors it keeps busy: 100 % is one of them whole"], ["Memory", "Resident set"], ["Goroutines", "Tasks within the process; a number that only grows is a fault to report. vedette-ingest does not tell"], ["Restarts", "Since the appliance started"]], body),
    facts.root, parts.root, may("admin", true) ? doctorPart() : needs("admin", "see the box's checklist and download a support bundle", true), el("h2", {}, "The last half hour"), el("div", { class: "cards" }, ...Object.values(plots).map((p) => p.root)),
    el("p", { class: "meaning" }, "Elsewhere: ", el("a", { href: "/metrics" }, "metrics for Prometheus"), " · ", el("a", { href: "/api" }, "the API, path by path"), " · ", el("a", { href: "#/models" }, "models")));

  let box: BoxSample[] = [];
  let cameras: CameraSample[] = [];
  const draw = (): void => {
    const times = box.map(seconds);
    const line = (label: string, of: (b: BoxSample) => number | undefined): PlotData["series"][number] => ({ label, values: box.map((b) => of(b) ?? null) });
    const names = [...new Set(box.flatMap((b) => (b.processes ?? []).map((p) => p.name)))].sort();
    const order = ["receive", "decode", "queue", "prepare", "infer", "boxes", "track", "commit"];
    const stages = [...new Set(box.flatMap((b) => (b.stages ?? []).map((s) => s.stage)))].sort((a, b) => order.indexOf(a) - order.indexOf(b));
    const gpus = [...new Set(box.flatMap((b) => (b.gpus ?? []).map((g) => g.name)))];
    const stage = (b: BoxSample, name: string) => b.stages?.find((s) => s.stage === name);
    plots.cpu.show({ times, series: [line("box", (b) => 100 * (b.cpu ?? 0)), ...names.map((n) => line(n, (b) => (100 * (b.processes?.find((p) => p.name === n)?.cpu ?? 0)) / (b.processors || 1)))] });
    plots.memory.show({ times, series: names.map((n) => line(n, (b) => Number(b.processes?.find((p) => p.name === n)?.residentBytes ?? 0))) });
    plots.stages.show({ times: stages.length ? times : [], series: stages.map((n) => line(n, (b) => stage(b, n) && 1000 * (stage(b, n)!.meanSeconds ?? 0))) });
    plots.p99.show({ times: stages.length ? times : [], series: stages.map((n) => line(n, (b) => stage(b, n) && 1000 * (stage(b, n)!.p99Seconds ?? 0))) });
    plots.queue.show({ times, series: [line("inference", (b) => (b.pendingRequests === undefined ? undefined : Number(b.pendingRequests))), line("commit", (b) => Number(b.pendingCommits ?? 0))] });
    plots.disk.show({ times, series: [line("free", (b) => Number(b.diskFreeBytes ?? 0)), line("store", (b) => Number(b.storeBytes ?? 0))] });
    plots.gpu.show({ times: gpus.length ? times : [], series: gpus.map((n) => line(n, (b) => 100 * (b.gpus?.find((g) => g.name === n)?.utilization ?? 0))) });
    plots.analysed.show(cameraPlot(cameras, (c) => c.analysedFps));
    plots.dropped.show(cameraPlot(cameras, (c) => c.droppedFps));
  };
  const update = (): void => {
    const s = live.system;
    if (!s) return;
    const now = s.sample ?? { time: "" };
    text(head, `Vedette ${s.version ?? ""}, running for ${span(millis(s.serverTime) - millis(s.startTime))}${s.demo ? "; this is the demonstration: one rendered street as a camera" : ""}.`);
    fill(body, ...(s.processes ?? []).map((p) => {
      const state = words(p.state, "PROCESS_STATE_");
      const spent = now.processes?.find((x) => x.name === p.name);
      return el("tr", {}, el("td", {}, p.name), el("td", { class: "job" }, jobs[p.name] ?? ""),
        el("td", {}, el("span", { class: `badge bad${state === "ready" ? 0 : state === "starting" ? 1 : 2}` }, state), el("small", { class: "why" }, p.message ?? "")),
        el("td", {}, spent ? percent(spent.cpu) : "–"), el("td", {}, spent ? bytes(spent.residentBytes) : "–"), el("td", {}, spent?.goroutines ?? "–"), el("td", {}, p.restarts ?? "0"));
    }), s.processes?.length ? null : nothing(7, "Asking …"));
    const st = s.storage ?? {};
    facts.show([
      ["Processor", `${percent(now.cpu)} of ${now.processors ?? 0}`, "Busy share of all processors together over the last seconds"],
      ["Memory", `${bytes(now.memoryBytes)} of ${bytes(now.memoryTotalBytes)}`, "In use on the whole box"],
      ["Disk", `${bytes(now.diskFreeBytes)} of ${bytes(now.diskTotalBytes)} free`, "Free on the file system that holds the data"],
      ["Store", `${bytes(now.storeBytes)}${st.mediaBytes ? `, ${bytes(st.mediaBytes)} of it pictures and clips` : ""}`, "What tracks, detections, events and their pictures take on disk"],
      ["Disk lasts", lastsOf(s), `Until the oldest day is deleted to make room, at the pace of the last days${st.outlook?.bytesPerDay ? ` (${bytes(st.outlook.bytesPerDay)} a day)` : "; known after an hour"}`],
      ["Database", bytes(Number(st.usedBytes ?? 0) - Number(st.mediaBytes ?? 0) - Number(st.walBytes ?? 0)), "The database files: the catalogue, and one a day"],
      ["Write-ahead log", bytes(st.walBytes), "What was committed and not yet moved into the database files (WAL)"],
      ["Kept", st.days ? `${st.days} ${st.days === 1 ? "day" : "days"}` : "–", "How far back tracks, detections and events go"],
      ["Last commit", st.lastCommitTime ? clockTime(millis(st.lastCommitTime)) : "–", "When what was seen was last written to disk"],
      ["GPU", now.gpus?.length ? now.gpus.map((g) => `${percent(g.utilization)}, ${bytes(g.memoryUsedBytes)} of ${bytes(g.memoryTotalBytes)}`).join("; ") : "none found", "As the inference sidecar sees it"],
      ["Clock", `${span(Math.abs(live.clockOffset))} ${live.clockOffset < 0 ? "behind" : "ahead of"} this browser's`, "The box's clock against this browser's"],
    ]);
    // New samples come with the live stream; the past was asked for once.
    if (now.time && box.length && now.time !== box.at(-1)!.time) {
      box = [...box, now].slice(-360);
      cameras = cameras.concat([...live.cameras.values()].map((c): CameraSample => {
        const before = drops.get(c.name);
        const total = Object.values(c.status?.drops ?? {}).reduce((a, n) => a + Number(n), 0);
        drops.set(c.name, total);
        const since = box.length > 1 ? seconds(now) - seconds(box.at(-2)!) : 5;
        return { camera: c.name, time: now.time, receivedFps: c.status?.receivedFps, analysedFps: c.status?.analysedFps, droppedFps: before === undefined ? 0 : Math.max(0, total - before) / since };
      })).slice(-360 * Math.max(1, live.cameras.size));
      draw();
    }
  };
  const drops = new Map<string, number>();
  update();
  void ask<{ box?: BoxSample[]; cameras?: CameraSample[] }>("GET", "/v1/system/history").then((h) => {
    box = h.box ?? [];
    cameras = h.cameras ?? [];
    draw();
  }, (e: Error) => text(head, e.message));
  const off = live.on("system", update);
  return () => {
    off();
    parts.close();
    Object.values(plots).forEach((p) => p.close());
  };
}
