// All that the page knows. The views draw it; main.ts changes it.
import type { Change, DaemonHistory, Events, Health, History, Incidents, MachineFlows, Schedule, Session, State, WAN } from "./api.gen";
import type { Link } from "./client";

export const views = ["now", "who", "line", "health"] as const;
export type View = (typeof views)[number];

/** A change that waits, with its end by this browser's clock. */
export interface Waiting {
  change: Change;
  wan: string; // of the line that it changes
  ends: number; // of performance.now()
}

export interface Model {
  session: Session | null;
  state: State | null;
  link: Link;
  heardMs: number; // when the router was last heard, by this browser's clock
  view: View;
  wan: string; // "": the first
  hour: DaemonHistory | null;
  day: DaemonHistory | null;
  open: Set<string>; // addresses of machines that are shown with their flows
  flows: Map<string, MachineFlows>;
  order: string[]; // of machines, so that they do not jump
  health: Health | null;
  checking: boolean;
  events: Events | null;
  incidents: Incidents | null;
  incidentDay: number; // its midnight; 0: today
  history: History | null;
  schedule: Schedule | null;
  editing: number | null; // entry of the schedule that the form is about; null: a new one
  before: string; // IDs of the results to compare; "": the newest that fit
  after: string;
  absent: Set<string>; // parts that this router does not have, when it was asked last
  waiting: Waiting | null;
  notice: { text: string; tone: "good" | "bad" } | null;
  busy: boolean; // a request is under way
}

export const model: Model = {
  session: null,
  state: null,
  link: "starting",
  heardMs: Date.now(),
  view: "now",
  wan: "",
  hour: null,
  day: null,
  open: new Set(),
  flows: new Map(),
  order: [],
  health: null,
  checking: false,
  events: null,
  incidents: null,
  incidentDay: 0,
  history: null,
  schedule: null,
  editing: null,
  before: "",
  after: "",
  absent: new Set(),
  waiting: null,
  notice: null,
  busy: false,
};

/** The line that is shown. */
export function line(): WAN | undefined {
  const all = model.state?.wans ?? [];
  return all.find((w) => w.wan === model.wan) ?? all[0];
}

/** Whether who looks may change things. */
export function mayChange(): boolean {
  return model.session?.user === "admin";
}

/** How requests name the line that something is of. */
export function keyOf(of: { wan?: string; router?: string }): string {
  return of.router ? `${of.router} ${of.wan}` : (of.wan ?? "");
}

/** How people call the line of a name. */
export function called(key: string): string {
  const w = model.state?.wans.find((x) => x.wan === key);
  return w === undefined ? key : nameOf(w);
}

/** How people call a line. */
export function nameOf(w: { interface: string; router: string }): string {
  // Of "ssh://root@192.168.1.2" a person knows the address.
  return w.router === "" ? w.interface : `${w.interface} @ ${w.router.replace(/^[\w+]+:\/\//, "").replace(/^[^@/]*@/, "")}`;
}
