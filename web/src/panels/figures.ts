// The small table: a column a phase.
import { el, find } from "../dom";
import { phasesOf } from "../verdict";
import type { Phase, Test } from "../wire";
import { mbit, ms, phaseWord } from "../words";

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
  ["Median, ms", latency((p) => p.latency.rtt_ms.p50)],
  ["95 of 100 under, ms", latency((p) => p.latency.rtt_ms.p95)],
  ["Slowest, ms", latency((p) => p.latency.rtt_ms.max)],
  ["Added, p95, ms", loaded(latency((p) => p.latency.increase_ms.p95))],
  ["… on the way up", oneWay((p) => p.latency.up_ms.p95)],
  ["… on the way down", oneWay((p) => p.latency.down_ms.p95)],
  ["Jitter, ms", latency((p) => p.latency.ipdv_ms)],
  ["Download, Mbit/s", (p) => (p.flows_down > 0 ? mbit(p.goodput_down_bps / 1e6) : none)],
  ["Upload, Mbit/s", (p) => (p.flows_up > 0 ? mbit(p.goodput_up_bps / 1e6) : none)],
  ["Flows down/up", loaded((p) => `${p.flows_down}/${p.flows_up}`)],
  ["Answers", (p) => String(p.latency.received)],
  ["Without answer", (p) => String(p.latency.sent - p.latency.received)],
  ["Left late, p99, ms", (p) => ms(p.probe_lateness_ms.p99)],
];

/** Shows the figures of a test. */
export function showFigures(t: Test): void {
  const root = find("figures");
  const phases = phasesOf(t);
  const head = el("tr", {}, el("td"));
  for (const { name } of phases) head.append(el("th", { scope: "col" }, phaseWord[name] ?? name));
  const body = el("tbody");
  for (const [name, cell] of rows) {
    const row = el("tr", {}, el("th", { scope: "row" }, name));
    for (const p of phases) row.append(el("td", {}, cell(p.phase, p.name)));
    body.append(row);
  }
  root.replaceChildren(
    el("h2", { id: "figures-title" }, "Figures"),
    el("div", { class: "wrap" }, el("table", { "aria-labelledby": "figures-title" }, el("thead", {}, head), body)),
    el("p", { class: "muted" }, "Added: over the idle line’s median. The ways up and down are changes since idle, too. Speeds are what arrived, without packet headers."),
  );
  const facts = [...(t.notes ?? [])];
  if (t.server !== "") facts.push(`server ${t.server}`);
  if (t.time !== "") facts.push(new Date(t.time).toLocaleString());
  root.append(el("ul", { class: "muted notes" }, ...facts.map((f) => el("li", {}, f.charAt(0).toUpperCase() + f.slice(1)))));
  root.hidden = false;
}
