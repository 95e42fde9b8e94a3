// What holds for the whole box: this browser's session, who may use the API, where events go.

import { ask, type Refusal } from "./api";
import { clockTime, el, fill, lastPart, millis, nothing, table, words } from "./dom";
import { note } from "./notes";
import { live } from "./state";

interface Sink { name: string; displayName?: string; mqtt?: { uri?: string }; webhook?: { uri?: string }; nats?: { uri?: string }; kafka?: { brokers?: string[] }; disabled?: boolean; status?: { state?: string; message?: string; delivered?: string; failures?: string; oldestWaitingTime?: string } }

export function settingsScreen(main: HTMLElement): () => void {
  const sinks = el("tbody");
  const about = el("p", { class: "lead" });
  const signOut = async (): Promise<void> => {
    await ask("DELETE", "/session");
    note("Signed out.");
    live.connect();
    location.hash = "#/signin";
  };
  fill(main, el("h1", {}, "Settings"), about,
    el("section", { class: "panel" }, el("h2", {}, "This browser"), el("p", {}, "To change cameras, zones or models, sign in with a token that may do so. A token stays in a cookie that scripts cannot read."),
      el("p", { class: "buttons" }, el("a", { class: "button main", href: "#/signin" }, "Sign in"), el("button", { onclick: () => void signOut().catch((e: Error) => note(e.message, true)) }, "Sign out"))),
    el("section", { class: "panel" }, el("h2", {}, "Where events go"), table("Sinks", [["Sink", ""], ["Target", "Without credentials"], ["State", ""], ["Delivered", "Events since the appliance started"], ["Failures", "Attempts that failed since the appliance started"], ["Waiting since", "Time of the oldest event that is not delivered"]], sinks),
      el("p", { class: "meaning" }, "Add one with: vedette sink add --help")));
  const told = (): void => fill(about, `Vedette ${live.system?.version ?? ""}. Times are shown in ${Intl.DateTimeFormat().resolvedOptions().timeZone}, the time zone of this browser.`);
  told();
  void ask<{ sinks?: Sink[] }>("GET", "/v1/sinks").then(({ sinks: list = [] }) => fill(sinks, ...(list.length ? list.map((s) => el("tr", {}, el("td", {}, s.displayName || lastPart(s.name)), el("td", { class: "address" }, s.mqtt?.uri ?? s.webhook?.uri ?? s.nats?.uri ?? s.kafka?.brokers?.join(", ") ?? "?"),
    el("td", {}, words(s.status?.state, "DELIVERY_STATE_"), el("small", { class: "why" }, s.status?.message ?? "")), el("td", {}, s.status?.delivered ?? "0"), el("td", {}, s.status?.failures ?? "0"), el("td", { class: "time" }, s.status?.oldestWaitingTime ? clockTime(millis(s.status.oldestWaitingTime)) : "–"))) : [nothing(6, "Events go nowhere yet but into this box. MQTT, webhooks, NATS and Kafka can receive them.")])),
  (e: Refusal) => fill(sinks, nothing(6, e.status === 403 || e.status === 401 ? "Sign in as an admin to see where events go." : e.message)));
  return live.on("system", told);
}
