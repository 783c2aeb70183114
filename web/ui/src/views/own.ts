// Rules of one's own: which traffic has which class, and what a machine may carry at most.
import { el, type Child } from "../../../src/dom";
import type { State, WAN } from "../api.gen";
import { mayChange } from "../model";
import { say } from "../say";

const select = (id: string, label: string, of: [string, string][]): HTMLElement =>
  el("div", { class: "field" }, el("label", { for: id }, label), el("select", { id, name: id }, ...of.map(([value, text]) => el("option", { value }, text))));

const input = (id: string, label: string, attributes: Record<string, string>): HTMLElement =>
  el("div", { class: "field" }, el("label", { for: id }, label), el("input", { id, name: id, autocomplete: "off", ...attributes }));

/** A rule or a limit as people read it: the class and a machine by their names. */
function spoken(text: string, s: State): string {
  const named = (word: string): string => s.machines.find((m) => m.address === word)?.name || word;
  if (!text.includes("=")) return text.split(" ").map(named).join(" ");
  return text
    .split(",")
    .map((part) => part.split("=").map((x) => x.trim()))
    .map(([key = "", value = ""]) => (key === "class" ? (say.class[value] ?? value) : ["home", "protocol", "port", "name"].includes(key) ? named(value) : `${key} ${value}`))
    .join(", ");
}

function list(kind: "rules" | "limits", all: string[], w: WAN, s: State): HTMLElement {
  const may = w.pending === null;
  const one = (text: string): HTMLElement =>
    el(
      "li",
      { class: "entry", "data-key": text },
      el("span", {}, spoken(text, s)),
      ...(mayChange() ? [el("button", { type: "button", "data-do": "disown", "data-kind": kind, "data-text": text, "aria-label": say.removeThis(spoken(text, s)), ...(may ? {} : { disabled: "" }) }, say.remove)] : []),
    );
  return el("ul", { class: "plain-list" }, ...all.map(one));
}

/** Draws the section. */
export function own(w: WAN, s: State): Child {
  const may = w.pending === null;
  const machines = s.machines.map((m): [string, string] => [m.address, m.name || m.address]);
  const still = { "data-still": `${machines.join()} ${may} ${say.tag}` };
  const button = el("button", { type: "submit", class: "primary", ...(may ? {} : { disabled: "" }) }, say.add);
  const parts: Child[] = [el("h2", {}, say.ownRules)];
  if (w.rules.length + w.limits.length === 0) parts.push(el("p", {}, say.noOwnRules));
  if (w.rules.length > 0) parts.push(list("rules", w.rules, w, s));
  if (w.limits.length > 0) parts.push(el("h3", {}, say.atMost), list("limits", w.limits, w, s));
  if (mayChange() && w.classes) {
    parts.push(
      el(
        "details",
        { "data-key": "own" },
        el("summary", {}, say.addRule),
        el(
          "form",
          { "data-do": "own", "data-key": "own form", class: "fields", ...still },
          select("own-class", say.itsClass, Object.entries(say.classIs).filter(([c]) => c !== "")),
          select("own-machine", say.machine, [["", say.anyMachine], ...machines]),
          select("own-protocol", say.protocol, [["", say.anyProtocol], ["udp", "UDP"], ["tcp", "TCP"]]),
          input("own-port", say.portRange, { placeholder: "3478-3497", inputmode: "numeric" }),
          button,
          el("p", { class: "wrong", id: "own-wrong", role: "alert" }),
        ),
      ),
    );
  }
  if (mayChange() && w.can_limit && machines.length > 0) {
    const number = { inputmode: "decimal", required: "" };
    parts.push(
      el(
        "details",
        { "data-key": "most" },
        el("summary", {}, say.addLimit),
        el(
          "form",
          { "data-do": "most", "data-key": "most form", class: "fields", novalidate: "", ...still },
          select("most-machine", say.machine, machines),
          input("most-down", say.downMbit, number),
          input("most-up", say.upMbit, number),
          button.cloneNode(true) as HTMLElement,
          el("p", { class: "muted" }, say.limitMeans),
          el("p", { class: "wrong", id: "most-wrong", role: "alert" }),
        ),
      ),
    );
  }
  return el("section", { class: "block", "data-key": "own rules" }, ...parts);
}
