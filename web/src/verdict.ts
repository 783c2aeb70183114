// The rules of internal/page.Judge and internal/verdict, so that the page can
// show a result at once. The server computes it again, and its test
// TestPageJudgesAlike holds both to the same figures.
import type { Latency, Phase, PhaseName, Quantiles, RawPhase, Submission, Test, Timeline } from "./wire";

const mostLateMs = 5;
const mostTickUs = 2000;
const minSamples = 30;
const maxRise = 1.25;
const minThirdUs = 1e6;
const idleSpreadMs = 30;
const idleSpreadOf = 0.5;

/** The grade of a latency increase in ms, on DSLReports' scale. */
export function gradeOf(increase: number): string {
  if (increase < 5) return "A+";
  if (increase < 30) return "A";
  if (increase < 60) return "B";
  if (increase < 200) return "C";
  return increase < 400 ? "D" : "F";
}

const grades = ["", "A+", "A", "B", "C", "D", "F"];

function worse(a: string, b: string): string {
  return grades.indexOf(a) >= grades.indexOf(b) ? a : b;
}

/** What counts of a phase, as internal/page.edges has it. */
export function edges(p: RawPhase): { from: number; to: number } {
  if (p.name === "idle") return { from: p.start_us, to: p.end_us };
  const d = p.end_us - p.start_us;
  return {
    from: p.start_us + Math.min(Math.floor(d / 4), 2_500_000),
    to: p.end_us - Math.min(Math.floor(d / 40), 250_000),
  };
}

/** Rounds half away from zero, as Go does. */
function round(v: number): number {
  return Math.sign(v) * Math.round(Math.abs(v));
}

function milli(v: number): number {
  return round(v * 1e4) / 1e4 + 0; // + 0: no -0
}

/** The q-quantile by the nearest-rank rule. */
function rank(sorted: number[], q: number): number {
  const i = Math.ceil(q * sorted.length - 1e-9) - 1;
  return sorted[Math.min(Math.max(i, 0), sorted.length - 1)] ?? 0;
}

function ascending(v: number[]): number[] {
  return v.slice().sort((a, b) => a - b);
}

/** Summarises values in µs; the result is in ms. */
function summarise(us: number[]): Quantiles {
  if (us.length === 0) return { min: 0, mean: 0, p50: 0, p90: 0, p95: 0, p99: 0, max: 0 };
  const v = ascending(us);
  const sum = v.reduce((a, b) => a + b * 1e3, 0);
  const ms = (x: number): number => milli(x / 1e3);
  return {
    min: ms(rank(v, 0)),
    mean: milli(sum / v.length / 1e6),
    p50: ms(rank(v, 0.5)),
    p90: ms(rank(v, 0.9)),
    p95: ms(rank(v, 0.95)),
    p99: ms(rank(v, 0.99)),
    max: ms(rank(v, 1)),
  };
}

interface Values {
  rtt: number[];
  up: number[];
  down: number[];
}

interface Baseline {
  rtt: number;
  up: number;
  down: number;
}

/** The probes that count, as indices. */
function counted(p: RawPhase): number[] {
  const { from, to } = edges(p);
  const out: number[] = [];
  p.probes.sent_us.forEach((t, i) => {
    if (t >= from && t < to) out.push(i);
  });
  return out;
}

const at = (column: number[], i: number): number => column[i] ?? 0;

function rttOf(p: RawPhase, i: number): number {
  return at(p.probes.received_us, i) - at(p.probes.sent_us, i) - at(p.probes.held_us, i);
}

function answered(p: RawPhase, i: number): boolean {
  return at(p.probes.received_us, i) >= 0;
}

function valuesOf(p: RawPhase): Values {
  const v: Values = { rtt: [], up: [], down: [] };
  for (const i of counted(p)) {
    if (!answered(p, i)) continue;
    const server = at(p.probes.server_us, i) + 1;
    v.rtt.push(rttOf(p, i));
    v.up.push(server - at(p.probes.sent_us, i));
    v.down.push(at(p.probes.received_us, i) - server - at(p.probes.held_us, i));
  }
  return v;
}

function median(v: number[]): number {
  return v.length === 0 ? 0 : rank(ascending(v), 0.5);
}

function fraction(n: number, of: number): number {
  return of <= 0 ? 0 : round((n / of) * 1e6) / 1e6;
}

function latencyOf(p: RawPhase, base: Baseline): Latency {
  const all = counted(p);
  const v = valuesOf(p);
  const open = all.length - v.rtt.length;
  let sum = 0;
  let n = 0;
  all.forEach((i, k) => {
    const before = all[k - 1];
    if (before !== undefined && answered(p, before) && answered(p, i)) {
      sum += Math.abs(rttOf(p, i) - rttOf(p, before)) * 1e3;
      n++;
    }
  });
  const shift = (x: number[], by: number): Quantiles => summarise(x.map((y) => y - by));
  return {
    sent: all.length,
    received: v.rtt.length,
    loss: fraction(open, all.length),
    loss_up: fraction(open, all.length),
    loss_down: 0,
    ipdv_ms: n === 0 ? 0 : milli(sum / n / 1e6),
    rtt_ms: summarise(v.rtt),
    increase_ms: shift(v.rtt, base.rtt),
    up_ms: shift(v.up, base.up),
    down_ms: shift(v.down, base.down),
  };
}

/** Goodput in [from, to), in bit/s; a bin that is cut counts in proportion. */
function goodput(p: RawPhase, bytes: number[], from: number, to: number): number {
  if (from >= to) return 0;
  let sum = 0;
  bytes.forEach((b, i) => {
    const lo = p.start_us + i * p.bin_us;
    const part = Math.min(lo + p.bin_us, to) - Math.max(lo, from);
    if (part > 0) sum += (b * part) / p.bin_us;
  });
  return round((sum * 8) / ((to - from) / 1e6));
}

/** How late each counted probe left, in µs; a skipped one as late as it was. */
function lateness(p: RawPhase, interval: number): number[] {
  const { from, to } = edges(p);
  const late = counted(p).map((i) => at(p.probes.sent_us, i) - at(p.probes.due_us, i));
  for (const k of p.skips) {
    if (k.at_us < from || k.at_us >= to) continue;
    for (let i = 0; i < k.probes; i++) late.push(Math.max(k.late_us - i * interval, 0));
  }
  return late;
}

function unsaturated(p: RawPhase, name: "down" | "up"): string {
  const bytes = name === "down" ? p.down_bytes : p.up_bytes;
  const { from, to } = edges(p);
  const third = Math.floor(((to - from) * 1e3) / 3) / 1e3; // whole ns, as there
  const first = goodput(p, bytes, from, from + third);
  const last = goodput(p, bytes, to - third, to);
  if (goodput(p, bytes, from, to) <= 0) return `nothing arrived in the ${name} direction`;
  if (third >= minThirdUs && last > first * maxRise) {
    return `the ${name} rate was still rising (${rateWords(first)}, later ${rateWords(last)}); a longer test settles`;
  }
  return "";
}

/** Why a phase's load did not fill the line; one full direction is enough. */
function notFull(p: RawPhase): string {
  const why = (["down", "up"] as const).filter((d) => p.flows[d] > 0).map((d) => unsaturated(p, d));
  return why.length === 0 || why.includes("") ? "" : why.join("; ");
}

function invalid(raw: RawPhase, p: Phase): string[] {
  const why: string[] = [];
  const l = p.latency;
  if (l.received < minSamples) {
    why.push(`only ${l.received} of ${l.sent} probes were answered in time to be counted (at least ${minSamples} are needed)`);
  }
  if (raw.broken > 0) why.push(`${raw.broken} flows broke off: the browser lost the connection`);
  if (raw.name === "idle") {
    const { p50, p90 } = l.rtt_ms;
    if (p90 - p50 > Math.max(idleSpreadMs, idleSpreadOf * p50)) {
      why.push(`the round trip was unsteady (p50 ${p50.toFixed(1)} ms, p90 ${p90.toFixed(1)} ms): something else uses the line`);
    }
  }
  const empty = notFull(raw);
  if (empty !== "") why.push(`the line was not full, which proves nothing: ${empty}`);
  return why.map((w) => `${raw.name}: ${w}`);
}

/** Computes the result of what was measured; time and server stay empty. */
export function judge(s: Submission): Test {
  const t: Test = {
    schema: "unbloat.test/1", time: "", label: "browser", server: "", valid: false, invalid_reasons: [],
    grade: "", grade_down: "", grade_up: "", verdict: "",
    notes: [
      "CPU load is not judged: a browser does not tell it",
      s.transport === "webtransport"
        ? "probes ran as datagrams (WebTransport), beside TCP"
        : "probes ran over TCP (WebSocket), so a lost one shows as a slow one",
    ],
  };
  if (s.protocol === "h2" || s.protocol === "h3") t.notes?.push(`all loads shared one connection (${s.protocol})`);
  const idle = s.phases[0];
  if (idle === undefined) return t;
  const v = valuesOf(idle);
  const base = { rtt: median(v.rtt), up: median(v.up), down: median(v.down) };
  const late: string[] = [];
  for (const raw of s.phases) {
    const p = phaseOf(raw, base, s, late);
    t[raw.name] = p;
    t.invalid_reasons.push(...invalid(raw, p));
  }
  t.invalid_reasons = [...spoilt(s), ...late, ...t.invalid_reasons];
  t.valid = t.invalid_reasons.length === 0;
  if (t.valid) {
    t.grade_down = t.download ? gradeOf(t.download.latency.increase_ms.p95) : "";
    t.grade_up = t.upload ? gradeOf(t.upload.latency.increase_ms.p95) : "";
    const both = t.both ? gradeOf(t.both.latency.increase_ms.p95) : "";
    t.grade = worse(worse(t.grade_down, t.grade_up), both);
  }
  t.verdict = sentence(t);
  return t;
}

function phaseOf(raw: RawPhase, base: Baseline, s: Submission, late: string[]): Phase {
  const { from, to } = edges(raw);
  const q = summarise(lateness(raw, s.interval_us));
  if (q.p95 > mostLateMs) {
    late.push(`${raw.name}: probes left late (p95 ${q.p95.toFixed(1)} ms, at most ${mostLateMs} ms): this device or browser was too busy`);
  }
  const loaded = raw.flows.down + raw.flows.up > 0;
  const full = (["down", "up"] as const).every((d) => raw.flows[d] === 0 || unsaturated(raw, d) === "");
  return {
    seconds: milli((to - from) / 1e6),
    flows_down: raw.flows.down,
    flows_up: raw.flows.up,
    goodput_down_bps: raw.flows.down > 0 ? goodput(raw, raw.down_bytes, from, to) : 0,
    goodput_up_bps: raw.flows.up > 0 ? goodput(raw, raw.up_bytes, from, to) : 0,
    saturated: loaded && full,
    latency: latencyOf(raw, base),
    cpu: 0,
    server_cpu: 0,
    probe_lateness_ms: { p99: q.p99, max: q.max },
    retransmits: 0,
    series: timeline(raw, s.phases[0]?.start_us ?? 0),
  };
}

/** What is drawn of a phase: seconds since the idle phase began. */
function timeline(p: RawPhase, origin: number): Timeline {
  const bin = 1e5;
  const bins = (bytes: number[]): number[] => {
    const out: number[] = [];
    for (let t = p.start_us; t < p.end_us; t += bin) out.push(milli(goodput(p, bytes, t, Math.min(t + bin, p.end_us)) / 1e6));
    return out;
  };
  return {
    start_s: milli((p.start_us - origin) / 1e6),
    end_s: milli((p.end_us - origin) / 1e6),
    t_s: p.probes.sent_us.map((t) => milli((t - origin) / 1e6)),
    rtt_ms: p.probes.sent_us.map((_, i) => (answered(p, i) ? rttOf(p, i) / 1e3 : null)),
    bin_s: bin / 1e6,
    down_mbps: p.flows.down > 0 ? bins(p.down_bytes) : [],
    up_mbps: p.flows.up > 0 ? bins(p.up_bytes) : [],
  };
}

function spoilt(s: Submission): string[] {
  const why: string[] = [];
  if (s.hidden_us > 0) {
    why.push(`the page was not in front for ${(s.hidden_us / 1e6).toFixed(1)} s, and browsers slow down what is not`);
  }
  if (s.tick_us > mostTickUs) why.push(`this browser's clock only ticks every ${(s.tick_us / 1e3).toFixed(1)} ms`);
  return why;
}

/** The phases of a test in the order they ran. */
export function phasesOf(t: Test): { name: PhaseName | "loaded"; phase: Phase }[] {
  return (["idle", "download", "upload", "both", "loaded"] as const).flatMap((name) => {
    const phase = t[name];
    return phase === undefined ? [] : [{ name, phase }];
  });
}

const meaning: Record<string, string> = {
  "A+": "nothing that anybody would notice",
  A: "calls and games stay good",
  B: "calls stay good, games feel it",
  C: "calls stumble and games lag",
  D: "calls break up and pages crawl",
  F: "calls fail and everything feels broken",
};

const when: Record<string, string> = {
  download: "While something downloads",
  upload: "While something uploads",
  both: "While something uploads and downloads",
};

function sentence(t: Test): string {
  if (!t.valid) {
    const n = t.invalid_reasons.length;
    return `This measurement is not valid: ${t.invalid_reasons[0]}${n > 1 ? ` (and ${n - 1} more reasons)` : ""}.`;
  }
  const loaded = phasesOf(t).filter((p) => p.name !== "idle");
  const idle = t.idle?.latency.rtt_ms.p50 ?? 0;
  const first = loaded[0];
  if (first === undefined) return `Idle round trip ${msWords(idle)}; nothing was loaded, so nothing is graded.`;
  const most = (f: (p: Phase) => number): typeof first => loaded.reduce((a, b) => (f(b.phase) > f(a.phase) ? b : a), first);
  const worst = most((p) => p.latency.increase_ms.p95);
  let s = `${when[worst.name]}, the round trip goes from ${msWords(idle)} to ${msWords(worst.phase.latency.rtt_ms.p95)}: ${meaning[t.grade]}.`;
  const lossy = most((p) => p.latency.loss);
  const loss = lossy.phase.latency.loss;
  if (loss >= 0.01) {
    const effect = loss >= 0.05 ? ", which breaks up calls whatever the delay" : "";
    s += ` In phase ${lossy.name} ${(100 * loss).toFixed(1)} % of the probes were lost${effect}.`;
  }
  return s;
}

/** Milliseconds with three digits, as internal/verdict prints them. */
export function msWords(v: number): string {
  if (v >= 99.95) return `${v.toFixed(0)} ms`;
  return `${v.toFixed(v >= 9.995 ? 1 : 2)} ms`;
}

/** A rate with three digits, as unit.Rate.Short prints it. */
export function rateWords(bps: number): string {
  const units: [number, string][] = [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]];
  const [of, name] = units.find(([u]) => bps >= u * 0.9995) ?? [1, "bit/s"];
  const f = bps / of;
  return `${f.toFixed(f >= 99.95 ? 0 : f >= 9.995 ? 1 : 2)} ${name}`;
}
