// Made from internal/keep/page/api.go by `scripts/web types`; do not edit. The fields are
// documented there.

/** Why something is so: a code with its figures. */
export type Reason = { code: string; text: string; [figure: string]: unknown };

export type Role = "" | "admin" | "viewer";

export interface Failure {
  error: Refusal;
}

export interface Refusal extends Error {
  retry_seconds?: number;
}

export interface Session {
  user: Role;
  first_run: boolean;
  has_viewer: boolean;
  csrf: string;
  version: string;
}

export interface First {
  token: string;
  password: string;
}

export interface Login {
  password: string;
}

export interface Enter {
  ticket: string;
}

export interface Password {
  now: string;
  role: Role;
  new: string;
}

export interface State {
  time_ms: number;
  wans: WAN[];
  machines: Machine[];
  more: number;
  flows: number;
  sight: Sight;
}

export type Sight = "clear" | "none" | "denied" | "bytes" | "crowded";

export interface WAN {
  wan: string;
  interface: string;
  router: string;
  platform: string;
  on: boolean;
  kept: SuperviseState;
  off_until_ms: number;
  since_ms: number;
  why: string;
  by: string;
  mends: number;
  follow: boolean;
  following: boolean;
  can_follow: boolean;
  blind: boolean;
  classes: boolean;
  can_limit: boolean;
  rules: string[];
  limits: string[];
  down: Way;
  up: Way;
  grade: Grade;
  pending: Change | null;
  running: Running | null;
}

export interface Way {
  line_bps: number;
  least_bps: number;
  most_bps: number;
  rate_bps: number;
  capacity_bps: number;
  carried_bps: number;
  delay_ms: number;
  busy: boolean;
  why: Reason | null;
}

export interface Grade {
  grade: string;
  p95_ms: number;
  seconds: number;
}

export interface Machine {
  address: string;
  name: string;
  mac: string;
  class: string;
  down_bps: number;
  up_bps: number;
  flows: number;
  action: Action;
}

export interface MachineFlows {
  machine: Machine;
  flows: Flow[];
  more: number;
  sight: Sight;
}

export interface Flow {
  protocol: string;
  home: string;
  far: string;
  down: FlowWay;
  up: FlowWay;
}

export interface FlowWay extends FlowClass {
  rate_bps: number;
  bytes: number;
}

export interface SetLine extends ChangeParams {
  wan: string;
}

export interface While extends WhileParams {
  wan: string;
}

export interface Confirm {
  change: string;
}

export interface Revert {
  wan: string;
}

export interface Done {
  ok: boolean;
}

export type RunKind = "test" | "tune";

export interface Run {
  wan: string;
  kind: RunKind;
}

export interface Stop {
  wan: string;
}

export interface Running {
  kind: RunKind;
  began_ms: number;
  step: string;
  doing: string;
  round: number;
  try_down_bps: number;
  try_up_bps: number;
  seconds: number;
  progress: number;
  down_bps: number;
  up_bps: number;
  rtt_ms: number;
  ended: boolean;
  stopped: boolean;
  result: Result | null;
  error: Error | null;
}

export interface Health {
  wan: string;
  ok: boolean;
  at_ms: number;
  findings: Finding[];
  checked: number;
  skipped: number;
}

export interface Finding {
  code: string;
  blocking: boolean;
  what: string;
  why: string;
  remedy: string;
  mend: boolean;
}

export interface Mend {
  wan: string;
  code: string;
}

export interface Events {
  events: Happening[];
}

export interface Incidents {
  wan: string;
  watched: boolean;
  incidents: Incident[];
}

export interface Incident {
  id: string;
  begin_ms: number;
  end_ms: number;
  kind: string;
  part: string;
  severity: string;
  what: Said;
  why: Said;
}

export interface History {
  results: Result[];
}

export interface Result {
  id: string;
  at_ms: number;
  wan: string;
  kind: RunKind;
  shaped: boolean;
  valid: boolean;
  grade: string;
  down_bps: number;
  up_bps: number;
  idle_ms: number;
  down_p95_ms: number;
  up_p95_ms: number;
  outcomes: Outcome[];
  fell_ms: number;
  kept: boolean;
  invalid: Said[];
}

export interface Outcome {
  use: string;
  score: number;
  limit: string;
}

export interface Said {
  en: string;
  de: string;
}

export interface Comparison {
  before: Result;
  after: Result;
}

export interface Error {
  code: Code;
  text: string;
}

export type SuperviseState = "starting" | "in place" | "waiting" | "failing" | "busy" | "held" | "suspended" | "foreign" | "contested";

export interface Change {
  id: string;
  kind: ChangeKind;
  by: string;
  deadline: string;
  left_seconds: number;
  seconds: number;
}

export type Action = "first" | "last" | "none";

export interface FlowClass {
  class: string;
  why: ClassWhy[];
}

export interface ChangeParams {
  down_bps?: number | null;
  up_bps?: number | null;
  follow?: boolean | null;
  on?: boolean | null;
  machine?: string;
  action?: Action;
  rules?: string[] | null;
  limits?: string[] | null;
  confirm_seconds?: number;
}

export interface WhileParams {
  do: string;
  machine?: string;
  seconds: number;
}

export interface Happening {
  n: number;
  time: string;
  wan: string;
  router?: string;
  kind: EventKind;
  by?: string;
  what?: string[];
  undone?: Undone;
  change?: string;
}

export interface DaemonHistory {
  schema: string;
  wan: string;
  router?: string;
  step_seconds: number;
  at_ms: number[];
  down: HistoryWay;
  up: HistoryWay;
}

export interface DaemonWhile {
  until?: string;
}

export interface Schedule {
  entries: EntryTable[];
  change?: ScheduleChange | null;
}

export interface ScheduleParams {
  entries?: EntryTable[] | null;
  confirm_seconds?: number;
}

export type Code = "login" | "password" | "weak" | "read_only" | "forged" | "outside" | "host" | "slow_down" | "crowded" | "not_found" | "no_classes" | "same" | "no_change" | "failed" | "usage" | "precondition" | "busy" | "unknown_wan" | "unknown_method" | "bad_request" | "ending" | "left_out" | "internal";

export type ChangeKind = "line" | "follow" | "on" | "off" | "rule" | "plan";

export interface ClassWhy {
  code: string;
  rule?: string;
}

export type EventKind = "applied" | "confirmed" | "timeout" | "reverted" | "off" | "on" | "mended" | "started" | "replaced" | "trouble" | "well" | "contested";

export type Undone = "" | "yes" | "may";

export interface HistoryWay {
  rate_bps: number[];
  capacity_bps: number[];
  carried_bps: number[];
  delay_ms: (number | null)[];
  delay_max_ms: (number | null)[];
}

export interface EntryTable {
  do: Doing;
  wan?: string;
  router?: string;
  at?: string;
  from?: string;
  to?: string;
  days?: string[];
  machine?: string;
  down?: string;
  up?: string;
}

export interface ScheduleChange extends Change {
  wan: string;
  router?: string;
}

export type Doing = "test" | "tune" | "first" | "last" | "rates";
