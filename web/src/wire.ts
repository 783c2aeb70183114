// What the page, its workers and the server (internal/webtest) say to each other.

/** The phases, in the order they run. */
export type PhaseName = "idle" | "download" | "upload" | "both";

/** The first message on the WebSocket. */
export interface Hello {
  session: string;
  seconds: number;
  flows: number;
  bytes: number;
  server: string;
  certificate: string; // hash of that of the datagrams' server; "": there is none
}

/** What probes travel over. */
export type Transport = "websocket" | "webtransport";

/** What was measured; internal/webtest documents and checks it. Times are whole µs. */
export interface Submission {
  schema: "unbloat.raw/1";
  interval_us: number;
  tick_us: number;
  hidden_us: number;
  protocol: string;
  transport: Transport;
  phases: RawPhase[];
}

export interface RawPhase {
  name: PhaseName;
  start_us: number;
  end_us: number;
  flows: { down: number; up: number };
  broken: number;
  probes: Probes;
  skips: Skip[];
  bin_us: number;
  down_bytes: number[];
  up_bytes: number[];
}

/** One column for each property of a probe. */
export interface Probes {
  due_us: number[];
  sent_us: number[];
  received_us: number[];
  server_us: number[];
  held_us: number[];
}

export interface Skip {
  at_us: number;
  probes: number;
  late_us: number;
}

/** A result: the parts of unbloat.test/1 that the page shows. */
export interface Test {
  schema: "unbloat.test/1";
  time: string;
  label: string;
  server: string;
  valid: boolean;
  invalid_reasons: string[];
  grade: string;
  grade_down: string;
  grade_up: string;
  verdict: string;
  notes?: string[];
  idle?: Phase;
  download?: Phase;
  upload?: Phase;
  both?: Phase;
  loaded?: Phase;
}

export interface Phase {
  seconds: number;
  flows_down: number;
  flows_up: number;
  goodput_down_bps: number;
  goodput_up_bps: number;
  saturated: boolean;
  latency: Latency;
  cpu: number;
  server_cpu: number;
  probe_lateness_ms: { p99: number; max: number };
  retransmits: number;
  series?: Timeline;
}

export interface Latency {
  sent: number;
  received: number;
  loss: number;
  loss_up: number;
  loss_down: number;
  ipdv_ms: number;
  rtt_ms: Quantiles;
  increase_ms: Quantiles;
  up_ms: Quantiles;
  down_ms: Quantiles;
  one_way_unknown?: boolean;
}

export interface Quantiles {
  min: number;
  mean: number;
  p50: number;
  p90: number;
  p95: number;
  p99: number;
  max: number;
}

/** What is drawn of a stored phase: seconds since the test began. */
export interface Timeline {
  start_s: number;
  end_s: number;
  t_s: number[];
  rtt_ms: (number | null)[];
  bin_s: number;
  down_mbps: number[];
  up_mbps: number[];
}

/** The simulator's answer to a question (internal/lab/simlab, through page.Simulator). */
export interface Picture {
  grade: string;
  verdict: string;
  verdicts: Record<string, string>; // by language
  idle_ms: number;
  rtt_ms: Quantiles;
  added_ms: Quantiles;
  loss: number;
  mos?: number;
  down_mbps: number;
  up_mbps: number;
  calls?: Latency;
  page_s?: number;
  film_mbps?: number;
  slower?: number; // so many times slower was the line that a first look was taken at
  idle: Timeline;
  loaded: Timeline;
}

/** The answer to a submission. */
export interface Saved {
  id: string;
  error: string;
  test: Test;
  words: Verdict;
}

/** What a result says, in the language that was asked for. */
export interface Verdict {
  verdict: string;
  reasons: string[];
  notes: string[];
  grades: Record<string, string>; // of the loaded phases, by name
}

/** The phases of a test in the order they ran. */
export function phasesOf(t: Test): { name: PhaseName | "loaded"; phase: Phase }[] {
  return (["idle", "download", "upload", "both", "loaded"] as const).flatMap((name) => {
    const phase = t[name];
    return phase === undefined ? [] : [{ name, phase }];
  });
}

/** A probe as its worker knows it; instants are of clock(), held and server in µs. */
export interface Sample {
  seq: number;
  due: number;
  sent: number;
  received: number; // -1: not yet
  server: number;
  held: number;
  up: number; // bytes the server had of our uploads
}

export type ToProbe =
  | { do: "open"; url: string; interval: number }
  | { do: "start" }
  | { do: "finish"; wait: number } // ms for answers under way
  | { do: "close" };

export type FromProbe =
  | { is: "hello"; hello: Hello; tick: number; transport: Transport }
  | { is: "answers"; samples: Sample[]; open: number } // open: probes that may still be answered
  | { is: "finished"; samples: Sample[]; skips: { at: number; probes: number; late: number }[] }
  | { is: "closed"; why: Closed; told: string }; // told: what the server said

/** Why there is no connection any more. */
export type Closed = "ended" | "unreachable" | "probesEnded";

export type ToLoad =
  | { do: "start"; direction: "down" | "up"; url: string; epoch: number; bin: number }
  | { do: "stop" };

export type FromLoad =
  | { is: "bins"; from: number; bytes: number[] } // replaces the bins from index `from` on
  | { is: "done"; broken: boolean };

/**
 * The clock that all threads of the page share, in ms. performance.now() alone
 * begins at another instant in each worker.
 */
export function clock(): number {
  return performance.timeOrigin + performance.now();
}
