// What holds for the whole box: this browser's session, who may use it, what was changed, backups, where events go.

import { ask, type Refusal, type Session } from "./api";
import { bytes, clockTime, el, excuse, explained, fill, lastPart, millis, nothing, table, words } from "./dom";
import { attempt, note } from "./notes";
import { may, needs, who } from "./rights";
import { sinksPart } from "./sinks";
import { live } from "./state";

interface User { name: string; role?: string; cameras?: string[]; disabled?: boolean; createTime?: string }
interface Token { name: string; user?: string; role?: string; cameras?: string[]; createTime?: string; expireTime?: string; useTime?: string }
interface Entry { name: string; time: string; actor?: string; peer?: string; method?: string; resource?: string; outcome?: string; request?: string }
interface Backup { name: string; createTime?: string; path?: string; bytes?: string; files?: number }

const roles: [string, string][] = [["viewer", "looks"], ["operator", "looks, and switches cameras on and off"], ["admin", "everything"]];

function sessionPart(): HTMLElement {
  const answer = el("p", { class: "answer", role: "status" });
  const old = el("input", { type: "password", autocomplete: "current-password" });
  const fresh = el("input", { type: "password", autocomplete: "new-password", minlength: 10 });
  const change = el("form", { hidden: true, onsubmit: (e) => {
    e.preventDefault();
    void ask("POST", "/v1/session:changePassword", { password: old.value, newPassword: fresh.value }).then(() => {
      old.value = fresh.value = "";
      answer.className = "answer good";
      fill(answer, "Changed. Your other sessions have ended.");
    }, (r: Refusal) => {
      answer.className = "answer bad";
      fill(answer, r.message);
    });
  } }, el("h3", {}, "Change the password"), el("label", { class: "field" }, el("span", {}, "Password now"), old), el("label", { class: "field" }, el("span", {}, "New password"), fresh, el("small", {}, "10 to 256 characters.")), el("p", { class: "buttons" }, el("button", {}, "Change")), answer);
  const signOut = async (): Promise<void> => {
    await ask("DELETE", "/session");
    note("Signed out.");
    live.connect();
    location.hash = "#/signin";
  };
  const s: Session = live.session ?? {};
  change.hidden = !s.user;
  return el("section", { class: "panel" }, el("h2", {}, "This browser"), el("p", {}, `You are ${who()}${s.expireTime ? `, signed in until ${clockTime(millis(s.expireTime))}` : ""}.`),
    el("p", { class: "buttons" }, el("a", { class: "button main", href: "#/signin" }, s.user ? "Sign in as somebody else" : "Sign in"), el("button", { onclick: () => void signOut().catch((e: Error) => note(e.message, true)) }, "Sign out")), change);
}

function usersPart(): HTMLElement {
  const body = el("tbody");
  const place = el("div");
  const act = (what: Promise<unknown>, done: string): Promise<void> => attempt(what, done, load);
  const remove = (u: User): void => {
    if (confirm(`Remove ${lastPart(u.name)}? Their sessions and open streams end at once.`)) void act(ask("DELETE", `/v1/${u.name}`), `${lastPart(u.name)}: removed`);
  };
  const form = (u?: User): void => {
    const name = el("input", { value: u ? lastPart(u.name) : "", disabled: u !== undefined, required: true, autocomplete: "off", pattern: "[a-z0-9._@\\-]{1,64}" });
    const password = el("input", { type: "password", autocomplete: "new-password", minlength: 10, required: u === undefined });
    const role = el("select", {}, ...roles.map(([r, what]) => el("option", { value: r, selected: u?.role === r }, `${r}: ${what}`)));
    const cameras = [...live.cameras.keys()].sort().map((c) => el("input", { type: "checkbox", value: c, checked: u?.cameras?.includes(c) ?? false }));
    const answer = el("p", { class: "answer bad", role: "status" });
    const save = async (): Promise<void> => {
      const user = { role: role.value, cameras: cameras.filter((c) => c.checked).map((c) => c.value), ...(password.value ? { password: password.value } : {}) };
      try {
        if (u) await ask("PATCH", `/v1/${u.name}?updateMask=role,cameras${password.value ? ",password" : ""}`, { name: u.name, ...user });
        else await ask("POST", `/v1/users?userId=${encodeURIComponent(name.value)}`, user);
        note(`${name.value}: saved`);
        fill(place);
        await load();
      } catch (e) {
        fill(answer, (e as Error).message);
      }
    };
    fill(place, el("form", { class: "person", onsubmit: (e) => { e.preventDefault(); void save(); } }, el("h3", {}, u ? `Change ${lastPart(u.name)}` : "Add a person"),
      el("label", { class: "field" }, el("span", {}, "Name"), name), el("label", { class: "field" }, el("span", {}, "Password"), password, el("small", {}, u ? "10 to 256 characters; empty: as it is." : "10 to 256 characters.")), el("label", { class: "field" }, el("span", {}, "May"), role),
      el("fieldset", {}, el("legend", {}, "Cameras (none chosen: all)"), el("div", { class: "chips" }, ...cameras.map((c) => el("label", {}, c, lastPart(c.value))))),
      el("p", { class: "buttons" }, el("button", { class: "main" }, "Save"), el("button", { type: "button", onclick: () => fill(place) }, "Cancel")), answer));
    (u ? password : name).focus();
  };
  const load = async (): Promise<void> => {
    try {
      const { users = [] } = await ask<{ users?: User[] }>("GET", "/v1/users");
      fill(body, ...(users.length ? users.map((u) => el("tr", { "data-user": lastPart(u.name) }, el("td", {}, lastPart(u.name)), el("td", {}, u.role ?? ""), el("td", {}, u.cameras?.length ? u.cameras.map(lastPart).join(", ") : "all"), el("td", {}, u.disabled ? "not let in" : "let in"),
        el("td", { class: "buttons" }, el("button", { onclick: () => form(u), "aria-label": `Change ${lastPart(u.name)}` }, "Change"),
          el("button", { onclick: () => void act(ask("PATCH", `/v1/${u.name}?updateMask=disabled`, { name: u.name, role: u.role, disabled: !u.disabled }), `${lastPart(u.name)}: ${u.disabled ? "let in again" : "no longer let in"}`), "aria-label": `${u.disabled ? "Let in" : "Lock out"} ${lastPart(u.name)}` }, u.disabled ? "Let in" : "Lock out"),
          el("button", { onclick: () => remove(u), "aria-label": `Remove ${lastPart(u.name)}` }, "Remove")))) : [nothing(5, "Nobody has a password yet. Programs use tokens: vedette token create --help")]));
    } catch (e) {
      fill(body, excuse(5, "Who may use the box")(e as Refusal));
    }
  };
  void load();
  return el("section", { class: "panel" }, el("h2", {}, "People"), table("People", [["Name", ""], ["Role", "viewer, operator or admin; each includes the ones before it"], ["Cameras", "Those they may see"], ["State", ""], ["", ""]], body), el("p", { class: "buttons" }, el("button", { onclick: () => form() }, "Add a person")), place);
}

function tokensPart(): HTMLElement {
  const body = el("tbody");
  const place = el("div");
  const revoke = (t: Token): void => {
    if (confirm(`Revoke the token of ${t.user ?? "?"}? Whatever uses it is let in no more, and its open streams end at once.`)) void attempt(ask("DELETE", `/v1/${t.name}`), `The token of ${t.user ?? "?"} is revoked`, load);
  };
  const form = (): void => {
    const user = el("input", { required: true, autocomplete: "off", maxlength: 128 });
    const role = el("select", {}, ...roles.map(([r, what]) => el("option", { value: r }, `${r}: ${what}`)));
    const days = el("input", { type: "number", min: 1, max: 36500, step: 1 });
    const cameras = [...live.cameras.keys()].sort().map((c) => el("input", { type: "checkbox", value: c }));
    const answer = el("p", { class: "answer bad", role: "status" });
    const make = async (): Promise<void> => {
      try {
        const { secret } = await ask<{ secret: string }>("POST", "/v1/tokens", { token: { user: user.value.trim(), role: role.value, cameras: cameras.filter((c) => c.checked).map((c) => c.value) }, ...(days.value ? { ttl: `${Number(days.value) * 86400}s` } : {}) });
        fill(place, el("h3", {}, `The token of ${user.value.trim()}`), el("p", { class: "meaning", role: "status" }, "It is shown this once: put it where it belongs now. Programs send it as “authorization: Bearer TOKEN”."), el("pre", { class: "secret", tabindex: 0, "aria-label": "The new token" }, secret),
          el("p", { class: "buttons" }, el("button", { onclick: () => void navigator.clipboard.writeText(secret).then(() => note("Copied."), () => note("This browser lets only pages by HTTPS copy: select the text instead.", true)) }, "Copy"), el("button", { onclick: () => fill(place) }, "Done")));
        place.querySelector("pre")?.focus();
        await load();
      } catch (e) {
        fill(answer, (e as Error).message);
      }
    };
    fill(place, el("form", { class: "person token", onsubmit: (e) => { e.preventDefault(); void make(); } }, el("h3", {}, "Make a token"),
      el("label", { class: "field" }, el("span", {}, "For"), user, el("small", {}, "The program or person that will use it, such as grafana.")), el("label", { class: "field" }, el("span", {}, "May"), role),
      el("label", { class: "field" }, el("span", {}, "Valid for, days"), days, el("small", {}, "Empty: until it is revoked.")),
      cameras.length ? el("fieldset", {}, el("legend", {}, "Cameras (none chosen: all)"), el("div", { class: "chips" }, ...cameras.map((c) => el("label", {}, c, lastPart(c.value))))) : null,
      el("p", { class: "buttons" }, el("button", { class: "main" }, "Make it"), el("button", { type: "button", onclick: () => fill(place) }, "Cancel")), answer));
    user.focus();
  };
  const load = async (): Promise<void> => {
    try {
      const { tokens = [] } = await ask<{ tokens?: Token[] }>("GET", "/v1/tokens");
      fill(body, ...(tokens.length ? tokens.map((t) => el("tr", { "data-token": t.user }, el("td", {}, t.user ?? "", el("small", { class: "why" }, lastPart(t.name))), el("td", {}, t.role ?? ""), el("td", {}, t.cameras?.length ? t.cameras.map(lastPart).join(", ") : "all"),
        el("td", { class: "time" }, clockTime(millis(t.createTime))), el("td", { class: "time" }, t.useTime ? clockTime(millis(t.useTime)) : "never"), el("td", { class: "time" }, t.expireTime ? clockTime(millis(t.expireTime)) : "never"),
        el("td", { class: "buttons" }, el("button", { onclick: () => revoke(t), "aria-label": `Revoke the token of ${t.user ?? "?"} (${lastPart(t.name)})` }, "Revoke")))) : [nothing(7, "No program has a token. Make one for whatever is to use the API.")]));
    } catch (e) {
      fill(body, excuse(7, "Who may use the API")(e as Refusal));
    }
  };
  void load();
  return el("section", { class: "panel" }, el("h2", {}, explained("Tokens", "What programs show to be let in; people have passwords")), table("Tokens", [["For", ""], ["Role", "viewer, operator or admin; each includes the ones before it"], ["Cameras", "Those it is for"], ["Made", ""], ["Last used", "To the hour"], ["Ends", "When it is no longer valid by itself"], ["", ""]], body), el("p", { class: "buttons" }, el("button", { onclick: form }, "Make a token")), place);
}

function auditPart(): HTMLElement {
  const body = el("tbody");
  const more = el("button", { hidden: true, onclick: () => void load() }, "More");
  let token = "";
  const load = async (): Promise<void> => {
    try {
      const page = await ask<{ auditEntries?: Entry[]; nextPageToken?: string }>("GET", `/v1/auditEntries?pageSize=20${token ? `&pageToken=${encodeURIComponent(token)}` : ""}`);
      body.append(...(page.auditEntries ?? []).map((e) => el("tr", { "data-entry": lastPart(e.name) }, el("td", { class: "time" }, clockTime(millis(e.time))), el("td", {}, e.actor ?? "", el("small", { class: "why" }, e.peer ?? "")), el("td", {}, e.method ?? ""), el("td", {}, e.resource ?? ""),
        el("td", {}, e.outcome === "OK" ? "done" : el("span", { class: "warn" }, words(e.outcome, ""))), el("td", { class: "address" }, e.request ? el("details", {}, el("summary", {}, "Show"), e.request) : "")))); 
      if (!body.childElementCount) fill(body, nothing(6, "Nothing was changed yet."));
      token = page.nextPageToken ?? "";
      more.hidden = !token;
    } catch (e) {
      fill(body, excuse(6, "The record of changes")(e as Refusal));
    }
  };
  void load();
  return el("section", { class: "panel" }, el("h2", {}, "Who changed what"), table("Audit", [["Time", ""], ["Who", "The user or token, and the address the call came from"], ["Call", ""], ["What", ""], ["Outcome", "Done, or the reason it was refused with"], ["Request", "Without passwords, tokens and keys"]], body), el("p", { class: "buttons" }, more));
}

function backupsPart(): HTMLElement {
  const body = el("tbody");
  const how = el("div");
  const make = el("button", { onclick: () => void backup() }, "Back up now");
  const backup = async (): Promise<void> => {
    make.setAttribute("disabled", "");
    fill(make, "Backing up …");
    try {
      const b = await ask<Backup>("POST", "/v1/backups", {});
      note(`Backed up: ${bytes(b.bytes)} in ${b.path ?? ""}`);
      await load();
    } catch (e) {
      note((e as Error).message, true);
    }
    make.removeAttribute("disabled");
    fill(make, "Back up now");
  };
  const load = async (): Promise<void> => {
    try {
      const { backups = [] } = await ask<{ backups?: Backup[] }>("GET", "/v1/backups");
      fill(body, ...(backups.length ? backups.map((b) => el("tr", { "data-backup": lastPart(b.name) }, el("td", {}, lastPart(b.name)), el("td", { class: "time" }, clockTime(millis(b.createTime))), el("td", {}, bytes(b.bytes)), el("td", { class: "address" }, b.path ?? ""),
        el("td", { class: "buttons" }, el("button", { "aria-label": `How to go back to backup ${lastPart(b.name)}`, onclick: () => restore(b) }, "Go back to it …"), el("button", { "aria-label": `Delete backup ${lastPart(b.name)}`, onclick: () => confirm(`Delete backup ${lastPart(b.name)}?`) && void ask("DELETE", `/v1/${b.name}`).then(load, (e: Error) => note(e.message, true)) }, "Delete")))) : [nothing(5, "No backup yet. One takes a verified copy of everything but pictures and clips while the box goes on.")]));
    } catch (e) {
      fill(body, excuse(5, "Backing up")(e as Refusal));
    }
  };
  /** restore says how: the box itself has to be stopped for it. */
  const restore = (b: Backup): void => {
    const data = (b.path ?? "").replace(/\/backups\/[^/]*$/, "");
    const commands = ["systemctl stop vedette    # or Ctrl-C where it was started by hand", `mv ${data} ${data}.before && mkdir ${data}`, `vedette restore ${data}.before/backups/${lastPart(b.name)} --data-dir ${data}`,
      `cp -p ${data}.before/secret.key ${data}    # opens the cameras' passwords; tls.crt and tls.key too, if they are there`, `chown -R --reference=${data}.before ${data}`, "systemctl start vedette"].join("\n");
    fill(how, el("h3", {}, `Go back to ${lastPart(b.name)}`), el("p", { class: "meaning" }, "A backup goes into an empty data folder, while the box is stopped; what was there stays beside it. On the box:"), el("pre", { tabindex: 0, "aria-label": "Commands that restore the backup" }, commands),
      el("p", { class: "buttons" }, el("button", { onclick: () => void navigator.clipboard.writeText(commands).then(() => note("Copied."), () => note("This browser lets only pages by HTTPS copy: select the text instead.", true)) }, "Copy"), el("button", { onclick: () => fill(how) }, "Close")));
    how.querySelector("pre")?.focus();
  };
  void load();
  return el("section", { class: "panel" }, el("h2", {}, "Backups"), table("Backups", [["Backup", ""], ["Made", ""], ["Size", ""], ["Where on the box", "vedette restore takes this folder"], ["", ""]], body), el("p", { class: "buttons" }, make), how);
}

export function settingsScreen(main: HTMLElement): () => void {
  const about = el("p", { class: "lead" });
  const told = (): void => fill(about, `Vedette ${live.system?.version ?? ""}. Times are shown in ${Intl.DateTimeFormat().resolvedOptions().timeZone}, the time zone of this browser. What changed between versions stands in CHANGELOG.md of the package.`);
  const sinks = may("admin", true) ? sinksPart() : undefined;
  fill(main, el("h1", {}, "Settings"), about, sessionPart(), ...(sinks ? [usersPart(), tokensPart(), sinks.root, auditPart(), backupsPart()]
    : [el("section", { class: "panel" }, el("h2", {}, "The box"), needs("admin", "see and change who may use the box and its API, where events go, who changed what, and backups", true))]));
  told();
  const off = live.on("system", told);
  return () => {
    off();
    sinks?.close();
  };
}
