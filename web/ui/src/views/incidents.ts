// What went wrong on the line: a day as a strip, five weeks as a calendar, and each
// incident of the day in words.
import { el, type Child } from "../../../src/dom";
import type { Incident, WAN } from "../api.gen";
import { model } from "../model";
import { clock, day, say } from "../say";
import { svg } from "../tree";

const hourMs = 3_600_000;
const weeks = 5;

/** The midnight before an instant, days later: days of a clock change are not 24 hours. */
function midnight(at: number, days = 0): number {
  const d = new Date(at);
  return new Date(d.getFullYear(), d.getMonth(), d.getDate() + days).getTime();
}

const rank = (severity: string): number => ["minor", "major", "severe"].indexOf(severity);

const end = (x: Incident): number => (x.end_ms === 0 ? Date.now() : x.end_ms);

/** Those that were on the day that begins at a midnight. */
function on(all: Incident[], from: number): Incident[] {
  const to = midnight(from, 1);
  return all.filter((x) => x.begin_ms < to && end(x) >= from);
}

function worst(of: Incident[]): string {
  return of.reduce((w, x) => (rank(x.severity) > rank(w) ? x.severity : w), "");
}

function lasted(x: Incident): string {
  if (x.end_ms === 0) return say.goesOn;
  const s = Math.round((x.end_ms - x.begin_ms) / 1000);
  const text = s < 60 ? `${s} s` : s < 600 && s % 60 !== 0 ? `${Math.floor(s / 60)} min ${s % 60} s` : s < 3600 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return say.lasted(text);
}

/** A day from left to right. */
function strip(of: Incident[], from: number): HTMLElement {
  const to = midnight(from, 1);
  const wide = 1440;
  const x = (at: number): number => (wide * (Math.min(Math.max(at, from), to) - from)) / (to - from);
  return el(
    "div",
    { "data-key": "strip" },
    svg(
      "svg",
      { class: "strip", viewBox: `0 0 ${wide} 34`, preserveAspectRatio: "none", role: "img", "aria-label": say.incidentStrip(day(from), of.length) },
      ...[6, 12, 18].map((h) => svg("path", { class: "grid", d: `M${x(from + h * hourMs).toFixed(1)} 0v34` })),
      ...[...of]
        .sort((p, q) => rank(p.severity) - rank(q.severity))
        .map((i) => svg("rect", { class: `piece ${i.severity}`, x: x(i.begin_ms).toFixed(1), y: 10 - 5 * rank(i.severity), width: Math.max(x(end(i)) - x(i.begin_ms), 5).toFixed(1), height: 14 + 10 * rank(i.severity) })),
    ),
    el("p", { class: "hours muted", "aria-hidden": "true" }, ...[0, 6, 12, 18, 24].map((h) => el("span", {}, String(h)))),
  );
}

/** Five weeks, the newest day last. */
function calendar(all: Incident[], chosen: number): HTMLElement {
  const today = midnight(Date.now());
  const first = midnight(today, 1 - 7 * weeks);
  return el(
    "div",
    { class: "calendar", role: "group", "aria-label": say.month, "data-key": "calendar" },
    ...Array.from({ length: 7 * weeks }, (_, i) => midnight(first, i)).map((at) => {
      const of = on(all, at);
      const w = worst(of);
      return el(
        "button",
        { type: "button", class: `day ${w}`, "data-do": "incidentDay", "data-at": String(at), "aria-pressed": String(at === chosen), "aria-label": say.incidentCell(day(at), of.length, say.severity[w] ?? ""), "data-key": `d${at}` },
        String(new Date(at).getDate()),
        ...(of.length === 0 ? [] : [el("small", { "aria-hidden": "true" }, "●".repeat(Math.min(rank(w) + 1, 3)))]),
      );
    }),
  );
}

function incident(x: Incident): HTMLElement {
  const said = (s: { en: string; de: string }): string => (say.tag === "de" ? s.de : s.en);
  return el(
    "li",
    { class: `incident ${x.severity}`, "data-key": x.id },
    el("p", {}, el("span", { class: "muted" }, clock(x.begin_ms)), " ", el("strong", {}, say.incidentKind[x.kind] ?? x.kind), ` ${lasted(x)} `, el("span", { class: "class rule" }, say.severity[x.severity] ?? x.severity)),
    el("p", {}, said(x.what)),
    el("p", {}, `${say.toBlame}: `, el("strong", {}, say.incidentPart[x.part] ?? x.part)),
    el("p", { class: "muted" }, said(x.why)),
  );
}

/** Draws what went wrong. */
export function incidents(w: WAN): Child {
  const all = model.incidents;
  if (all === null || all.wan !== w.wan || model.absent.has("incidents")) return el("section", { "data-key": "incidents", hidden: "" });
  const chosen = model.incidentDay === 0 ? midnight(Date.now()) : model.incidentDay;
  const of = on(all.incidents, chosen);
  return el(
    "section",
    { class: "block", "data-key": "incidents" },
    el("h2", {}, say.incidents),
    ...(all.watched ? [] : [el("p", { class: "muted" }, say.notWatched)]),
    ...(all.watched || all.incidents.length > 0
      ? [
          el("h3", {}, say.incidentDay(day(chosen))),
          strip(of, chosen),
          of.length === 0 ? el("p", { class: "muted" }, say.noIncidents) : el("ol", { class: "plain-list", reversed: "" }, ...of.map(incident)),
          el("h3", {}, say.month),
          calendar(all.incidents, chosen),
        ]
      : []),
  );
}
