// The two curves over time: latency (logarithmic) and throughput.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { el, find } from "../dom";
import { ms } from "../figure";
import { numeral, say } from "../lang";
import { phasesOf } from "../wire";
import type { Test, Timeline } from "../wire.gen";

export interface Charts {
  begin(seconds: number): void;
  phase(name: string, start: number, length: number): void;
  probe(at: number, rtt: number | null): void;
  rate(direction: "down" | "up", at: number, mbps: number): void;
  /** Brings what is new to the screen; called once a frame at most. */
  draw(): void;
  /** Draws a result that is over. */
  show(t: Test): void;
  /** Draws phases that are over; words say the same for screen readers. */
  paint(phases: Part[], words: { latency: string; rate: string }): void;
}

/** The curves of one phase. */
export interface Part {
  name: string;
  series: Timeline;
}

interface Band {
  name: string;
  from: number;
  to: number;
}

const inks = ["idle", "download", "upload", "both", "loaded"] as const;
const latencyHeight = 230;
const rateHeight = 150;

/** Makes the panel. */
export function charts(): Charts {
  const root = find("charts");
  const latencyBox = el("div", { class: "chart", role: "img" });
  const rateBox = el("div", { class: "chart", role: "img" });
  root.append(
    el("h2", {}, say.latencyTitle),
    el("p", { class: "muted" }, say.latencyHint),
    latencyBox,
    el("h2", {}, say.rateTitle),
    el("p", { class: "legend" }, el("span", { class: "key down" }, say.keyDown), el("span", { class: "key up" }, say.keyUp)),
    rateBox,
  );

  let bands: Band[] = [];
  let end = 20;
  let probes: (number | null)[][] = []; // x, then a column for each ink
  let rates: (number | null)[][] = []; // x, down, up
  let plots: uPlot[] = [];
  let dirty = false;

  const clear = (seconds: number): void => {
    bands = [];
    end = seconds;
    probes = [[], ...inks.map(() => [])];
    rates = [[], [], []];
  };
  const phaseAt = (t: number): string => bands.findLast((b) => b.from <= t && t < b.to)?.name ?? "idle";
  const addProbe = (at: number, rtt: number | null): void => {
    const row = inks.indexOf(phaseAt(at) as (typeof inks)[number]);
    insert(probes, at, inks.map((_, i) => (i === row && rtt !== null ? Math.max(rtt, 0.05) : null)));
  };
  const addRate = (direction: "down" | "up", at: number, mbps: number): void => {
    insert(rates, at, direction === "down" ? [mbps, null] : [null, mbps]);
  };
  const build = (): void => {
    for (const p of plots) p.destroy();
    root.hidden = false;
    const width = root.clientWidth;
    const ink = colours();
    const shared = { width, bands: () => bands, end: () => end, ink };
    plots = [
      new uPlot(latencyOptions(shared), probes as uPlot.AlignedData, latencyBox),
      new uPlot(rateOptions(shared), rates as uPlot.AlignedData, rateBox),
    ];
  };
  const refresh = (): void => {
    plots[0]?.setData(probes as uPlot.AlignedData);
    plots[1]?.setData(rates as uPlot.AlignedData);
  };

  clear(20);
  new ResizeObserver(() => {
    const width = root.clientWidth;
    if (width <= 0) return;
    plots[0]?.setSize({ width, height: latencyHeight });
    plots[1]?.setSize({ width, height: rateHeight });
  }).observe(root);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.length > 0 && build());

  return {
    begin(seconds) {
      clear(seconds);
      latencyBox.setAttribute("aria-label", say.latencyChart(say.underWay));
      rateBox.setAttribute("aria-label", say.rateChart(say.underWay));
      build();
    },
    phase(name, start, length) {
      end = Math.max(end, start + length);
      const last = bands.at(-1);
      if (last !== undefined && last.to === Infinity) last.to = start;
      if (name in say.phase) bands.push({ name, from: start, to: Infinity });
      dirty = true;
    },
    probe(at, rtt) {
      addProbe(at, rtt);
      end = Math.max(end, at);
      dirty = true;
    },
    rate(direction, at, mbps) {
      addRate(direction, at, mbps);
      dirty = true;
    },
    draw() {
      if (dirty) refresh();
      dirty = false;
    },
    show(t) {
      const parts = phasesOf(t).flatMap(({ name, phase }) => (phase.series === undefined ? [] : [{ name, series: phase.series }]));
      this.paint(parts, { latency: describe(t), rate: say.meansBelow });
    },
    paint(parts, words) {
      clear(0);
      bands = parts.map(({ name, series }) => ({ name, from: series.start_s, to: series.end_s }));
      for (const { series: s } of parts) {
        end = Math.max(end, s.end_s);
        s.t_s.forEach((at, i) => addProbe(at, s.rtt_ms[i] ?? null));
        const curve = (direction: "down" | "up", mbps: number[]): void =>
          // The last bin may be cut short, and then its rate means little.
          smooth(mbps.slice(0, -1)).forEach((v, i) => addRate(direction, s.start_s + (i + 1) * s.bin_s, v));
        curve("down", s.down_mbps);
        curve("up", s.up_mbps);
      }
      latencyBox.setAttribute("aria-label", say.latencyChart(words.latency));
      rateBox.setAttribute("aria-label", say.rateChart(words.rate));
      dirty = false;
      if (parts.length === 0) root.hidden = true;
      else if (plots.length === 0 || root.hidden) build();
      else refresh();
    },
  };
}

/** Inserts a row where its x belongs, which is almost always the end. */
function insert(table: (number | null)[][], x: number, row: (number | null)[]): void {
  const xs = table[0] as number[];
  let i = xs.length;
  while (i > 0 && (xs[i - 1] ?? 0) > x) i--;
  xs.splice(i, 0, x);
  row.forEach((v, k) => table[k + 1]?.splice(i, 0, v));
}

/** Means over three bins, as the live curve has them: senders come in bursts. */
function smooth(v: number[]): number[] {
  return v.map((_, i) => {
    const part = v.slice(Math.max(0, i - 2), i + 1);
    return part.reduce((a, b) => a + b, 0) / part.length;
  });
}

function describe(t: Test): string {
  return phasesOf(t)
    .map(({ name, phase }) => say.phaseIs(say.phase[name], ms(phase.latency.rtt_ms.p50), ms(phase.latency.rtt_ms.p95)))
    .join(" ");
}

type Ink = Record<"text" | "muted" | "line" | "band" | (typeof inks)[number], string>;

/** The style sheet's colours; they change with the colour scheme. */
function colours(): Ink {
  const css = getComputedStyle(document.documentElement);
  const get = (name: string): string => css.getPropertyValue(`--${name}`).trim();
  return {
    text: get("text"), muted: get("muted"), line: get("line"), band: get("band"),
    idle: get("idle"), download: get("download"), upload: get("upload"), both: get("both"), loaded: get("both"),
  };
}

interface Shared {
  width: number;
  ink: Ink;
  bands: () => Band[];
  end: () => number;
}

function options(s: Shared, height: number, series: uPlot.Series[], y: uPlot.Scale, axis: uPlot.Axis): uPlot.Options {
  const font = "12px system-ui, sans-serif";
  const look = { stroke: s.ink.muted, font, grid: { stroke: s.ink.line, width: 1 }, ticks: { show: false } };
  return {
    width: s.width,
    height,
    padding: [18, 16, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: false, range: () => [0, s.end()] }, y },
    series: [{}, ...series],
    axes: [
      { ...look, size: 26, gap: 4, space: 60, incrs: [1, 2, 5, 10, 20, 50, 100], grid: { show: false }, values: (_, v) => v.map((x) => `${x} s`) },
      { ...look, size: 44, gap: 6, ...axis },
    ],
    hooks: { drawClear: [(u) => paintBands(u, s)] },
  };
}

/** Shades each phase and writes its name above. */
function paintBands(u: uPlot, s: Shared): void {
  const c = u.ctx;
  const ratio = devicePixelRatio;
  c.save();
  c.font = `600 ${12 * ratio}px system-ui, sans-serif`;
  c.textBaseline = "bottom";
  c.textAlign = "left";
  const bands = s.bands();
  bands.forEach((b, i) => {
    const from = u.valToPos(b.from, "x", true);
    const to = u.valToPos(Math.min(b.to, s.end()), "x", true);
    c.fillStyle = s.ink.band;
    c.fillRect(from, u.bbox.top, to - from, u.bbox.height);
    const name = say.phase[b.name as keyof typeof say.phase] ?? b.name;
    const next = bands[i + 1];
    const room = next === undefined ? u.bbox.left + u.bbox.width - from : u.valToPos(next.from, "x", true) - from - 4 * ratio;
    if (c.measureText(name).width > room) return;
    c.fillStyle = s.ink[b.name as keyof Ink] ?? s.ink.text;
    c.fillText(name, from, u.bbox.top - 3 * ratio);
  });
  c.restore();
}

function latencyOptions(s: Shared): uPlot.Options {
  const series = inks.map((name) => ({ stroke: s.ink[name], width: 1.5, points: { show: false }, spanGaps: false }));
  return options(
    s,
    latencyHeight,
    series,
    { distr: 3, range: (_, min, max) => decade(min, max) },
    { splits: (_, __, min, max) => ticks(min, max), values: (_, v) => v.map((x) => (x === null ? "" : numeral(String(x)))), filter: (_, v) => v },
  );
}

const nice = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4];

/** The range of the latency axis: at least a factor of 20, so that noise looks small. */
function decade(min: number | null, max: number | null): [number, number] {
  if (min === null || max === null || !(max > 0)) return [1, 1000];
  const low = nice.findLast((n) => n <= min) ?? 0.05;
  const high = nice.find((n) => n >= Math.max(max, low * 20)) ?? 5e4;
  return [low, high];
}

function ticks(min: number, max: number): number[] {
  const inside = nice.filter((n) => n >= min * 0.999 && n <= max * 1.001);
  return inside.length <= 7 ? inside : inside.filter((n) => Number.isInteger(Math.log10(n) + 1e-9) || Math.abs(Math.log10(n) % 1) < 1e-6);
}

function rateOptions(s: Shared): uPlot.Options {
  const line = { width: 2, points: { show: false }, spanGaps: true };
  return options(
    s,
    rateHeight,
    [
      { ...line, stroke: s.ink.download, spanGaps: false, gaps: gapsOver(1) },
      { ...line, stroke: s.ink.upload, dash: [6, 3], spanGaps: false, gaps: gapsOver(1) },
    ],
    { range: (_, __, max) => [0, Math.max(1, (max ?? 0) * 1.1)] },
    { space: 30, values: (_, v) => v.map((x) => numeral(String(x))) },
  );
}

/** Breaks a line only where nothing was measured for so many seconds. */
function gapsOver(seconds: number): NonNullable<uPlot.Series["gaps"]> {
  return (u, seriesIdx) => {
    const xs = u.data[0];
    const ys = u.data[seriesIdx];
    const out: [number, number][] = [];
    let last = -Infinity;
    xs.forEach((x, i) => {
      if (ys?.[i] == null) return;
      if (x - last > seconds && last > -Infinity) out.push([u.valToPos(last, "x", true), u.valToPos(x, "x", true)]);
      last = x;
    });
    return out;
  };
}
