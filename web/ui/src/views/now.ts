// Now: a sentence, the grade, the limits and why they are so, and the last hour.
import { el, type Child } from "../../../src/dom";
import { tone } from "../../../src/tone";
import type { Reason, State, WAN, Way } from "../api.gen";
import { chart } from "../chart";
import { calls, load, top } from "../judge";
import { keyOf, model } from "../model";
import { mbit, ms, rate, say } from "../say";

/** How the line is, in a sentence. */
export function sentence(w: WAN, s: State): string {
  const parts: string[] = [];
  if (w.kept !== "in place") parts.push(say.kept[w.kept]);
  const c = calls(w);
  if (c !== "unknown") parts.push(say.calls[c]);
  const l = load(w, s);
  switch (l.is) {
    case "unknown":
      parts.push(say.loadUnknown);
      break;
    case "idle":
      parts.push(say.idle);
      break;
    case "room":
      parts.push(say.room(rate(w.down.carried_bps), rate(w.up.carried_bps)));
      break;
    case "busy": {
      const used = mbit(l.way.carried_bps);
      const limit = rate(top(l.way));
      const name = l.machine === undefined ? "" : l.machine.name || l.machine.address;
      if (name === "") parts.push(say.busySome(l.direction === "up" ? say.busyUps : say.busyDowns, used, limit));
      else if (l.direction === "up") parts.push(say.busyOne(say.upload, name, used, limit));
      else parts.push(say.busyTo(say.download, name, used, limit));
    }
  }
  return parts.join(" ");
}

/** Why a limit is what it is, in the page's language as far as it has words. */
function because(r: Reason | null): Child[] {
  if (r === null) return [];
  const words = say.why[r.code];
  return [": ", words ?? el("span", { lang: "en" }, r.text)];
}

function way(name: string, direction: "down" | "up", w: Way): HTMLElement {
  const most = top(w);
  const share = most > 0 ? Math.max(0, Math.min(1, w.carried_bps / most)) : 0;
  const figure = w.carried_bps < 0 ? say.useUnknown : most > 0 ? say.ofLimit(mbit(w.carried_bps), mbit(most)) : say.unlimited(mbit(w.carried_bps));
  const facts: Child[] = [];
  const usual = w.line_bps;
  if (w.capacity_bps > 0) facts.push(say.lineBelieved(rate(w.capacity_bps), usual > 0 ? rate(usual) : say.unknown));
  else facts.push(usual > 0 ? say.lineCarries(rate(usual)) : say.lineUnknown);
  facts.push(" ");
  if (w.rate_bps > 0) facts.push(say.limitIs(rate(w.rate_bps)), ...because(w.why), ".");
  else facts.push(say.noLimit);
  if (w.delay_ms >= 0) facts.push(` ${say.addsNow(ms(w.delay_ms))}`);
  return el(
    "section",
    { class: `way ${direction}`, "aria-label": name },
    el("h2", {}, el("span", { class: "arrow", "aria-hidden": "true" }, direction === "down" ? "↓" : "↑"), ` ${name}`),
    el("p", { class: "num" }, figure),
    el("progress", { max: "1", value: share.toFixed(3), "aria-label": figure }),
    el("p", { class: "muted" }, ...facts),
  );
}

/** Draws the view. */
export function now(w: WAN, s: State, width: number): Child[] {
  const g = w.grade;
  const idle = load(w, s).is === "idle" && w.kept === "in place";
  const minutes = Math.max(1, Math.round(g.seconds / 60));
  const letter = el(
    "p",
    { class: `grade tone-${g.grade === "" ? "none" : tone(g.grade)}` },
    el("span", { class: "visually-hidden" }, g.grade === "" ? say.noGrade : `${say.gradeOf(minutes)}: `),
    el("span", g.grade === "" ? { "aria-hidden": "true" } : {}, g.grade === "" ? "–" : g.grade),
  );
  const meaning = g.grade === "" ? (w.following || g.seconds > 0 ? `${say.noGrade}. ${say.noGradeWhy}` : say.noGradeFixed) : `${say.gradeOf(minutes)}: ${say.gradeWord[g.grade] ?? ""}. ${say.p95(ms(g.p95_ms))}.`;
  const out: Child[] = [
    el("div", { class: "verdict" }, letter, el("div", {}, el("h2", { id: "sentence" }, sentence(w, s)), ...(idle ? [el("p", {}, say.idleMeans)] : []), el("p", { class: "muted" }, meaning))),
  ];
  if (w.why !== "" || (w.by !== "" && w.kept !== "in place")) {
    out.push(
      el("div", { class: "hint", "data-key": "kept-why" }, ...(w.why === "" ? [] : [el("p", {}, ...say.because("\u0000").split("\u0000").flatMap((t, i) => (i === 0 ? [t] : [el("span", { lang: "en" }, w.why), t])))]), ...(w.by === "" ? [] : [el("p", {}, say.byProgram(w.by))])),
    );
  }
  if (w.blind) out.push(el("p", { class: "hint", "data-key": "blind" }, say.blind));
  out.push(el("div", { class: "ways", "data-key": "ways" }, way(say.down, "down", w.down), way(say.up, "up", w.up)));
  if (model.hour !== null && keyOf(model.hour) === w.wan) {
    const c = chart(model.hour, s.time_ms - 3_600_000, s.time_ms, width, say.hourTitle);
    c.setAttribute("data-still", `${width} ${Math.floor((model.hour.at_ms.at(-1) ?? 0) / 5000)}`);
    out.push(c);
  }
  return out;
}
