// The small table: a column a phase.
import { el, find } from "../dom";
import { mbit, ms } from "../figure";
import { say } from "../lang";
import { phasesOf } from "../wire";
import type { Phase, Test, Words } from "../wire.gen";

const none = "–";

type Cell = (p: Phase, name: string) => string;

const loaded =
  (f: Cell): Cell =>
  (p, name) =>
    name === "idle" ? none : f(p, name);

const latency =
  (f: (p: Phase) => number): Cell =>
  (p) =>
    p.latency.received > 0 ? ms(f(p)) : none;

const oneWay = (f: (p: Phase) => number): Cell => loaded((p, name) => (p.latency.one_way_unknown === true ? none : latency(f)(p, name)));

const rows: [string, Cell][] = [
  [say.figure.median, latency((p) => p.latency.rtt_ms.p50)],
  [say.figure.p95, latency((p) => p.latency.rtt_ms.p95)],
  [say.figure.slowest, latency((p) => p.latency.rtt_ms.max)],
  [say.figure.added, loaded(latency((p) => p.latency.increase_ms.p95))],
  [say.figure.up, oneWay((p) => p.latency.up_ms.p95)],
  [say.figure.down, oneWay((p) => p.latency.down_ms.p95)],
  [say.figure.jitter, latency((p) => p.latency.ipdv_ms)],
  [say.figure.download, (p) => (p.flows_down > 0 ? mbit(p.goodput_down_bps / 1e6) : none)],
  [say.figure.upload, (p) => (p.flows_up > 0 ? mbit(p.goodput_up_bps / 1e6) : none)],
  [say.figure.flows, loaded((p) => `${p.flows_down}/${p.flows_up}`)],
  [say.figure.answers, (p) => String(p.latency.received)],
  [say.figure.without, (p) => String(p.latency.sent - p.latency.received)],
  [say.figure.late, (p) => ms(p.probe_lateness_ms.p99)],
];

/** Shows the figures of a test. */
export function showFigures(t: Test, words: Words): void {
  const root = find("figures");
  const phases = phasesOf(t);
  const head = el("tr", {}, el("td"));
  for (const { name } of phases) head.append(el("th", { scope: "col" }, say.phase[name]));
  const body = el("tbody");
  for (const [name, cell] of rows) {
    const row = el("tr", {}, el("th", { scope: "row" }, name));
    for (const p of phases) row.append(el("td", {}, cell(p.phase, p.name)));
    body.append(row);
  }
  root.replaceChildren(
    el("h2", { id: "figures-title" }, say.figures),
    el("div", { class: "wrap" }, el("table", { "aria-labelledby": "figures-title" }, el("thead", {}, head), body)),
    el("p", { class: "muted" }, say.figuresHint),
  );
  const facts = [...words.notes];
  if (t.server !== "") facts.push(say.server(t.server));
  if (t.time !== "") facts.push(new Date(t.time).toLocaleString(navigator.languages.find((l) => l.startsWith(say.tag)) ?? say.tag));
  root.append(el("ul", { class: "muted notes" }, ...facts.map((f) => el("li", {}, f.charAt(0).toUpperCase() + f.slice(1)))));
  root.hidden = false;
}
