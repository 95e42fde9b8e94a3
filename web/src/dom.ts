// Making elements, and text for people.

import type { Refusal } from "./api";

type Child = Node | string | number | null | undefined | false;
type Attributes = Record<string, string | number | boolean | EventListener | null | undefined>;

/** el makes an element: attributes by name, listeners by on…; what is null, undefined or false is left out. */
export function el<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") e.addEventListener(name.replace(/^on/, ""), value);
    else e.setAttribute(name, value === true ? "" : String(value));
  }
  fill(e, ...children);
  return e;
}

/** fill replaces what is in an element. */
export function fill(e: Element, ...children: Child[]): void {
  e.replaceChildren(...children.filter((c): c is Node | string | number => c !== null && c !== undefined && c !== false).map((c) => (c instanceof Node ? c : String(c))));
}

/** text sets an element's text only when it differs, so that a screen reader is not told twice. */
export function text(e: Element, value: string): void {
  if (e.textContent !== value) e.textContent = value;
}

/** millis parses a time of the API to milliseconds since 1970, keeping what lies below a millisecond. */
export function millis(time: string | undefined): number {
  if (!time) return NaN;
  const whole = Date.parse(time.replace(/\.\d+/, ""));
  const fraction = /\.(\d+)/.exec(time)?.[1];
  return whole + (fraction ? Number("0." + fraction) * 1000 : 0);
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

/** clockTime is a time of day; with the date when it is not today's. */
export function clockTime(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  const d = new Date(ms);
  return d.toDateString() === new Date().toDateString() ? clock.format(d) : `${day.format(d)} ${clock.format(d)}`;
}

/** span is a duration in the two units that matter. */
export function span(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  const s = Math.max(0, ms) / 1000;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** seconds parses a duration of the API ("0.300s"). */
export function seconds(duration: string | undefined): number {
  return duration ? Number(duration.replace(/s$/, "")) : 0;
}

/** bytes is a size in the unit that fits. */
export function bytes(n: number | string | undefined): string {
  let v = Number(n ?? 0);
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (v < 1000) return `${v.toFixed(unit === "B" || v >= 100 ? 0 : 1)} ${unit}`;
    v /= 1000;
  }
  return `${v.toFixed(1)} TB`;
}

/** ms is a time in milliseconds, with a digit after the point when it is short; in seconds when it is long. */
export function ms(value: number): string {
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  return `${value.toFixed(value < 10 ? 1 : 0)} ms`;
}

/** percent of a share. */
export const percent = (share: number | undefined): string => `${(100 * (share ?? 0)).toFixed(0)} %`;

/** gently calls what is expensive once for many changes within a quarter of a second. */
export function gently(what: () => void): () => void {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    setTimeout(() => {
      due = false;
      what();
    }, 250);
  };
}

/** words turns CAMERA_STATE_BACKOFF into "backoff". */
export function words(value: string | undefined, prefix: string): string {
  return (value ?? "").replace(prefix, "").toLowerCase().replaceAll("_", " ");
}

/** lastPart is the id at the end of a resource name. */
export function lastPart(name: string | undefined): string {
  return (name ?? "").split("/").at(-1) ?? "";
}

/** explained is a word with its meaning, for mouse, keyboard and screen reader alike. */
export function explained(word: string, meaning: string): HTMLElement {
  return el("abbr", { title: meaning, tabindex: 0 }, word);
}

/** Facts are terms with their values. What is there already stays the same element, so that it keeps the focus. */
export class Facts {
  readonly root: HTMLElement;
  private readonly entries = new Map<string, { pair: HTMLElement; value: HTMLElement }>();

  constructor(style = "facts") {
    this.root = el("dl", { class: style });
  }

  /** show takes [term, value, meaning]. */
  show(list: [string, string, string][]): void {
    const pairs = list.map(([term, value, meaning]) => {
      let e = this.entries.get(term);
      if (!e) {
        const dd = el("dd");
        e = { pair: el("div", {}, el("dt", {}, explained(term, meaning)), dd), value: dd };
        this.entries.set(term, e);
      }
      text(e.value, value);
      return e.pair;
    });
    if (pairs.length !== this.root.childElementCount || pairs.some((p, i) => p !== this.root.children[i])) this.root.replaceChildren(...pairs);
  }
}

/** table makes a table; heads are [text, meaning]. A list has rows that stand by themselves on a small screen. */
export function table(label: string, heads: [string, string][], body: HTMLElement, list = false): HTMLElement {
  return scrollable(label, el("table", { class: list && "list" }, el("thead", {}, el("tr", {}, ...heads.map(([h, meaning]) => el("th", { scope: "col" }, meaning ? explained(h, meaning) : h)))), body));
}

/** nothing is a row that says why a table is empty, and what to do. */
export function nothing(columns: number, ...children: Child[]): HTMLElement {
  return el("tr", {}, el("td", { colspan: columns, class: "empty" }, ...children));
}

/** scrollable is a part of the page that moves sideways on a small screen, also by keyboard. */
export function scrollable(label: string, ...children: Child[]): HTMLElement {
  return el("div", { class: "scroll", role: "region", "aria-label": label, tabindex: 0 }, ...children);
}

/** excuse says in a table why it is empty: mostly that one must sign in. */
export const excuse = (columns: number, what: string) => (e: Refusal): HTMLElement =>
  nothing(columns, ...(e.status === 403 || e.status === 401 ? [`${what} is for admins. `, el("a", { href: "#/signin" }, "Sign in as one"), "."] : [e.message]));

/** eventTypes are those the box tells of. */
export const eventTypes = ["line_crossed", "zone_entered", "zone_left", "zone_dwell", "zone_loitering", "zone_occupied", "zone_cleared", "camera_state", "gap", "sequence_opened", "sequence_closed", "clock_step"];

/** noCamera is a screen of a camera that is not there. */
export const noCamera = (id: string): HTMLElement =>
  el("div", { class: "welcome" }, el("h1", {}, `There is no camera ${id}`), el("p", {}, "It was removed, or you may not see it."), el("a", { class: "button", href: "#/cameras" }, "All cameras"));
