// Health: what the doctor finds, what happened, the export and the passwords.
import { el, type Child } from "../../../src/dom";
import type { Finding, Happening, WAN } from "../api.gen";
import { called, keyOf, mayChange, model } from "../model";
import { moment, say } from "../say";
import { incidents } from "./incidents";

function finding(f: Finding): HTMLElement {
  const mend = f.mend && mayChange();
  const words = say.findings[f.code] ?? say.findings[f.code.split("-")[0] ?? ""];
  if (words !== undefined) {
    return el(
      "li",
      { class: `finding ${f.blocking ? "blocking" : ""}`, "data-key": f.code },
      el("p", {}, el("span", { class: "class rule" }, f.blocking ? say.blocking : say.hint), " ", el("strong", {}, words.what)),
      el("p", { class: "muted" }, words.why),
      el("p", {}, `${say.remedy}: ${words.remedy}`),
      el("details", { "data-key": `exactly ${f.code}` }, el("summary", {}, say.exactly), el("p", { lang: "en" }, `${f.what}: ${f.why}`), el("p", { lang: "en" }, f.remedy)),
      ...(mend ? [el("button", { type: "button", class: "primary", "data-do": "mend", "data-code": f.code, "aria-label": `${say.mend}: ${words.what}` }, say.mend)] : []),
    );
  }
  return el(
    "li",
    { class: `finding ${f.blocking ? "blocking" : ""}`, "data-key": f.code },
    el("p", {}, el("span", { class: "class rule" }, f.blocking ? say.blocking : say.hint), " ", el("strong", { lang: "en" }, f.what)),
    el("p", { class: "muted", lang: "en" }, f.why),
    el("p", {}, `${say.remedy}: `, el("span", { lang: "en" }, f.remedy)),
    ...(mend ? [el("button", { type: "button", class: "primary", "data-do": "mend", "data-code": f.code, "aria-label": `${say.mend}: ${f.what}` }, say.mend)] : []),
  );
}

function doctor(w: WAN): HTMLElement {
  const h = model.health;
  const parts: Child[] = [el("h2", {}, say.doctor)];
  if (model.absent.has("health")) {
    parts.push(el("p", { class: "muted" }, say.notHere));
  } else if (h === null || h.wan !== w.wan) {
    parts.push(el("p", { class: "muted" }, say.checking));
  } else {
    parts.push(
      el("p", { class: h.findings.some((f) => f.blocking) ? "tone-bad" : "tone-good" }, el("strong", {}, `${h.findings.some((f) => f.blocking) ? "✕" : "✓"} ${h.findings.some((f) => f.blocking) ? say.notHealthy : say.healthy}`)),
      ...(h.findings.length === 0 ? [] : [el("ul", { class: "plain-list" }, ...h.findings.map(finding))]),
      el("p", { class: "muted" }, say.checked(h.checked, h.skipped)),
      el("button", { type: "button", id: "check", "data-do": "check", ...(model.checking ? { disabled: "" } : {}) }, model.checking ? say.checking : say.checkAgain),
    );
  }
  return el("section", { class: "block", "data-key": "doctor" }, ...parts);
}

/** What happened, in words. */
function happened(e: Happening): string {
  const words = say.event[e.kind];
  if (e.by === undefined || e.kind === "timeout") return words;
  if (e.kind === "mended") return say.mendedAfter(e.by);
  if (e.kind === "contested") return say.foughtBy(e.by);
  return `${words} ${say.by(say.who[e.by] ?? e.by)}`;
}

function event(e: Happening, many: boolean): HTMLElement {
  return el(
    "li",
    { "data-key": `e${e.n}` },
    el("p", {}, el("span", { class: "muted" }, moment(Date.parse(e.time))), ` ${many ? `${called(keyOf(e))}: ` : ""}${happened(e)}.`, ...(e.undone === undefined ? [] : [" ", el("span", { class: "class rule" }, say.undone[e.undone])])),
    ...(e.what === undefined ? [] : [el("ul", { class: "muted", lang: "en" }, ...e.what.map((x) => el("li", {}, x)))]),
  );
}

function passwords(): HTMLElement {
  const password = (id: string, label: string, autocomplete: string): HTMLElement =>
    el("div", { class: "field" }, el("label", { for: id }, label), el("input", { id, name: id, type: "password", autocomplete, required: "", maxlength: "256" }));
  return el(
    "details",
    { class: "block", "data-key": "passwords" },
    el("summary", {}, say.passwords),
    el("p", { class: "muted" }, say.passwordsLead),
    el(
      "form",
      { "data-do": "password", "data-still": "form", class: "fields" },
      password("pw-now", say.yourPassword, "current-password"),
      el("div", { class: "field" }, el("label", { for: "pw-role" }, say.whose), el("select", { id: "pw-role", name: "role" }, el("option", { value: "viewer" }, say.viewers), el("option", { value: "admin" }, say.admins))),
      password("pw-new", say.newPassword, "new-password"),
      el("button", { type: "submit" }, say.setPassword),
      el("p", { class: "wrong", id: "password-wrong", role: "alert" }),
    ),
  );
}

/** Draws the view. */
export function health(w: WAN): Child[] {
  const many = (model.state?.wans.length ?? 0) > 1;
  const events = model.events?.events ?? [];
  return [
    incidents(w),
    doctor(w),
    el(
      "section",
      { class: "block", "data-key": "events" },
      el("h2", {}, say.events),
      events.length === 0 ? el("p", { class: "muted" }, say.noEvents) : el("ol", { class: "plain-list events", reversed: "" }, ...events.slice(0, 50).map((e) => event(e, many))),
    ),
    el("section", { class: "block", "data-key": "export" }, el("h2", {}, say.exportTitle), el("p", { class: "muted" }, say.exportLead), el("p", {}, el("a", { href: "api/export", download: "unbloat.json", id: "export" }, say.exportGo))),
    // Who came from another page of the router may have no password here.
    ...(mayChange() && model.session?.first_run === false ? [passwords()] : []),
  ];
}
