// Runs a test: phases, workers, and the results as a Submission. It does not
// touch the page; the panels are informed through Listener.
import type { FromLoad, FromProbe, Sample, ToLoad, ToProbe } from "./wire";
import type { Hello, PhaseName, RawPhase, Submission, Transport } from "./wire.gen";
import { say } from "./lang";
import { clock } from "./wire";

/** Ends a run that the visitor stopped. */
export class Stopped extends Error {}

export interface Plan {
  idleMs: number;
  loadMs: number;
  both: boolean;
}

/** Hears how the test goes. Times are in seconds since the test began. */
export interface Listener {
  phase(name: PhaseName | "settle" | "judge", start: number, length: number): void;
  probe(at: number, rtt: number): void;
  rate(direction: "down" | "up", at: number, mbps: number): void;
  hello(h: Hello): void;
}

const interval = 20; // ms between probes
const bin = 100; // ms of a throughput bin
const flows = 4; // one direction
const flowsBoth = 3; // each way: browsers open at most six connections to a host
const drainLimit = 10_000; // ms to wait after a load until the line is idle again

interface PhaseLog {
  name: PhaseName;
  start: number; // clock(), ms
  end: number;
  loads: Load[];
}

/** A test that is under way. */
export class Run {
  private readonly probe = new Worker(new URL("./probe.worker.ts", import.meta.url), { type: "module" });
  private readonly phases: PhaseLog[] = [];
  private readonly recent: Sample[] = [];
  private readonly uploads = new Uploads();
  private open = 0;
  private epoch = 0;
  private ceiling = Infinity; // ms; below it the line counts as idle again
  private hidden = 0;
  private hiddenSince = 0;
  private hello: Hello | undefined;
  private tick = 0;
  private transport: Transport = "websocket";
  private fail: (why: Error) => void = () => undefined;
  private readonly failed = new Promise<never>((_, reject) => (this.fail = reject));
  private onHello: () => void = () => undefined;
  private onFinished: (m: Extract<FromProbe, { is: "finished" }>) => void = () => undefined;

  constructor(
    private readonly plan: Plan,
    private readonly to: Listener,
  ) {
    this.failed.catch(() => undefined); // it is raced with all that is waited for
    this.probe.onmessage = (e: MessageEvent<FromProbe>) => this.hear(e.data);
    this.probe.onerror = () => this.fail(new Error(say.noWorkers));
  }

  get session(): string {
    return this.hello?.session ?? "";
  }

  get server(): string {
    return this.hello?.server ?? "";
  }

  /** Runs all phases. It fails when the connection breaks or on stop(). */
  async run(): Promise<Submission> {
    const watch = (): void => this.look();
    document.addEventListener("visibilitychange", watch);
    this.look();
    try {
      return await Promise.race([this.all(), this.failed]);
    } finally {
      document.removeEventListener("visibilitychange", watch);
      for (const p of this.phases) for (const l of p.loads) l.kill();
    }
  }

  stop(): void {
    this.fail(new Stopped());
  }

  /** Ends the session. The result must have been sent by then. */
  close(): void {
    this.tell({ do: "close" });
    setTimeout(() => this.probe.terminate(), 500);
  }

  private tell(m: ToProbe): void {
    this.probe.postMessage(m);
  }

  private look(): void {
    const now = clock();
    if (document.visibilityState === "hidden") this.hiddenSince ||= now;
    else if (this.hiddenSince > 0) {
      this.hidden += now - this.hiddenSince;
      this.hiddenSince = 0;
    }
  }

  private hear(m: FromProbe): void {
    switch (m.is) {
      case "hello":
        this.hello = m.hello;
        this.tick = m.tick;
        this.transport = m.transport;
        this.to.hello(m.hello);
        this.onHello();
        break;
      case "answers":
        this.open = m.open;
        for (const s of m.samples) this.answer(s);
        break;
      case "finished":
        this.onFinished(m);
        break;
      case "closed":
        this.fail(new Error(m.told || say.closed[m.why]));
        break;
    }
  }

  private answer(s: Sample): void {
    const rtt = rttOf(s);
    if (this.epoch === 0 || s.sent < this.epoch) return; // only warming up
    this.recent.push(s);
    if (this.recent.length > 1000) this.recent.shift();
    this.to.probe((s.sent - this.epoch) / 1e3, rtt);
    this.uploads.add(s);
    const up = this.phases.at(-1)?.loads.some((l) => l.direction === "up");
    if (up === true) this.to.rate("up", (s.received - this.epoch) / 1e3, this.uploads.recentMbps());
  }

  private async all(): Promise<Submission> {
    const url = new URL("/api/probe", location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    await new Promise<void>((resolve) => {
      this.onHello = resolve;
      this.tell({ do: "open", url: url.href, interval });
    });
    this.tell({ do: "start" });
    await pause(300); // the first round trips pay for waking everything up
    this.epoch = clock();
    await this.phase("idle", this.plan.idleMs, 0, 0);
    this.remember();
    await this.phase("download", this.plan.loadMs, flows, 0);
    await this.phase("upload", this.plan.loadMs, 0, flows);
    if (this.plan.both) await this.phase("both", this.plan.loadMs, flowsBoth, flowsBoth);
    this.to.phase("judge", this.since(), 0);
    const all = await new Promise<Extract<FromProbe, { is: "finished" }>>((resolve) => {
      this.onFinished = resolve;
      this.tell({ do: "finish", wait: drainLimit });
    });
    this.look();
    return this.submission(all.samples, all.skips);
  }

  private since(): number {
    return (clock() - this.epoch) / 1e3;
  }

  private async phase(name: PhaseName, length: number, down: number, up: number): Promise<void> {
    const log: PhaseLog = { name, start: clock(), end: 0, loads: [] };
    const most = Math.floor((this.hello?.flows ?? flows) / (down > 0 && up > 0 ? 2 : 1));
    const loads = (direction: "down" | "up", n: number): void => {
      for (let i = 0; i < Math.min(n, most); i++) log.loads.push(new Load(direction, this.session, log.start));
    };
    loads("down", down);
    loads("up", up);
    this.phases.push(log);
    this.to.phase(name, this.since(), length / 1e3);
    const live = setInterval(() => this.report(log), 100);
    await pause(log.start + length - clock());
    clearInterval(live);
    log.end = clock();
    await Promise.all(log.loads.map((l) => l.stop()));
    if (log.loads.length > 0) {
      this.to.phase("settle", this.since(), 0);
      await this.settle(log.end);
    }
  }

  /** Tells the download rate of the bins that are surely over. */
  private report(log: PhaseLog): void {
    const down = log.loads.filter((l) => l.direction === "down");
    if (down.length === 0) return;
    const over = Math.floor((clock() - log.start - 250) / bin);
    const span = 3;
    if (over < span) return;
    let bytes = 0;
    for (const l of down) for (let i = over - span; i < over; i++) bytes += l.bins[i] ?? 0;
    this.to.rate("down", (log.start + over * bin - this.epoch) / 1e3, (bytes * 8) / (span * bin * 1e3));
  }

  /** Notes what the line is like without load: its p95, and a little more. */
  private remember(): void {
    const rtts = this.recent.map(rttOf).sort((a, b) => a - b);
    const p50 = rtts[Math.floor(rtts.length / 2)] ?? 0;
    this.ceiling = (rtts[Math.floor(rtts.length * 0.95)] ?? Infinity) + Math.max(2, p50 / 10);
  }

  /** Waits until the queues of the last load are empty. */
  private async settle(end: number): Promise<void> {
    const limit = clock() + drainLimit;
    for (;;) {
      await pause(50);
      const last = this.recent.filter((s) => s.sent > end).slice(-8);
      const calm = last.length === 8 && last.filter((s) => rttOf(s) <= this.ceiling).length >= 6;
      if (calm && this.open <= 8 + this.ceiling / interval) return;
      if (clock() > limit) return;
    }
  }

  private submission(samples: Sample[], skips: { at: number; probes: number; late: number }[]): Submission {
    const us = (t: number): number => Math.round((t - this.epoch) * 1e3);
    this.uploads.finish(samples);
    return {
      schema: "unbloat.raw/1",
      interval_us: interval * 1e3,
      tick_us: Math.round(this.tick * 1e3),
      hidden_us: Math.round(this.hidden * 1e3),
      protocol: protocolUsed(),
      transport: this.transport,
      phases: this.phases.map((p) => this.raw(p, samples, skips, us)),
    };
  }

  private raw(
    p: PhaseLog,
    samples: Sample[],
    skips: { at: number; probes: number; late: number }[],
    us: (t: number) => number,
  ): RawPhase {
    const start = us(p.start);
    const end = us(p.end);
    const mine = samples.filter((s) => us(s.sent) >= start && us(s.sent) < end);
    const column = (f: (s: Sample) => number): number[] => mine.map(f);
    const count = (d: "down" | "up"): number => p.loads.filter((l) => l.direction === d).length;
    const edges = Array.from({ length: Math.ceil((p.end - p.start) / bin) }, (_, i) => p.start + i * bin);
    const isAnswered = (s: Sample): boolean => s.received >= 0;
    return {
      name: p.name,
      start_us: start,
      end_us: end,
      flows: { down: count("down"), up: count("up") },
      broken: p.loads.filter((l) => l.broken).length,
      probes: {
        due_us: column((s) => Math.max(0, Math.min(us(s.due), us(s.sent)))),
        sent_us: column((s) => us(s.sent)),
        received_us: column((s) => (isAnswered(s) ? Math.max(us(s.received), us(s.sent)) : -1)),
        server_us: column((s) => (isAnswered(s) ? Math.round(s.server) : 0)),
        held_us: column((s) => (isAnswered(s) ? Math.min(Math.round(s.held), us(s.received) - us(s.sent)) : 0)),
      },
      skips: skips
        .filter((k) => us(k.at) >= start && us(k.at) < end)
        .map((k) => ({ at_us: us(k.at), probes: k.probes, late_us: Math.round(k.late * 1e3) })),
      bin_us: bin * 1e3,
      down_bytes:
        count("down") > 0 ? edges.map((_, i) => p.loads.reduce((sum, l) => sum + (l.bins[i] ?? 0), 0)) : [],
      up_bytes: count("up") > 0 ? edges.map((t) => this.uploads.between(t, t + bin)) : [],
    };
  }
}

/** One flow of load in its worker. */
class Load {
  readonly bins: number[] = []; // bytes that came, of a download
  broken = false;
  private readonly worker = new Worker(new URL("./load.worker.ts", import.meta.url), { type: "module" });
  private readonly done: Promise<void>;

  constructor(
    readonly direction: "down" | "up",
    session: string,
    epoch: number,
  ) {
    this.done = new Promise((resolve) => {
      this.worker.onerror = () => {
        this.broken = true;
        resolve();
      };
      this.worker.onmessage = (e: MessageEvent<FromLoad>) => {
        const m = e.data;
        if (m.is === "bins") this.bins.splice(m.from, this.bins.length, ...m.bytes);
        else {
          this.broken = m.broken;
          resolve();
        }
      };
    });
    this.tell({ do: "start", direction, url: `/api/${direction}?session=${encodeURIComponent(session)}`, epoch, bin });
  }

  async stop(): Promise<void> {
    this.tell({ do: "stop" });
    await Promise.race([this.done, pause(2000)]);
    this.kill();
  }

  kill(): void {
    this.worker.terminate();
  }

  private tell(m: ToLoad): void {
    this.worker.postMessage(m);
  }
}

/**
 * What the server received of our uploads, by the browser's clock. Every answer
 * brings the count at an instant of the server's clock; the fastest answer tells
 * how the clocks lie (but for half an idle round trip, which moves the curve by
 * as little).
 */
class Uploads {
  private points: { server: number; bytes: number }[] = [];
  private offset = Infinity; // ms from the server's clock to ours

  add(s: Sample): void {
    this.points.push({ server: s.server / 1e3, bytes: s.up });
    this.offset = Math.min(this.offset, s.received - (s.server + s.held) / 1e3);
  }

  /** The rate over the last 300 ms. */
  recentMbps(): number {
    const last = this.points.at(-1);
    if (last === undefined) return 0;
    let from = last;
    for (let i = this.points.length - 1; i >= 0; i--) {
      from = this.points[i] ?? from;
      if (last.server - from.server >= 300) break;
    }
    const ms = last.server - from.server;
    return ms <= 0 ? 0 : ((last.bytes - from.bytes) * 8) / (ms * 1e3);
  }

  finish(samples: Sample[]): void {
    this.points = [];
    for (const s of samples) if (s.received >= 0) this.add(s);
  }

  between(from: number, to: number): number {
    return Math.max(0, Math.round(this.at(to)) - Math.round(this.at(from)));
  }

  /** The count at an instant of our clock, interpolated. */
  private at(t: number): number {
    const server = t - this.offset;
    let lo = 0;
    let hi = this.points.length;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if ((this.points[mid]?.server ?? 0) <= server) lo = mid + 1;
      else hi = mid;
    }
    const a = this.points[lo - 1];
    const b = this.points[lo];
    if (a === undefined) return b?.bytes ?? 0;
    if (b === undefined || b.server <= a.server) return a.bytes;
    return a.bytes + ((b.bytes - a.bytes) * (server - a.server)) / (b.server - a.server);
  }
}

/** What the page came over, and so do the loads. */
function protocolUsed(): string {
  const page = performance.getEntriesByType("navigation")[0];
  return page instanceof PerformanceNavigationTiming ? page.nextHopProtocol : "";
}

/** The round trip in ms, without the time the server kept the probe. */
function rttOf(s: Sample): number {
  return s.received - s.sent - s.held / 1e3;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
}
