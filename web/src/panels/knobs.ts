// The sliders of the model's page. Each has a list of round values, because a
// rate or a delay wants steps that grow with it.
import { el, find } from "../dom";
import { numeral, say } from "../lang";
import type { Words } from "../words/en";

interface Knob {
  name: keyof Words["knob"]; // in the address, and to the server
  values: number[];
  first: number;
  text: (v: number) => string;
}

interface Group {
  title: string;
  knobs: Knob[];
}

const rates = [0.5, 0.75, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 500, 750, 1000];
const delays = [1, 2, 5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 600];
const buffers = [5, 10, 20, 50, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 4000];
const to16 = [0, 1, 2, 3, 4, 6, 8, 12, 16];
const to4 = [0, 1, 2, 3, 4];
const shares = [50, 60, 70, 75, 80, 85, 90, 92, 94, 95, 96, 97, 98, 99, 100];

const speed = (v: number): string => (v >= 1000 ? `${v / 1000} Gbit/s` : `${numeral(String(v))} Mbit/s`);
const time = (v: number): string => (v >= 1000 ? `${numeral(String(v / 1000))} s` : `${v} ms`);
const none = (what: string) => (v: number): string => (v === 0 ? say.none : `${v} ${what}`);

const groups: Group[] = [
  {
    title: say.group.line,
    knobs: [
      { name: "down", values: rates, first: 30, text: speed },
      { name: "up", values: rates, first: 5, text: speed },
      { name: "rtt", values: delays, first: 20, text: time },
      { name: "buffer_down", values: buffers, first: 700, text: time },
      { name: "buffer_up", values: buffers, first: 1000, text: time },
    ],
  },
  {
    title: say.group.household,
    knobs: [
      { name: "downloads", values: to16, first: 1, text: none(say.atOnce) },
      { name: "uploads", values: to16, first: 1, text: none(say.atOnce) },
      { name: "calls", values: to4, first: 1, text: none(say.atOnce) },
      { name: "web", values: to4, first: 0, text: none(say.people) },
      { name: "video", values: to4, first: 0, text: none(say.atOnce) },
      { name: "torrent", values: [0, 5, 10, 20, 40, 60], first: 0, text: none(say.peers) },
    ],
  },
];

const share: Knob = { name: "share", values: shares, first: 95, text: (v) => `${v} %` };

const queues = Object.entries(say.queue);

/** Makes the sliders as an address says, and reports every change. */
export function knobs(from: URLSearchParams, change: (question: URLSearchParams) => void): { question(): URLSearchParams } {
  const form = find<HTMLFormElement>("control");
  form.classList.add("knobs");
  const values = new Map<string, () => string>();
  const question = (): URLSearchParams => new URLSearchParams([...values].map(([name, value]) => [name, value()]));
  for (const g of groups) {
    const set = el("fieldset", {}, el("legend", {}, g.title));
    for (const k of g.knobs) set.append(slider(k, from, values, () => change(question())));
    form.append(set);
  }
  const select = el("select", { id: "knob-queue" });
  for (const [value, text] of queues) select.append(el("option", { value }, text));
  const wanted = from.get("queue") ?? "";
  select.value = queues.some(([v]) => v === wanted) ? wanted : "none";
  const set = el("fieldset", {}, el("legend", {}, say.group.router), el("div", { class: "knob" }, el("label", { for: "knob-queue" }, say.knob.queue), select));
  const shaped = slider(share, from, values, () => change(question()));
  set.append(shaped);
  form.append(set);
  const look = (): void => {
    shaped.hidden = select.value === "none";
  };
  select.addEventListener("change", () => {
    look();
    change(question());
  });
  look();
  values.set("queue", () => select.value);
  form.addEventListener("submit", (e) => e.preventDefault());
  return { question };
}

function slider(k: Knob, from: URLSearchParams, values: Map<string, () => string>, changed: () => void): HTMLElement {
  const id = `knob-${k.name}`;
  const given = from.get(k.name);
  const input = el("input", { id, type: "range", min: "0", max: String(k.values.length - 1), step: "1" });
  input.value = String(nearest(k.values, given === null || given === "" || Number.isNaN(Number(given)) ? k.first : Number(given)));
  const value = (): number => k.values[Number(input.value)] ?? k.first;
  const shown = el("output", { for: id });
  const tell = (): void => {
    shown.textContent = k.text(value());
    input.setAttribute("aria-valuetext", k.text(value()));
  };
  input.addEventListener("input", () => {
    tell();
    changed();
  });
  tell();
  values.set(k.name, () => String(value()));
  return el("div", { class: "knob" }, el("label", { for: id }, say.knob[k.name]), shown, input);
}

/** The index of the value that is nearest in proportion. */
function nearest(values: number[], v: number): number {
  const far = (x: number): number => Math.abs(Math.log((x + 0.01) / (Math.max(v, 0) + 0.01)));
  return values.reduce((best, x, i) => (far(x) < far(values[best] ?? 0) ? i : best), 0);
}
