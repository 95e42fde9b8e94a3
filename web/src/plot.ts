// Plots over time, with uPlot.

import uPlot from "uplot";
import { el, fill } from "./dom";

export interface Series { label: string; values: (number | null)[] }
export interface PlotData { times: number[]; series: Series[] }

/** Colours that people with any colour vision can tell apart, on light and on dark ground (after Okabe and Ito). */
const colours = ["#3987d8", "#d97a12", "#159b72", "#b765b0", "#c9a500", "#d1495b", "#5b6ee1", "#6f7d8c", "#7ab8f0", "#f0b070", "#5fd3ac", "#dba3d6"];

const read = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Plot is a figure with a title, its meaning, a plot and what the newest values are, for those who see no plot. */
export class Plot {
  readonly root: HTMLElement;
  private readonly place = el("div", { class: "plot" });
  private readonly told = el("figcaption", { class: "told" });
  private plot: uPlot | undefined;
  private data: PlotData | undefined;
  private readonly sizes = new ResizeObserver(() => this.resize());
  private readonly dark = matchMedia("(prefers-color-scheme: dark)");
  private readonly repaint = (): void => {
    if (this.data) this.rebuild(this.data);
  };

  constructor(title: string, meaning: string, private readonly unit: (v: number) => string, private readonly kind: "lines" | "bars" = "lines", private readonly empty = "No sample yet.") {
    this.root = el("figure", { class: "panel figure" }, el("h3", {}, title), el("p", { class: "meaning" }, meaning), this.place, this.told);
    this.sizes.observe(this.place);
    this.dark.addEventListener("change", this.repaint);
  }

  /** show draws data: times in seconds, values where there is one. */
  show(data: PlotData): void {
    const same = this.plot && this.data && this.data.series.map((s) => s.label).join("\n") === data.series.map((s) => s.label).join("\n");
    this.data = data;
    if (data.times.length === 0) {
      this.plot?.destroy();
      this.plot = undefined;
      fill(this.place, el("p", { class: "empty" }, this.empty));
      fill(this.told);
      return;
    }
    if (same) this.plot!.setData(this.columns(data));
    else this.rebuild(data);
    const last = (s: Series): number | null => s.values.findLast((v) => v !== null) ?? null;
    const sum = (s: Series): number => s.values.reduce<number>((a, v) => a + (v ?? 0), 0);
    fill(this.told, ...data.series.map((s, i) => {
      const v = this.kind === "bars" ? sum(s) : last(s);
      const key = el("span", { class: "dot" });
      key.style.background = colours[i % colours.length]!;
      return el("span", { class: "key" }, key, `${s.label} `, el("b", {}, v === null ? "–" : this.unit(v)));
    }));
  }

  close(): void {
    this.sizes.disconnect();
    this.dark.removeEventListener("change", this.repaint);
    this.plot?.destroy();
  }

  /** columns are the values to draw; bars stand on each other, so that all of them together are the sum. */
  private columns(data: PlotData): uPlot.AlignedData {
    if (this.kind === "lines") return [data.times, ...data.series.map((s) => s.values)] as uPlot.AlignedData;
    const below = data.times.map(() => 0);
    return [data.times, ...data.series.map((s) => s.values.map((v, i) => (below[i]! += v ?? 0))).reverse()] as uPlot.AlignedData;
  }

  private rebuild(data: PlotData): void {
    this.plot?.destroy();
    fill(this.place);
    const ink = read("--quiet");
    const grid = { stroke: read("--line"), width: 1 };
    const bars = uPlot.paths.bars!({ size: [0.8, 60] });
    const axis: uPlot.Axis = { stroke: ink, grid, ticks: grid, font: "12px system-ui" };
    this.plot = new uPlot({
      width: Math.max(120, this.place.clientWidth), height: 170, legend: { show: false }, cursor: { y: false, drag: { x: false, y: false } },
      scales: { ...(this.kind === "bars" ? { x: { range: this.whole } } : {}), y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: [{ ...axis, values: this.clock }, { ...axis, size: 64, values: (_u, ticks) => ticks.map((v) => this.unit(v)) }],
      // The highest bar comes first, so that those of the sums below it are drawn over it.
      series: [{}, ...data.series.map((s, i): uPlot.Series => ({
        label: s.label, stroke: colours[i % colours.length]!, width: 2, points: { show: data.times.length < 3 },
        ...(this.kind === "bars" ? { fill: colours[i % colours.length]!, width: 0, paths: bars, points: { show: false } } : {}),
      }))[this.kind === "bars" ? "reverse" : "slice"]()],
    }, this.columns(data), this.place);
    const canvas = this.place.querySelector("canvas");
    canvas?.setAttribute("role", "img");
    canvas?.setAttribute("aria-label", "Plot; its newest values stand below it");
  }

  /** whole leaves room for the first and the last bar, which stand around their time. */
  private readonly whole = (_u: uPlot, min: number, max: number): [number, number] => {
    const [first = 0, second = first] = this.data?.times ?? [];
    return [min - (second - first) / 2, max + (second - first) / 2];
  };

  private readonly clock = (_u: uPlot, ticks: number[]): string[] => ticks.map((t) => {
    const d = new Date(t * 1000);
    const whole = ticks.at(-1)! - ticks[0]!;
    return d.toLocaleString(undefined, whole > 86400 ? { day: "numeric", month: "short", hour: "2-digit", hourCycle: "h23" } : { hour: "2-digit", minute: "2-digit", ...(whole < 300 ? { second: "2-digit" } : {}), hourCycle: "h23" });
  });

  private resize(): void {
    const width = this.place.clientWidth;
    if (this.plot && width > 0 && Math.abs(this.plot.width - width) > 1) this.plot.setSize({ width, height: 170 });
  }
}
