// Made from the Go types by `scripts/web types`; do not edit. Package serve
// documents the fields, package verdict those of results.

export type PhaseName = "idle" | "download" | "upload" | "both";

export type Transport = "websocket" | "webtransport";

export interface Hello {
  session: string;
  seconds: number;
  flows: number;
  bytes: number;
  server: string;
  certificate: string;
}

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
  flows: Flows;
  broken: number;
  probes: Probes;
  skips: Skip[];
  bin_us: number;
  down_bytes: number[];
  up_bytes: number[];
}

export interface Flows {
  down: number;
  up: number;
}

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

export interface Saved {
  id: string;
  token: string;
  error: string;
  test: Test;
  words: Words;
}

export interface Test {
  schema: "unbloat.test/1";
  time: string;
  label: string;
  server: string;
  valid: boolean;
  reasons?: Reason[];
  invalid_reasons: string[];
  grade: string;
  grade_down: string;
  grade_up: string;
  verdict: string;
  notes?: string[];
  remarks?: Reason[];
  probe?: string;
  rpm?: number;
  voice?: Voice;
  runs?: Run[];
  idle?: Phase;
  download?: Phase;
  upload?: Phase;
  both?: Phase;
  loaded?: Phase;
  framing?: Framing;
  outcomes?: UseScore[];
}

export type Reason = { code: string; text: string; [figure: string]: unknown };

export interface Voice {
  r: number;
  mos: number;
}

export interface Run {
  time: string;
  valid: boolean;
  grade: string;
  increase_ms: number;
  goodput_down_bps: number;
  goodput_up_bps: number;
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
  probe_lateness_ms: Lateness;
  retransmits: number;
  recovery_ms?: number;
  latency_on_load?: Latency;
  beside?: Named[];
  rpm?: number;
  voice?: Voice;
  queue?: Queue;
  others_down_bps?: number;
  others_up_bps?: number;
  unfilled?: Unsaturated[];
  wifi?: Radio;
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

export interface Lateness {
  p99: number;
  max: number;
}

export interface Named {
  name: string;
  latency: Latency;
}

export interface Queue {
  direction: string;
  ms: number;
  bytes: number;
  packets: number;
}

export interface Unsaturated {
  direction: string;
  why: string;
  starved?: boolean;
}

export interface Radio {
  interface: string;
  signal_dbm: number;
  link_down_bps: number;
  link_up_bps: number;
  airtime: number;
  retries: number;
  failed: number;
  busy: number;
  roamed?: boolean;
}

export interface Timeline {
  start_s: number;
  end_s: number;
  t_s: number[];
  rtt_ms: (number | null)[];
  bin_s: number;
  down_mbps: number[];
  up_mbps: number[];
}

export interface Framing {
  down?: Estimate;
  up?: Estimate;
}

export interface Estimate {
  overhead: number;
  mpu: number;
  atm: boolean;
  rate_bps: number;
  overhead_low: number;
  overhead_high: number;
  sure: boolean;
  why: Reason;
  sizes?: SizeTime[];
}

export interface SizeTime {
  ip_bytes: number;
  time_us: number;
}

export interface UseScore {
  use: string;
  score: number;
  limit: string;
}

export interface Words {
  verdict: string;
  reasons: string[];
  certain: string;
  notes: string[];
  grades: Record<string, string>;
}
