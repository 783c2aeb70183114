// Who: the machines of the home, what each does, and rules for them.
import { el, type Child } from "../../../src/dom";
import type { Action, Flow, Machine, MachineFlows, State, WAN } from "../api.gen";
import { mayChange, model } from "../model";
import { mbit, say } from "../say";
import { own } from "./own";
import { rich } from "../../../src/language";

const quietBps = 20_000;

const nameOf = (m: Machine): string => m.name || m.address;
const idOf = (address: string): string => address.replace(/[^a-zA-Z0-9]/g, "-");

function badge(c: string): HTMLElement {
  return el("span", { class: `class ${c || "none"}`, title: say.classIs[c] ?? c }, say.class[c] ?? c);
}

function rates(m: { down_bps: number; up_bps: number }): HTMLElement {
  const part = (arrow: string, name: string, bps: number): HTMLElement =>
    el("span", { class: "speed" }, el("span", { "aria-hidden": "true" }, arrow), el("span", { class: "visually-hidden" }, `${name} `), ` ${mbit(bps)}`);
  return el("span", { class: "speeds" }, part("↓", say.down, m.down_bps), part("↑", say.up, m.up_bps), el("span", { class: "unit" }, say.mbit));
}

function rules(w: WAN, m: Machine): HTMLElement {
  const one = (action: Action, text: string): HTMLElement =>
    el(
      "button",
      { type: "button", "data-do": "rule", "data-address": m.address, "data-action": m.action === action ? "none" : action, "aria-pressed": String(m.action === action), ...(w.pending !== null ? { disabled: "" } : {}) },
      text,
    );
  return el("div", { class: "rules", role: "group", "aria-label": nameOf(m) }, one("first", say.first), one("last", say.onlyIdle), el("button", { type: "button", "data-do": "firstHour", "data-address": m.address, ...(w.pending !== null ? { disabled: "" } : {}) }, say.firstHour));
}

function why(f: Flow["down"]): string {
  return f.why.map((y) => `${say.whyClass[y.code] ?? y.code}${y.rule === undefined ? "" : ` (${say.rule(y.rule)})`}`).join(", ");
}

function flowRow(f: Flow): HTMLElement {
  const ways = [f.down, f.up].filter((x) => x.class !== "" || x.why.length > 0);
  const alike = f.down.class === f.up.class && why(f.down) === why(f.up);
  const shown = alike ? ways.slice(0, 1) : ways;
  return el(
    "li",
    { "data-key": `${f.protocol} ${f.home} ${f.far}` },
    el("div", { class: "flow" }, el("span", { class: "far" }, `${f.protocol} ${f.far}`), rates({ down_bps: f.down.rate_bps, up_bps: f.up.rate_bps })),
    ...shown.map((x) => el("p", { class: "muted" }, alike ? "" : x === f.down ? "↓ " : "↑ ", badge(x.class), ` ${why(x)}`)),
  );
}

function flows(m: Machine, known: MachineFlows | undefined): HTMLElement {
  const id = `flows-${idOf(m.address)}`;
  if (known === undefined) return el("div", { id, class: "flows" }, el("p", { class: "muted" }, say.wait));
  const about = [m.address, m.mac].filter((x) => x !== "" && x !== nameOf(m)).join(" · ");
  return el(
    "div",
    { id, class: "flows", role: "region", "aria-label": say.flowsOf(nameOf(m)) },
    ...(about === "" ? [] : [el("p", { class: "muted" }, about)]),
    ...(known.flows.length === 0 ? [el("p", { class: "muted" }, say.noFlows)] : [el("ul", {}, ...known.flows.map(flowRow))]),
    ...(known.more > 0 ? [el("p", { class: "muted" }, say.moreFlows(known.more))] : []),
  );
}

function row(w: WAN, m: Machine, most: number): HTMLElement {
  const open = model.open.has(m.address);
  const id = `flows-${idOf(m.address)}`;
  const share = Math.min(1, Math.max(m.down_bps, m.up_bps) / Math.max(1, most));
  return el(
    "li",
    { class: "machine", "data-key": m.address },
    el(
      "div",
      { class: "machine-head" },
      el("h3", {}, el("button", { type: "button", class: "plain", id: `m-${idOf(m.address)}`, "data-do": "open", "data-address": m.address, "aria-expanded": String(open), ...(open ? { "aria-controls": id } : {}) }, nameOf(m))),
      badge(m.class),
      ...(m.action === "none" || (mayChange() && w.classes) ? [] : [el("span", { class: "class rule" }, say.ruleOf[m.action])]),
      rates(m),
    ),
    el("progress", { max: "1", value: share.toFixed(3), "aria-hidden": "true" }),
    ...(mayChange() && w.classes ? [rules(w, m)] : []),
    ...(open ? [flows(m, model.flows.get(m.address))] : []),
  );
}

/** The machines in an order that does not change under a finger. */
function ordered(all: Machine[]): Machine[] {
  const place = new Map(model.order.map((a, i) => [a, i]));
  return [...all].sort((a, b) => (place.get(a.address) ?? 1e6) - (place.get(b.address) ?? 1e6));
}

/** Draws the view. */
export function who(w: WAN, s: State): Child[] {
  const out: Child[] = [el("h2", { id: "who-title" }, say.fixed.who), el("p", { class: "muted" }, say.whoLead)];
  if (s.sight !== "clear") out.push(el("p", { class: "hint" }, ...rich(say.sight[s.sight])));
  if (!w.classes && w.kept === "in place") out.push(el("p", { class: "hint" }, say.noClasses));
  const all = ordered(s.machines);
  const quiet = all.filter((m) => m.down_bps + m.up_bps < quietBps && m.action === "none" && !model.open.has(m.address));
  const busy = all.filter((m) => !quiet.includes(m));
  const most = Math.max(1, ...all.map((m) => Math.max(m.down_bps, m.up_bps)));
  if (busy.length === 0 && s.sight !== "none" && s.sight !== "denied") out.push(el("p", {}, say.whoIdle));
  if (busy.length > 0) out.push(el("ul", { class: "machines", "aria-labelledby": "who-title" }, ...busy.map((m) => row(w, m, most))));
  if (quiet.length > 0) {
    out.push(el("details", { "data-key": "quiet" }, el("summary", {}, say.quiet(quiet.length)), el("ul", { class: "machines" }, ...quiet.map((m) => row(w, m, most)))));
  }
  if (s.more > 0) out.push(el("p", { class: "muted" }, say.moreMachines(s.more)));
  out.push(own(w, s));
  return out;
}
