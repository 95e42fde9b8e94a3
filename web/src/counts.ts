// How often lines were crossed and zones entered, as plots and as a table to take along.

import { ask, type Count, type Event } from "./api";
import { clockTime, el, fill, gently, lastPart, millis, nothing, table } from "./dom";
import { noCameras } from "./overview";
import { Plot } from "./plot";
import { may, needs } from "./rights";
import { live } from "./state";
import { loadRules } from "./zones";

const spans: { label: string; minutes: number; bucket: number }[] = [
  { label: "last hour, by minute", minutes: 60, bucket: 60 }, { label: "last 6 hours, by 10 minutes", minutes: 360, bucket: 600 },
  { label: "last day, by hour", minutes: 1440, bucket: 3600 }, { label: "last week, by day", minutes: 7 * 1440, bucket: 86400 },
];

const what = (c: Count): string => [c.type === "zone_entered" ? "entered" : c.direction, c.class].filter(Boolean).join(" ");

export function countsScreen(main: HTMLElement, id: string): () => void {
  const camera = el("select", { "aria-label": "Camera", onchange: () => (location.hash = `#/counts/${camera.value}`) });
  const period = el("select", { "aria-label": "Time", onchange: () => void load() }, ...spans.map((s, i) => el("option", { value: i, selected: i === 0 }, s.label)));
  const plots = el("div", { class: "cards" });
  const body = el("tbody");
  const fault = el("p", { class: "answer bad", role: "status" });
  const download = el("a", { class: "button", download: "counts.csv", hidden: true }, "Download as CSV");
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  let drawn: Plot[] = [];
  let counts: Count[] = [];
  /** The newest event that is in counts, by its number; those above it came after what was asked for. */
  let newest = 0;
  /** What came since counts were asked for that are not here yet. */
  let early: Event[] | undefined;
  let asked = 0;
  let rules: { name: string; title: string }[] = [];
  const filters = el("div", { class: "filters" }, camera, period, download, el("a", { class: "button", href: `#/zones/${id}` }, "Zones and lines"), el("span", { class: "meaning" }, `Times in ${zone}`));
  const numbers = el("section", { class: "long" }, el("h2", {}, "In numbers"),
    table("Counts", [["From", "Begin of the bucket"], ["Rule", "Line or zone"], ["What", "Direction of a crossing, and the class"], ["Times", "Objects that crossed or entered in the bucket"]], body));
  fill(main, el("h1", {}, "Counts"), filters, fault, plots, numbers);

  const load = async (): Promise<void> => {
    if (!id) return;
    const { minutes, bucket } = spans[Number(period.value)]!;
    const end = live.now();
    const q = new URLSearchParams({ startTime: new Date(end - minutes * 60000).toISOString(), endTime: new Date(end + 60000).toISOString(), bucket: `${bucket}s`, timeZone: zone });
    const mine = ++asked;
    early = [];
    try {
      const [answer, { zones, lines }] = await Promise.all([ask<{ counts?: Count[]; newestEvent?: string }>("GET", `/v1/cameras/${id}/counts?${q.toString()}`), loadRules(`cameras/${id}`)]);
      if (mine !== asked) return; // another time was chosen meanwhile
      fill(fault);
      newest = Number(answer.newestEvent ?? 0);
      counts = answer.counts ?? [];
      rules = [...lines, ...zones].map((r) => ({ name: r.name, title: r.displayName || lastPart(r.name) }));
      for (const c of counts) if (!rules.some((r) => r.name === c.rule)) rules.push({ name: c.rule, title: `${lastPart(c.rule)} (deleted)` });
      const since = early ?? [];
      early = undefined;
      since.forEach(count);
      draw();
    } catch (e) {
      if (mine !== asked) return;
      early = undefined;
      fill(fault, (e as Error).message);
    }
  };
  /** count adds what the live stream tells to what was asked for, unless that has it. */
  const count = (e: Event): void => {
    if (Number(lastPart(e.name)) <= newest) return;
    const { bucket } = spans[Number(period.value)]!;
    const rule = e.attributes?.line ?? e.attributes?.zone;
    const known = counts[0];
    if (!known || !rules.some((r) => r.name === rule)) return soon();
    const phase = millis(known.startTime) % (1000 * bucket);
    const at = Math.floor((millis(e.time) - phase) / (1000 * bucket)) * 1000 * bucket + phase;
    const same = counts.find((c) => millis(c.startTime) === at && c.rule === rule && c.type === e.type && (c.class ?? "") === (e.attributes?.class ?? "") && (c.direction ?? "") === (e.attributes?.direction ?? ""));
    if (same) same.count = String(Number(same.count) + 1);
    else counts.push({ rule: rule!, type: e.type, class: e.attributes?.class, direction: e.attributes?.direction, startTime: new Date(at).toISOString(), count: "1" });
    drawSoon();
  };
  const draw = (): void => {
    const { minutes, bucket } = spans[Number(period.value)]!;
    const [from, to] = [live.now() - minutes * 60000, live.now()];
    counts = counts.filter((c) => millis(c.startTime) > from - 1000 * bucket);
    const titles = new Map(rules.map((r) => [r.name, r.title]));
    const times: number[] = [];
    // Buckets begin where the API's do: the ones it returns, and the empty ones between them.
    const phase = counts[0] ? (millis(counts[0].startTime) / 1000) % bucket : 0;
    for (let t = Math.floor((from / 1000 - phase) / bucket) * bucket + phase; t < to / 1000; t += bucket) times.push(t);
    drawn.forEach((p) => p.close());
    drawn = [];
    fill(plots, ...rules.map((r) => {
      const mine = counts.filter((c) => c.rule === r.name);
      const labels = [...new Set(mine.map(what))].sort();
      const p = new Plot(r.title, r.name.includes("/lines/") ? "Objects that crossed the line, by direction and class" : "Objects that entered the zone, by class", (v) => `${Math.round(v)}×`, "bars", "Nothing counted in that time.");
      drawn.push(p);
      p.show({
        times: labels.length ? times : [],
        series: labels.map((label) => ({ label, values: times.map((t) => mine.filter((c) => what(c) === label && Math.abs(millis(c.startTime) / 1000 - t) < bucket / 2).reduce((n, c) => n + Number(c.count), 0)) })),
      });
      return p.root;
    }));
    if (!rules.length) fill(plots, el("div", { class: "welcome" }, el("h2", {}, "Nothing is counted on this camera yet"), ...(may("admin") ? [el("p", {}, "Draw a line where objects pass, or a zone they enter; counting begins with the next picture."), el("a", { class: "button main", href: `#/zones/${id}` }, "Draw a line or zone")] : [needs("admin", "draw a line or zone to count at")])));
    numbers.hidden = !rules.length;
    const newest = counts.toSorted((a, b) => millis(b.startTime) - millis(a.startTime));
    fill(body, ...(newest.length ? newest.map((c) => el("tr", {}, el("td", { class: "time" }, clockTime(millis(c.startTime))), el("td", {}, titles.get(c.rule) ?? lastPart(c.rule)), el("td", {}, what(c)), el("td", {}, c.count))) : [nothing(4, "Nothing was counted in that time. Choose a longer one, or look whether the rule is where objects pass.")]));
    const rows = [["start", "rule", "type", "direction", "class", "count"], ...counts.map((c) => [c.startTime, c.rule, c.type, c.direction ?? "", c.class ?? "", c.count])];
    if (download.href) URL.revokeObjectURL(download.href);
    download.href = URL.createObjectURL(new Blob([rows.map((r) => r.map((v) => (/[",\n]/.test(v) ? `"${v.replaceAll('"', '""')}"` : v)).join(",")).join("\n") + "\n"], { type: "text/csv" }));
    download.hidden = counts.length === 0;
  };
  const drawSoon = gently(draw);
  const soon = gently(() => void load());
  const cameras = (): void => {
    const all = [...live.cameras.keys()].map(lastPart).sort();
    if (!id && all[0]) return void choose(all);
    filters.hidden = numbers.hidden = !id;
    if (!all.length && live.synced) fill(plots, noCameras());
    if ([...camera.options].map((o) => o.value).join() !== all.join()) fill(camera, ...all.map((c) => el("option", { value: c, selected: c === id }, live.title(`cameras/${c}`))));
  };
  let chosen = false;
  /** choose goes to a camera that counts something, when none was named. */
  const choose = async (all: string[]): Promise<void> => {
    if (chosen) return;
    chosen = true;
    const counting = await loadRules("cameras/-").then(({ zones, lines }) => [...lines, ...zones].map((r) => r.name.split("/")[1]!), (): string[] => []);
    if (!left) location.replace(`#/counts/${all.find((c) => counting.includes(c)) ?? all[0]!}`);
  };
  let left = false;
  cameras();
  void load();
  const offs = [live.on("cameras", cameras), live.on("events", (e) => {
    if (!e) soon();
    else if (e.camera === `cameras/${id}` && ["line_crossed", "zone_entered"].includes(e.type)) {
      early?.push(e);
      count(e);
    }
  })];
  return () => {
    left = true;
    offs.forEach((off) => off());
    drawn.forEach((p) => p.close());
  };
}
