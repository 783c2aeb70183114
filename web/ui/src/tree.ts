// Brings what is shown to what is to be shown. Elements that stay the same stay
// where they are, so that focus, what is typed and what is opened survive an update
// each second.
import type { Child } from "../../src/dom";

/** Makes an SVG element. */
export function svg(tag: string, attributes: Record<string, string | number> = {}, ...children: Child[]): SVGElement {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, String(value));
  e.append(...children);
  return e;
}

/** What tells an element apart from its siblings; "": its place among them. */
function key(n: Node | null): string {
  return n instanceof Element ? (n.getAttribute("data-key") ?? n.id) : "";
}

/** Gives parent the children that fresh has. */
export function morph(parent: Element, fresh: Child[]): void {
  const keyed = new Map<string, Element>();
  for (const c of parent.children) if (key(c) !== "") keyed.set(key(c), c);
  let at: ChildNode | null = parent.firstChild;
  for (const f of fresh) {
    const n = typeof f === "string" ? document.createTextNode(f) : f;
    let old: Node | null = null;
    if (key(n) !== "") old = keyed.get(key(n)) ?? null;
    else if (key(at) === "") old = at;
    if (old === null || old.nodeName !== n.nodeName) {
      parent.insertBefore(n, at);
      continue;
    }
    if (old === at) {
      at = at.nextSibling;
    } else if (at !== null && !fresh.some((x) => typeof x !== "string" && key(x) !== "" && key(x) === key(at)) && at.nextSibling === old) {
      at.remove(); // what goes is taken away, rather than what stays moved: that would lose the focus
      at = old.nextSibling;
    } else {
      parent.insertBefore(old, at);
    }
    same(old, n);
  }
  while (at !== null) {
    const next: ChildNode | null = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** Gives an element or a text what another has. */
function same(old: Node, fresh: Node): void {
  if (!(old instanceof Element) || !(fresh instanceof Element)) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  // A part with data-still is left alone while that stays the same: forms, charts.
  const still = fresh.getAttribute("data-still");
  if (still !== null && old.getAttribute("data-still") === still) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) === value) continue;
    old.setAttribute(name, value);
    // What was typed or chosen gives way to what holds now.
    if (name === "value" && old instanceof HTMLInputElement) old.value = value;
    if (name === "checked" && old instanceof HTMLInputElement) old.checked = true;
    if (name === "selected" && old instanceof HTMLOptionElement) old.selected = true;
  }
  morph(old, [...fresh.childNodes] as Node[]);
}
