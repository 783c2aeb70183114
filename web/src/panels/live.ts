// What is going on: the steps of the test and the newest figures.
import { el, find } from "../dom";
import { mbit, ms } from "../figure";
import { say } from "../lang";
import type { Plan } from "../run";


export interface Live {
  begin(p: Plan): void;
  phase(name: string, length: number): void;
  probe(rtt: number): void;
  rate(direction: "down" | "up", mbps: number): void;
  /** Brings the figures to the screen; called once a frame at most. */
  draw(): void;
  end(): void;
}

/** Makes the panel. */
export function live(): Live {
  const root = find("live");
  const told = find("say");
  const steps = el("ol", { class: "steps" });
  const now = el("p", { class: "now", "aria-hidden": "true" });
  const tiles = el("dl", { class: "tiles three" });
  const tile = (name: string, unit: string): HTMLElement => {
    const value = el("span", { class: "num" }, "–");
    tiles.append(el("div", {}, el("dt", {}, name), el("dd", {}, value, el("span", { class: "unit" }, ` ${unit}`))));
    return value;
  };
  const latency = tile(say.latency, "ms");
  const rates = { down: tile(say.download, "Mbit/s"), up: tile(say.upload, "Mbit/s") };
  root.append(steps, now, tiles);

  let bars = new Map<string, HTMLProgressElement>();
  let current = "";
  let since = 0;
  let length = 0;
  let fresh: number[] = [];
  const show = { latency: "–", down: "–", up: "–" };

  return {
    begin(p) {
      const names = p.both ? (["idle", "download", "upload", "both"] as const) : (["idle", "download", "upload"] as const);
      bars = new Map();
      steps.replaceChildren(
        ...names.map((n) => {
          const bar = el("progress", { max: "1", value: "0", "aria-label": say.phase[n] });
          bars.set(n, bar);
          return el("li", { "data-phase": n }, el("span", {}, say.phase[n]), bar);
        }),
      );
      current = "";
      Object.assign(show, { latency: "–", down: "–", up: "–" });
      now.textContent = say.connecting;
      told.textContent = say.begins;
      root.hidden = false;
    },
    phase(name, seconds) {
      const done = bars.get(current);
      if (done !== undefined) done.value = 1;
      current = name;
      since = performance.now();
      length = seconds;
      now.textContent = told.textContent = say.step[name as keyof typeof say.step] ?? "";
      for (const li of steps.children) {
        if (li.getAttribute("data-phase") === name) li.setAttribute("aria-current", "step");
        else li.removeAttribute("aria-current");
      }
    },
    probe(rtt) {
      fresh.push(rtt);
    },
    rate(direction, mbps) {
      show[direction] = mbit(mbps);
    },
    draw() {
      const bar = bars.get(current);
      if (bar !== undefined && length > 0) bar.value = Math.min(1, (performance.now() - since) / 1e3 / length);
      if (fresh.length > 0) {
        // The slowest since the last time, so that short peaks are seen.
        show.latency = ms(Math.max(...fresh));
        fresh = [];
      }
      latency.textContent = show.latency;
      rates.down.textContent = show.down;
      rates.up.textContent = show.up;
    },
    end() {
      root.hidden = true;
    },
  };
}
