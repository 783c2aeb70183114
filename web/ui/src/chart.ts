// Delay and rates of a line over time: two curves above each other on one axis of
// time, drawn as SVG. Beside them the same is said in words and as a table.
import type { DaemonHistory } from "./api.gen";
import { el, type Child } from "../../src/dom";
import { quantile } from "./judge";
import { clock, mbit, ms, numeral, rate, say } from "./say";
import { svg } from "./tree";

const left = 44;
const right = 8;
const idleBps = 100_000;

interface Bucket {
  at: number;
  delay: number; // worst; -1: not known
  down: number;
  up: number;
  limitDown: number;
  limitUp: number;
}

/** One bucket for each few pixels. A bucket without figures is left out. */
function buckets(l: DaemonHistory, from: number, to: number, count: number): (Bucket | null)[] {
  const width = (to - from) / count;
  const sums = Array.from({ length: count }, () => ({ n: 0, delay: -1, down: 0, up: 0, limitDown: 0, limitUp: 0, limitedDown: 0, limitedUp: 0 }));
  l.at_ms.forEach((at, i) => {
    const b = sums[Math.floor((at - from) / width)];
    if (b === undefined) return;
    b.n++;
    b.delay = Math.max(b.delay, l.down.delay_max_ms[i] ?? -1, l.up.delay_max_ms[i] ?? -1);
    b.down += l.down.carried_bps[i] ?? 0;
    b.up += l.up.carried_bps[i] ?? 0;
    // While nothing was limited there is no limit, and none of 0.
    const limitDown = l.down.rate_bps[i] ?? 0;
    const limitUp = l.up.rate_bps[i] ?? 0;
    b.limitDown += limitDown;
    b.limitUp += limitUp;
    if (limitDown > 0) b.limitedDown++;
    if (limitUp > 0) b.limitedUp++;
  });
  return sums.map((b, i) => (b.n === 0 ? null : { at: from + i * width, delay: b.delay, down: b.down / b.n, up: b.up / b.n, limitDown: b.limitDown / Math.max(1, b.limitedDown), limitUp: b.limitUp / Math.max(1, b.limitedUp) }));
}

/** A round figure at or above v. */
function above(v: number): number {
  const power = 10 ** Math.floor(Math.log10(v));
  return ([1, 2, 3, 4, 5, 6, 8, 10].find((n) => n * power >= v * 0.999) ?? 10) * power;
}

/** A curve through values, broken where there is none. */
function curve(values: (number | null)[], x: (i: number) => number, y: (v: number) => number): string {
  let path = "";
  let pen = false;
  values.forEach((v, i) => {
    if (v === null || v < 0) {
      pen = false;
      return;
    }
    path += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    // A value that stands alone is a short stroke, so that it is seen.
    if (!pen && (values[i + 1] ?? null) === null) path += "h1.5";
    pen = true;
  });
  return path;
}

function panel(width: number, height: number, most: number, body: (x: (i: number, n: number) => number, y: (v: number) => number) => SVGElement[], times: [number, string][], label: string): SVGElement {
  const plot = height - (times.length > 0 ? 26 : 8);
  const x = (i: number, n: number): number => left + (i / Math.max(1, n - 1)) * (width - left - right);
  const y = (v: number): number => plot - (Math.min(v, most) / most) * (plot - 8);
  const grid = [0, most / 2, most].flatMap((v) => [
    svg("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), class: "grid" }),
    svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, numeral(String(Number(v.toPrecision(3))))),
  ]);
  const axis = times.map(([share, text]) => svg("text", { x: left + share * (width - left - right), y: height - 4, "text-anchor": share < 0.05 ? "start" : share > 0.95 ? "end" : "middle" }, text));
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "plot" }, ...grid, ...body(x, y), ...axis);
}

/** Where a chart begins: what was before anything was known is left out, but for five minutes at least. */
export function begins(l: DaemonHistory, from: number, to: number): number {
  return Math.max(from, Math.min(l.at_ms[0] ?? from, to - 300_000));
}

/** Draws what a line did between two times, width pixels wide. */
export function chart(l: DaemonHistory, since: number, to: number, width: number, title: string): HTMLElement {
  const from = begins(l, since, to);
  const id = `chart-${l.step_seconds}`;
  const wide = Math.max(240, width);
  const all = buckets(l, from, to, Math.max(60, Math.floor((wide - left - right) / 2)));
  const known = all.filter((b) => b !== null);
  const head = el("h2", { id }, title);
  if (known.length === 0) return el("section", { class: "history", "aria-labelledby": id, "data-key": id }, head, el("p", { class: "muted" }, say.noHour));

  const delays = all.map((b) => b?.delay ?? null);
  const measured = known.some((b) => b.delay >= 0);
  const told = words(l, known, measured);
  const span = to - from;
  const times: [number, string][] = (wide < 480 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]).map((s) => [s, clock(from + s * span)]);
  const parts: Child[] = [head, el("p", { class: "muted" }, told)];
  if (measured) {
    const most = above(Math.max(20, ...known.map((b) => b.delay)));
    parts.push(
      el("h3", {}, say.delayAdded),
      panel(wide, 130, most, (x, y) => [svg("path", { d: curve(delays, (i) => x(i, all.length), y), class: "delay" })], [], `${say.delayAdded}. ${told}`),
    );
  }
  parts.push(el("p", { class: "legend" }, el("span", { class: "key" }, say.carried), el("span", { class: "key limit" }, say.keyLimit)));
  // Each direction has its own scale: a line that sends a tenth of what it receives is common.
  const ways = [
    { name: say.downMbit, ink: "down", used: (b: Bucket) => b.down, limit: (b: Bucket) => b.limitDown, times: [] as [number, string][] },
    { name: say.upMbit, ink: "up", used: (b: Bucket) => b.up, limit: (b: Bucket) => b.limitUp, times },
  ];
  for (const { name, ink, used, limit, times } of ways) {
    const most = above(Math.max(1e5, ...known.map((b) => Math.max(used(b), limit(b)))) / 1e6);
    const drawn = (pick: (b: Bucket) => number | null, ink: string) => (x: (i: number, n: number) => number, y: (v: number) => number) =>
      svg("path", { d: curve(all.map((b) => (b === null ? null : pick(b))), (i) => x(i, all.length), y), class: ink });
    const curves = [drawn((b) => limit(b) / 1e6 || null, "limit"), drawn((b) => used(b) / 1e6, ink)];
    parts.push(el("h3", {}, name), panel(wide, times.length > 0 ? 116 : 98, most, (x, y) => curves.map((c) => c(x, y)), times, `${name}. ${told}`));
  }
  parts.push(
    table(known, from, to, measured),
  );
  return el("section", { class: "history", "aria-labelledby": id, "data-key": id }, ...parts);
}

function words(l: DaemonHistory, known: Bucket[], measured: boolean): string {
  const parts: string[] = [];
  const down = Math.max(...known.map((b) => b.down));
  const up = Math.max(...known.map((b) => b.up));
  if (measured) {
    const moments = l.at_ms.map((at, i) => ({ at, added: Math.max(l.down.delay_max_ms[i] ?? -1, l.up.delay_max_ms[i] ?? -1) })).filter((m) => m.added >= 0);
    const worst = moments.reduce((a, b) => (b.added > a.added ? b : a));
    parts.push(say.hourIs(ms(quantile(moments.map((m) => m.added), 0.95)), ms(worst.added), clock(worst.at)));
  } else {
    parts.push(say.noDelay);
  }
  parts.push(down < idleBps && up < idleBps ? say.allIdle : say.ratesWere(rate(down), rate(up)));
  return parts.join(" ");
}

function table(known: Bucket[], from: number, to: number, measured: boolean): HTMLElement {
  const rows = 6;
  const step = (to - from) / rows;
  const body = el("tbody");
  for (let i = 0; i < rows; i++) {
    const part = known.filter((b) => b.at >= from + i * step && b.at < from + (i + 1) * step);
    if (part.length === 0) continue;
    const most = (pick: (b: Bucket) => number): number => Math.max(...part.map(pick));
    const delay = most((b) => b.delay);
    body.append(
      el("tr", {}, el("th", { scope: "row" }, clock(from + i * step)), ...(measured ? [el("td", {}, delay < 0 ? "–" : ms(delay))] : []), el("td", {}, mbit(most((b) => b.down))), el("td", {}, mbit(most((b) => b.up)))),
    );
  }
  const heads = [say.from, ...(measured ? [say.worst] : []), say.downMbit, say.upMbit];
  return el(
    "details",
    {},
    el("summary", {}, say.asTable),
    el("div", { class: "wrap" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", { scope: "col" }, h)))), body)),
  );
}
