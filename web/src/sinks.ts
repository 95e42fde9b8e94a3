// Where events go besides this box: sinks, and how their delivery goes.

import { ask, type Refusal, type Sink } from "./api";
import { clockTime, el, eventTypes, excuse, explained, fill, lastPart, millis, nothing, span, table, words } from "./dom";
import { attempt, note } from "./notes";
import { live } from "./state";

type Kind = "mqtt" | "webhook" | "nats" | "kafka";
type Target = Record<string, unknown>;

interface Field { key: string; label: string; hint: string; required?: boolean; check?: boolean; list?: boolean; long?: boolean }

/** What each kind of sink is told; the API checks it. */
const kinds: Record<Kind, { label: string; secret: string; fields: Field[] }> = {
  mqtt: { label: "MQTT 5 broker", secret: "Password of the user", fields: [
    { key: "uri", label: "Address", hint: "mqtt://192.0.2.5:1883, or mqtts:// for TLS", required: true },
    { key: "username", label: "User", hint: "Empty: none." },
    { key: "topicPrefix", label: "Topics begin with", hint: "Empty: vedette. Events go to …/camera/events/type." },
    { key: "homeAssistant", label: "Announce cameras and zones to Home Assistant", hint: "", check: true },
    { key: "onvif", label: "Send events as ONVIF Profile M has them", hint: "", check: true },
  ] },
  webhook: { label: "Webhook", secret: "Key that signs each request", fields: [
    { key: "uri", label: "Address", hint: "https://example.com/events; up to 100 events are posted at a time.", required: true },
    { key: "template", label: "Body, as a Go template", hint: "Empty: JSON {\"events\": […]}. With one, a request an event: {{.camera}}, {{.type}}, {{json .attributes}}.", long: true },
    { key: "contentType", label: "Content type of that body", hint: "Empty: application/json." },
  ] },
  nats: { label: "NATS JetStream", secret: "Password of the user, or the token", fields: [
    { key: "uri", label: "Address", hint: "nats://192.0.2.5:4222, or tls://; several servers separated by commas.", required: true },
    { key: "username", label: "User", hint: "Empty: the secret is a token." },
    { key: "subjectPrefix", label: "Subjects begin with", hint: "Empty: vedette.events." },
    { key: "stream", label: "Stream to create", hint: "When none takes the subjects; empty: somebody else creates it." },
  ] },
  kafka: { label: "Kafka", secret: "Password of the user", fields: [
    { key: "brokers", label: "Brokers", hint: "192.0.2.5:9092; several separated by commas.", required: true, list: true },
    { key: "topic", label: "Topic", hint: "", required: true },
    { key: "username", label: "User", hint: "Empty: no SASL." },
    { key: "tls", label: "By TLS", hint: "", check: true },
  ] },
};

const kindOf = (s: Sink): Kind => (Object.keys(kinds) as Kind[]).find((k) => s[k]) ?? "webhook";
const address = (s: Sink): string => s.mqtt?.uri ?? s.webhook?.uri ?? s.nats?.uri ?? s.kafka?.brokers?.join(", ") ?? "?";

/** state is how delivery goes, as a badge with what to know about it. */
export function state(s: Sink): HTMLElement {
  const t = s.status ?? {};
  const word = s.disabled ? "paused" : words(t.state, "DELIVERY_STATE_");
  const next = word === "backoff" && t.nextAttemptTime ? `next attempt in ${span(millis(t.nextAttemptTime) - live.now())}` : "";
  return el("td", {}, el("span", { class: `badge bad${word === "backoff" ? 2 : word === "paused" ? 1 : 0}` }, { idle: "all delivered", backoff: "does not get through" }[word] ?? word),
    Number(t.deadLetters ?? 0) ? el("small", { class: "why" }, `${t.deadLetters} refused for good and set aside`) : null, t.message || next ? el("small", { class: "why" }, [t.message, next].filter(Boolean).join("; ")) : null);
}

export function sinksPart(): { root: HTMLElement; close: () => void } {
  const body = el("tbody");
  const place = el("div");
  const add = el("button", { onclick: () => form() }, "Add a sink");
  let sinks: Sink[] = [];
  const act = (what: Promise<unknown>, done: string): Promise<void> => attempt(what, done, load);
  const remove = (s: Sink): void => {
    if (confirm(`Remove ${lastPart(s.name)}? Events that wait for it are not delivered any more.`)) void act(ask("DELETE", `/v1/${s.name}`), `${lastPart(s.name)}: removed`);
  };
  const form = (s?: Sink): void => {
    const kind = el("select", { disabled: s !== undefined, onchange: () => target() }, ...(Object.keys(kinds) as Kind[]).map((k) => el("option", { value: k, selected: s !== undefined && kindOf(s) === k }, kinds[k].label)));
    const id = el("input", { value: s ? lastPart(s.name) : "", disabled: s !== undefined, required: true, autocomplete: "off", pattern: "[a-z]([a-z0-9\\-]{0,61}[a-z0-9])?", placeholder: "home" });
    const secret = el("input", { type: "password", autocomplete: "new-password", placeholder: s?.secretSet ? "unchanged" : "" });
    const secretHint = el("small");
    const types = eventTypes.concat((s?.types ?? []).filter((t) => !eventTypes.includes(t))).map((t) => el("input", { type: "checkbox", value: t, checked: s?.types?.includes(t) ?? false }));
    const cameras = [...new Set([...live.cameras.keys(), ...(s?.cameras ?? [])])].sort().map((c) => el("input", { type: "checkbox", value: c, checked: s?.cameras?.includes(c) ?? false }));
    const past = el("input", { type: "checkbox" });
    const answer = el("p", { class: "answer bad", role: "status" });
    const fields = el("div");
    const chosen = (): Kind => kind.value as Kind;
    let inputs: [Field, HTMLInputElement | HTMLTextAreaElement][] = [];
    const target = (): void => {
      const { fields: wanted, secret: what } = kinds[chosen()];
      const stored = (s?.[chosen()] ?? {}) as Target;
      inputs = wanted.map((f) => {
        const value = f.list ? ((stored[f.key] as string[] | undefined) ?? []).join(", ") : String(stored[f.key] ?? "");
        if (f.check) return [f, el("input", { type: "checkbox", checked: stored[f.key] === true })];
        if (!f.long) return [f, el("input", { value, required: f.required, autocomplete: "off", spellcheck: "false" })];
        return [f, el("textarea", { rows: 3, spellcheck: "false" }, value)];
      });
      fill(fields, ...inputs.map(([f, input]) => (f.check ? el("label", { class: "check" }, input, f.label) : el("label", { class: "field" }, el("span", {}, f.label), input, f.hint ? el("small", {}, f.hint) : null))));
      fill(secretHint, `${what}; it is stored and never shown again.`);
    };
    target();
    const save = async (): Promise<void> => {
      const told = inputs.map(([f, input]): [string, unknown] => [f.key, f.check ? (input as HTMLInputElement).checked : f.list ? input.value.split(",").map((v) => v.trim()).filter(Boolean) : input.value.trim()]);
      const sink = {
        [chosen()]: { ...((s?.[chosen()] ?? {}) as Target), ...Object.fromEntries(told) }, types: types.filter((t) => t.checked).map((t) => t.value),
        cameras: cameras.filter((c) => c.checked).map((c) => c.value), ...(secret.value ? { secret: secret.value } : {}),
      };
      try {
        if (s) await ask("PATCH", `/v1/${s.name}?updateMask=${chosen()},types,cameras${secret.value ? ",secret" : ""}`, { name: s.name, etag: s.etag, ...sink });
        else await ask("POST", `/v1/sinks?sinkId=${encodeURIComponent(id.value)}${past.checked ? "&fromBeginning=true" : ""}`, sink);
        note(`${id.value}: saved`);
        fill(place);
        add.hidden = false;
        await load();
      } catch (e) {
        fill(answer, (e as Error).message);
      }
    };
    const chips = (title: string, boxes: HTMLInputElement[], label: (v: string) => string): HTMLElement => el("fieldset", {}, el("legend", {}, title), el("div", { class: "chips" }, ...boxes.map((b) => el("label", {}, b, label(b.value)))));
    add.hidden = true;
    fill(place, el("form", { class: "person sink", onsubmit: (e) => { e.preventDefault(); void save(); } }, el("h3", {}, s ? `Change ${lastPart(s.name)}` : "Add a sink"),
      el("label", { class: "field" }, el("span", {}, "Kind"), kind), el("label", { class: "field" }, el("span", {}, "Name"), id, el("small", {}, s ? "It never changes." : "a-z, 0-9 and -, beginning with a letter; it never changes later.")),
      fields, el("label", { class: "field" }, el("span", {}, "Secret"), secret, secretHint),
      chips("Events (none chosen: all)", types, (t) => t.replaceAll("_", " ")), cameras.length ? chips("Cameras (none chosen: all)", cameras, lastPart) : null,
      s ? null : el("label", { class: "check" }, past, "Deliver what is stored already too"),
      el("p", { class: "buttons" }, el("button", { class: "main" }, "Save"), el("button", { type: "button", onclick: () => { fill(place); add.hidden = false; } }, "Cancel")), answer));
    (s ? fields.querySelector("input") : kind)?.focus();
  };
  const show = (): void => {
    const focused = document.activeElement?.getAttribute("aria-label");
    fill(body, ...(sinks.length ? sinks.map((s) => {
      const id = lastPart(s.name);
      const only = [...(s.types ?? []).map((t) => t.replaceAll("_", " ")), ...(s.cameras ?? []).map(lastPart)].join(", ");
      return el("tr", { "data-sink": id }, el("td", {}, s.displayName || id, el("small", { class: "why" }, kinds[kindOf(s)].label)), el("td", { class: "address" }, address(s), only ? el("small", { class: "why" }, `only ${only}`) : null), state(s),
        el("td", {}, s.status?.delivered ?? "0"), el("td", { class: Number(s.status?.failures ?? 0) ? "warn" : "" }, s.status?.failures ?? "0"), el("td", { class: "time" }, s.status?.oldestWaitingTime ? clockTime(millis(s.status.oldestWaitingTime)) : "–"),
        el("td", { class: "buttons" }, Number(s.status?.deadLetters ?? 0) ? el("button", { onclick: () => void act(ask("POST", `/v1/${s.name}/deadLetters:redeliver`, { all: true }), `${id}: what was refused is sent again`), "aria-label": `Send again ${id}` }, "Send again") : null,
          el("button", { onclick: () => form(s), "aria-label": `Change ${id}` }, "Change"),
          el("button", { onclick: () => void act(ask("PATCH", `/v1/${s.name}?updateMask=disabled`, { name: s.name, disabled: !s.disabled }), `${id}: ${s.disabled ? "goes on where it stopped" : "paused; events wait"}`), "aria-label": `${s.disabled ? "Resume" : "Pause"} ${id}` }, s.disabled ? "Resume" : "Pause"),
          el("button", { onclick: () => remove(s), "aria-label": `Remove ${id}` }, "Remove")));
    }) : [nothing(7, "Events go nowhere yet but into this box. Add a sink, and MQTT, a webhook, NATS or Kafka receives them.")]));
    if (focused) body.querySelector<HTMLElement>(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  };
  const load = async (): Promise<void> => {
    try {
      ({ sinks = [] } = await ask<{ sinks?: Sink[] }>("GET", "/v1/sinks?pageSize=1000"));
      show();
      live.detail("sinks"); // how delivery goes comes with the live stream
    } catch (e) {
      add.hidden = true;
      fill(body, excuse(7, "Where events go")(e as Refusal));
    }
  };
  let shown = "";
  const off = live.on("sinks", (list) => {
    const key = JSON.stringify(list);
    if (key === shown || list.some((s) => !s.name)) return;
    shown = key;
    sinks = list;
    show();
  });
  void load();
  const root = el("section", { class: "panel" }, el("h2", {}, explained("Where events go", "Sinks: every event is delivered at least once, in order, and waits on disk while the receiver is away")),
    table("Sinks", [["Sink", ""], ["Target", "Without credentials"], ["State", ""], ["Delivered", "Events since the appliance started"], ["Failures", "Attempts that failed since the appliance started"], ["Waiting since", "Time of the oldest event that is not delivered"], ["", ""]], body),
    el("p", { class: "buttons" }, add), place);
  return { root, close: () => {
    off();
    live.detail("");
  } };
}
