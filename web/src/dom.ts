// Making elements, and text for people.

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

/** words turns CAMERA_STATE_BACKOFF into "backoff". */
export function words(value: string | undefined, prefix: string): string {
  return (value ?? "").replace(prefix, "").toLowerCase().replaceAll("_", " ");
}

/** lastPart is the id at the end of a resource name. */
export function lastPart(name: string | undefined): string {
  return (name ?? "").split("/").at(-1) ?? "";
}

/** scrollable is a part of the page that moves sideways on a small screen, also by keyboard. */
export function scrollable(label: string, ...children: Child[]): HTMLElement {
  return el("div", { class: "scroll", role: "region", "aria-label": label, tabindex: 0 }, ...children);
}
