// Joins the parts: asks the router, draws what it says, and has done what is tapped.
import "./style.css";
import { el, find } from "../../src/dom";
import { translate } from "../../src/language";
import type { Action, Change, ChangeParams, DaemonHistory, DaemonWhile, Doing, Done, EntryTable, Events, Health, History, HistoryWay, Incidents, MachineFlows, RunKind, Running, Schedule, Session, State, Way } from "./api.gen";
import { entered, get, listen, post, Refused, type Link } from "./client";
import { called, keyOf, line, model, nameOf, views, type View, type Waiting } from "./model";
import { clock, languages, say } from "./say";
import { morph } from "./tree";
import { bars, left } from "./views/bars";
import { door } from "./views/door";
import { health } from "./views/health";
import { endedSays, lineView } from "./views/line";
import { now, sentence } from "./views/now";
import { who } from "./views/who";

translate(say, languages);
const view = find("view");
const told = find("say");

// --- Drawing -----------------------------------------------------------------

let due = false;

/** Draws once, soon. */
function draw(): void {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    paint();
  });
}

function paint(): void {
  const s = model.session;
  find("pages").hidden = s === null || s.user === "";
  morph(find("bars"), bars());
  morph(find("session"), s === null || s.user === "" ? [] : [el("button", { type: "button", id: "out", "data-do": "logout" }, say.out)]);
  if (s === null) return morph(view, [el("p", { class: "muted" }, model.link === "gone" ? say.goneShort : say.starting)]);
  if (s.user === "") return morph(view, door(s));
  morph(
    find("pages"),
    views.map((v) => el("a", { href: `#${v}`, "data-key": v, ...(v === model.view ? { "aria-current": "page" } : {}) }, say.fixed[v], ...badgeOf(v))),
  );
  const state = model.state;
  const w = line();
  if (state === null || w === undefined) return morph(view, [el("p", { class: "muted" }, say.starting)]);
  const width = Math.floor(view.clientWidth);
  const shown = { now: () => now(w, state, width), who: () => who(w, state), line: () => lineView(w, state, width), health: () => health(w) }[model.view]();
  morph(view, [...choice(), el("div", { class: "view", "data-view": model.view, "data-key": `${model.view} ${w.wan}` }, ...shown)]);
}

/** A dot with a text where something wants attention. */
function badgeOf(v: View): HTMLElement[] {
  if (v === "line" && line()?.running?.ended === false) return [el("span", { class: "dot", "aria-label": say.running[line()?.running?.kind ?? "test"] }, " ●")];
  if (v === "health" && model.health?.findings.some((f) => f.blocking) === true) return [el("span", { class: "dot bad", "aria-label": say.notHealthy }, " !")];
  return [];
}

/** The choice among several lines. */
function choice(): HTMLElement[] {
  const all = model.state?.wans ?? [];
  if (all.length < 2) return [];
  const chosen = line()?.wan;
  return [
    el(
      "div",
      { class: "field inline", "data-key": "wans" },
      el("label", { for: "wan" }, say.chooseWAN),
      el("select", { id: "wan", "data-do": "wan", "data-still": `${all.map((w) => w.wan).join()} ${chosen}` }, ...all.map((w) => el("option", { value: w.wan, ...(w.wan === chosen ? { selected: "" } : {}) }, nameOf(w)))),
    ),
  ];
}

/** Tells a screen reader, once. */
function announce(text: string): void {
  told.textContent = text;
}

function notice(text: string, tone: "good" | "bad"): void {
  model.notice = { text, tone };
  announce(text);
  draw();
}

// --- What the router says ----------------------------------------------------

let lastSaid = "";
let saidAt = -Infinity;
const quietMs = 30_000; // between two sentences for a screen reader

/** Tells how the line is when that has become something else, but not each second. */
function tellSentence(): void {
  const w = line();
  if (w === undefined || model.state === null || model.view !== "now" || model.waiting !== null) return;
  const text = sentence(w, model.state);
  const kind = text.replace(/[\d.,]+/g, "#"); // figures alone are no news
  if (kind === lastSaid || performance.now() - saidAt < quietMs) return;
  lastSaid = kind;
  saidAt = performance.now();
  announce(text);
}

let ended = 0; // when the run began whose end was told

function heard(s: State): void {
  model.state = s;
  model.heardMs = Date.now();
  follow(s);
  waits(s);
  reorder(s);
  tellSentence();
  const w = line();
  const run = w?.running;
  if (run?.ended === true && run.began_ms !== ended) {
    ended = run.began_ms;
    announce(endedSays(run));
    if (model.view === "line") void refresh("history");
  }
  draw();
}

/** Keeps the change that waits, and says what became of it. */
function waits(s: State): void {
  const w = s.wans.find((x) => x.pending !== null);
  const before = model.waiting;
  if (!w?.pending) {
    model.waiting = null;
    if (before !== null && !answered.has(before.change.id)) void became(before);
    return;
  }
  const { change } = (model.waiting = waitFor(w.pending, w.wan));
  if (before?.change.id !== change.id) {
    model.notice = null;
    announce(changed(model.waiting));
  }
}

/** A change that waits from now on. */
function waitFor(change: Change, wan: string): Waiting {
  return { change, wan, ends: performance.now() + change.left_seconds * 1000 };
}

const answered = new Set<string>(); // changes that were kept or undone here

function changed({ change, wan }: Waiting): string {
  return `${say.change[change.kind](called(wan))} ${say.works} ${say.left(Math.ceil(change.left_seconds))}`;
}

/** Says what became of a change that nobody answered here. */
async function became({ change, wan }: Waiting): Promise<void> {
  answered.add(change.id);
  try {
    model.events = await get<Events>("events");
  } catch {
    return; // it is shown under Health when the router is there again
  }
  const last = model.events.events.find((e) => keyOf(e) === wan && (e.kind === "confirmed" || e.kind === "timeout" || e.kind === "reverted"));
  if (last?.kind === "confirmed") notice(say.keptIt, "good");
  else notice(last?.kind === "reverted" ? say.undidIt : say.timedOut, last?.kind === "reverted" ? "good" : "bad");
  // The forms show again what holds.
  void refresh("schedule");
}

/** Adds the newest second to the curve, so that it need not be asked for again. */
function follow(s: State): void {
  for (const l of [model.hour]) {
    const w = s.wans.find((x) => l !== null && x.wan === keyOf(l));
    if (l === null || w === undefined || s.time_ms - (l.at_ms.at(-1) ?? 0) < l.step_seconds * 900) continue;
    l.at_ms.push(s.time_ms);
    const add = (to: HistoryWay, way: Way): void => {
      to.rate_bps.push(way.rate_bps);
      to.capacity_bps.push(way.capacity_bps);
      to.carried_bps.push(way.carried_bps);
      const delay = way.delay_ms < 0 ? null : way.delay_ms;
      to.delay_ms.push(delay);
      to.delay_max_ms.push(delay);
    };
    add(l.down, w.down);
    add(l.up, w.up);
    const old = l.at_ms.findIndex((at) => at > s.time_ms - 3_700_000);
    if (old > 600) for (const list of [l.at_ms, ...Object.values(l.down), ...Object.values(l.up)] as unknown[][]) list.splice(0, old);
  }
}

let ordered = -Infinity;
const orderMs = 5000;

/** Orders the machines anew by their rates, but not under a finger or a focus. */
function reorder(s: State): void {
  const known = new Set(model.order);
  const list = view.querySelector(".machines");
  const inUse = list !== null && (list.matches(":hover") || list.contains(document.activeElement));
  if (model.order.length === 0 || (!inUse && performance.now() - ordered > orderMs)) {
    ordered = performance.now();
    model.order = [...s.machines].sort((a, b) => b.down_bps + b.up_bps - a.down_bps - a.up_bps).map((m) => m.address);
  } else {
    model.order.push(...s.machines.filter((m) => !known.has(m.address)).map((m) => m.address));
  }
}

let was: Link = "starting";

function linked(l: Link): void {
  if (l === was) return;
  if (l === "gone") announce(model.waiting === null ? say.goneShort : say.leftGone(left()));
  else if (was === "gone") {
    announce(say.back);
    void all(); // something may have happened meanwhile
  }
  was = model.link = l;
  document.documentElement.dataset["link"] = l;
  draw();
}

// --- What is asked besides ---------------------------------------------------

type Part = "hour" | "day" | "health" | "events" | "incidents" | "history" | "schedule" | "flows";

const parts: Record<View, Part[]> = { now: ["hour"], who: ["flows"], line: ["history", "schedule", "day"], health: ["incidents", "health", "events"] };

async function refresh(part: Part): Promise<void> {
  const wan = line()?.wan;
  if (wan === undefined || model.session === null || model.session.user === "") return;
  const of = `wan=${encodeURIComponent(wan)}`;
  try {
    model.absent.delete(part);
    switch (part) {
      case "hour":
        model.hour = await get<DaemonHistory>(`line?${of}&range=1h`);
        break;
      case "day":
        model.day = await get<DaemonHistory>(`line?${of}&range=24h`);
        break;
      case "health":
        model.checking = true;
        draw();
        try {
          model.health = await get<Health>(`health?${of}`);
        } finally {
          model.checking = false;
        }
        break;
      case "events":
        model.events = await get<Events>("events");
        break;
      case "incidents":
        model.incidents = await get<Incidents>(`incidents?${of}`);
        break;
      case "history":
        model.history = await get<History>(`history?${of}`);
        break;
      case "schedule":
        {
          const next = await get<Schedule>("schedule");
          // An entry that somebody else has changed meanwhile is another one.
          if (model.editing !== null && JSON.stringify(next.entries) !== JSON.stringify(model.schedule?.entries)) model.editing = null;
          model.schedule = next;
        }
        break;
      case "flows":
        for (const address of model.open) model.flows.set(address, await get<MachineFlows>(`machine?address=${encodeURIComponent(address)}`));
    }
  } catch (e) {
    if (!(e instanceof Refused)) throw e;
    if (e.code === "login") void begin();
    else if (e.code === "left_out") model.absent.add(part);
    else if (e.code !== "unreachable" && e.code !== "not_found") notice(say.failed(e.words()), "bad");
  }
  draw();
}

async function all(): Promise<void> {
  for (const p of parts[model.view]) await refresh(p);
}

function go(): void {
  const name = location.hash.slice(1) as View;
  const next = views.includes(name) ? name : "now";
  const other = next !== model.view;
  model.view = next;
  if (other && model.notice?.tone === "good") model.notice = null;
  document.title = `${say.fixed[next]} · ${say.fixed.title}`;
  void all();
  paint();
  if (other) {
    find("main").focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

// --- What is tapped ----------------------------------------------------------

/** Does something, and says so if it does not work. */
async function attempt(what: () => Promise<void>): Promise<void> {
  if (model.busy) return;
  model.busy = true;
  model.notice = null;
  document.documentElement.setAttribute("aria-busy", "true");
  try {
    await what();
  } catch (e) {
    if (!(e instanceof Refused)) throw e;
    if (e.code === "login") await begin();
    else notice(say.failed(e.words()), "bad");
  } finally {
    model.busy = false;
    document.documentElement.removeAttribute("aria-busy");
    draw();
  }
}

/** A change that was made: it counts down from here. */
function made(change: Change, wan: string): void {
  const waiting = (model.waiting = waitFor(change, wan));
  const w = model.state?.wans.find((x) => x.wan === wan);
  if (w !== undefined) w.pending = change;
  paint();
  // From the heading a Tab leads to the question's buttons. Their own focus would
  // let a second tap of Enter answer it.
  document.getElementById("waiting-title")?.focus();
  scrollTo({ top: 0 });
  announce(changed(waiting));
}

/** Takes over a schedule that was set. What holds now counts down. */
function planned(s: Schedule): void {
  model.schedule = s;
  model.editing = null;
  if (s.change) made(s.change, keyOf(s.change));
  else notice(say.keptIt, "good");
}

function change(to: ChangeParams): Promise<void> {
  const wan = line()?.wan ?? "";
  return attempt(async () => made(await post<Change>("line", { wan, ...to }), wan));
}

async function settle(how: "keep" | "undo"): Promise<void> {
  const waiting = model.waiting;
  if (waiting === null) return;
  await attempt(async () => {
    if (how === "keep") await post<Done>("confirm", { change: waiting.change.id });
    else await post<Done>("revert", { wan: waiting.wan });
    answered.add(waiting.change.id);
    // The next change begins with what holds now: rules and limits are sent whole.
    const fresh = await get<State>("state").catch(() => null); // else the stream brings it
    if (fresh !== null) heard(fresh);
    model.waiting = null;
    for (const w of model.state?.wans ?? []) if (w.pending?.id === waiting.change.id) w.pending = null;
    notice(how === "keep" ? say.keptIt : say.undidIt, "good");
    if (waiting.change.kind === "plan") void refresh("schedule");
    find("main").focus({ preventScroll: true });
  });
}

/** Does something for an hour, and says until when. */
function anHour(what: { do: string; machine?: string }, says: (at: string) => string): Promise<void> {
  const hour = 3600;
  return attempt(async () => {
    const got = await post<DaemonWhile>("while", { wan: line()?.wan ?? "", seconds: hour, ...what });
    notice(says(clock(Date.parse(got.until ?? ""))), "good");
  });
}

const acts: Record<string, (e: HTMLElement) => unknown> = {
  keep: () => settle("keep"),
  undo: () => settle("undo"),
  dismiss: () => {
    model.notice = null;
    draw();
  },
  logout: () => attempt(async () => opened(await post<Session>("logout", {}))),
  open(e) {
    const address = e.dataset["address"] ?? "";
    if (!model.open.delete(address)) model.open.add(address);
    draw();
    void refresh("flows");
  },
  rule: (e) => change({ machine: e.dataset["address"] ?? "", action: e.dataset["action"] as Action }),
  disown(e) {
    const w = line();
    const kind = e.dataset["kind"] as "rules" | "limits";
    if (w !== undefined) return change({ [kind]: w[kind].filter((text) => text !== e.dataset["text"]) });
  },
  on: () => change({ on: true }),
  off: () => change({ on: false }),
  offHour: () => anHour({ do: "off" }, say.offUntil),
  firstHour: (e) => anHour({ do: "first", machine: e.dataset["address"] ?? "" }, (at) => say.firstUntil(e.dataset["address"] ?? "", at)),
  run: (e) =>
    attempt(async () => {
      const w = line();
      const r = await post<Running>("run", { wan: w?.wan ?? "", kind: e.dataset["kind"] as RunKind });
      if (w !== undefined) w.running = r;
      announce(say.running[r.kind]);
    }),
  stop: () => attempt(async () => void (await post<Done>("stop", { wan: line()?.wan ?? "" }))),
  check: () => refresh("health"),
  incidentDay(from) {
    model.incidentDay = Number(from.dataset["at"]);
    paint();
  },
  mend: (e) =>
    attempt(async () => {
      model.health = await post<Health>("mend", { wan: line()?.wan ?? "", code: e.dataset["code"] ?? "" });
      notice(say.mended, "good");
    }),
  unplan: (e) =>
    attempt(async () => {
      planned(await post<Schedule>("schedule", { entries: (model.schedule?.entries ?? []).filter((_, i) => i !== Number(e.dataset["index"])) }));
    }),
  replan(e) {
    model.editing = Number(e.dataset["index"]);
    paint();
    document.getElementById("plan-do")?.focus();
  },
  unedit() {
    model.editing = null;
    paint();
    view.querySelector<HTMLElement>('[data-key="plan"] summary')?.focus();
  },
};

document.addEventListener("click", (e) => {
  const from = e.target instanceof Element ? e.target.closest<HTMLElement>("button[data-do]") : null;
  if (from !== null && !from.hasAttribute("disabled")) acts[from.dataset["do"] ?? ""]?.(from);
});

document.addEventListener("change", (e) => {
  const from = e.target;
  if (from instanceof HTMLInputElement && from.dataset["do"] === "follow") {
    const wanted = from.value === "true";
    void change({ follow: wanted }).then(() => {
      // What was chosen holds only once the router says so.
      const holds = line()?.follow === true;
      for (const r of view.querySelectorAll<HTMLInputElement>('input[name="follow"]')) r.checked = (r.value === "true") === (model.waiting === null ? holds : wanted);
    });
  } else if (from instanceof HTMLSelectElement) {
    if (from.dataset["do"] === "wan") {
      model.wan = from.value;
      model.hour = model.day = model.health = model.editing = null;
      void all();
      draw();
    } else if (from.dataset["do"] === "compare") {
      model[from.id as "before" | "after"] = from.value;
      draw();
    } else if (from.id === "plan-do") {
      fieldsFor(from.value);
    }
  }
});

/** A speed that was typed, in bit/s; NaN if it is none. */
function typed(text: string): number {
  const v = /^\s*\d+([.,]\d+)?\s*$/.test(text) ? Number(text.trim().replace(",", ".")) : NaN;
  return v >= 0.1 && v <= 100_000 ? Math.round(v * 1e6) : NaN;
}

const forms: Record<string, (data: FormData, form: HTMLFormElement) => unknown> = {
  async first(data) {
    if (data.get("password") !== data.get("again")) return wrong("door-wrong", say.notSame);
    await enter("first", { token: String(data.get("token")), password: String(data.get("password")) });
  },
  login: (data) => enter("login", { password: String(data.get("password")) }),
  speeds(data) {
    const w = line();
    const down = typed(String(data.get("down")));
    const up = typed(String(data.get("up")));
    wrong("speeds-wrong", "");
    if (w === undefined) return;
    if (Number.isNaN(down) || Number.isNaN(up)) return wrong("speeds-wrong", say.badSpeed);
    if (down === w.down.line_bps && up === w.up.line_bps) return wrong("speeds-wrong", say.nothingNew);
    return change({ down_bps: down, up_bps: up });
  },
  own(data) {
    const parts = ["class", "machine", "protocol", "port"].map((name): [string, string] => [name === "machine" ? "home" : name, String(data.get(`own-${name}`) ?? "").trim()]).filter(([, x]) => x !== "");
    const bad = parts.length < 2 || !parts.every(([name, x]) => name !== "port" || /^\d{1,5}(-\d{1,5})?$/.test(x));
    wrong("own-wrong", bad ? say.badRule : "");
    const rule = parts.map((p) => p.join("=")).join(",");
    if (!bad) return change({ rules: [...(line()?.rules ?? []).filter((x) => x !== rule), rule] });
  },
  most(data) {
    const machine = String(data.get("most-machine"));
    const down = typed(String(data.get("most-down")));
    const up = typed(String(data.get("most-up")));
    wrong("most-wrong", Number.isNaN(down + up) ? say.badSpeed : "");
    if (Number.isNaN(down + up)) return;
    const others = (line()?.limits ?? []).filter((x) => !x.startsWith(`${machine} `));
    return change({ limits: [...others, `${machine} ${down / 1e6} Mbit/s / ${up / 1e6} Mbit/s`] });
  },
  plan(data, form) {
    const kind = String(data.get("do")) as Doing;
    const machine = kind === "first" || kind === "last";
    const perhaps = (name: string): number => (kind !== "rates" || String(data.get(name)).trim() === "" ? 0 : typed(String(data.get(name))));
    const down = perhaps("plan-down");
    const up = perhaps("plan-up");
    const bad = Number.isNaN(down + up) || (kind === "rates" && down + up === 0);
    wrong("plan-wrong", bad ? say.badSpeed : "");
    if (bad) return;
    return attempt(async () => {
      const w = line();
      const from = String(data.get("plan-from"));
      const entry: EntryTable = {
        do: kind,
        wan: w?.interface ?? "",
        router: w?.router ?? "",
        ...(machine || kind === "rates" ? { from, to: String(data.get("plan-to")) } : { at: from }),
        days: data.getAll("day").map(String),
        ...(machine ? { machine: String(data.get("machine") ?? "") } : {}),
        ...(down > 0 ? { down: `${down / 1e6} Mbit/s` } : {}),
        ...(up > 0 ? { up: `${up / 1e6} Mbit/s` } : {}),
      };
      const entries = [...(model.schedule?.entries ?? [])];
      if (model.editing === null) entries.push(entry);
      else entries[model.editing] = entry;
      const made = await post<Schedule>("schedule", { entries });
      form.reset();
      fieldsFor("test");
      planned(made);
    });
  },
  async password(data, form) {
    wrong("password-wrong", "");
    try {
      opened(await post<Session>("password", { now: String(data.get("pw-now")), role: String(data.get("role")), new: String(data.get("pw-new")) }));
      form.reset();
      notice(say.passwordSet, "good");
    } catch (e) {
      if (!(e instanceof Refused)) throw e;
      wrong("password-wrong", say.failed(e.words()));
    }
  },
};

/** Shows the fields that a kind of entry needs. */
function fieldsFor(kind: string): void {
  for (const f of view.querySelectorAll<HTMLElement>("[data-for]")) f.hidden = !(f.dataset["for"] ?? "").split(" ").includes(kind);
}

function wrong(id: string, text: string): void {
  const p = document.getElementById(id);
  if (p !== null) p.textContent = text;
}

async function enter(path: "first" | "login", body: object): Promise<void> {
  wrong("door-wrong", "");
  try {
    opened(await post<Session>(path, body));
    find("main").focus({ preventScroll: true });
  } catch (e) {
    if (!(e instanceof Refused)) throw e;
    wrong("door-wrong", say.failed(e.words()));
  }
}

document.addEventListener("submit", (e) => {
  const form = e.target as HTMLFormElement;
  e.preventDefault();
  void forms[form.dataset["do"] ?? ""]?.(new FormData(form), form);
});

// --- The beginning -----------------------------------------------------------

let deaf: (() => void) | undefined;

/** Takes over a session: with one the page listens, without one it shows the door. */
function opened(s: Session): void {
  model.session = entered(s);
  if (s.user === "") {
    deaf?.();
    deaf = undefined;
    // Nothing of the home stays behind the door.
    Object.assign(model, { state: null, hour: null, day: null, health: null, events: null, incidents: null, history: null, schedule: null, editing: null, waiting: null, notice: null, order: [] });
    told.textContent = lastSaid = "";
    for (const kept of [model.flows, model.open, model.absent]) kept.clear();
  } else if (deaf === undefined) {
    let first = true;
    deaf = listen({
      state(state) {
        heard(state);
        if (first) void all();
        first = false;
      },
      link: linked,
      over: () => void begin(),
    });
  }
  draw();
}

const retryMs = 3000;

// A page of the router itself, such as LuCI, has sent this browser with a ticket that
// is good once. It does not stay in the address.
let ticket = /^#enter=([\w-]+)$/.exec(location.hash)?.[1] ?? "";
if (ticket !== "") history.replaceState(null, "", location.pathname + location.search);

async function begin(): Promise<void> {
  deaf?.();
  deaf = undefined;
  if (ticket !== "") {
    const once = ticket;
    ticket = "";
    try {
      return opened(await post<Session>("enter", { ticket: once }));
    } catch (e) {
      if (!(e instanceof Refused)) throw e;
      notice(say.noTicket, "bad");
    }
  }
  try {
    opened(await get<Session>("session"));
    if (model.link === "gone") linked("starting");
  } catch (e) {
    linked("gone");
    setTimeout(() => void begin(), retryMs);
    if (!(e instanceof Refused)) throw e;
  }
}

addEventListener("hashchange", go);
new ResizeObserver(draw).observe(view);
setInterval(() => {
  if (model.waiting === null) return;
  if (left() === 10) announce(say.left(10));
  draw();
}, 1000);
setInterval(() => {
  if (model.view === "who" && model.open.size > 0 && model.link !== "gone") void refresh("flows");
}, 2000);
setInterval(() => {
  if (model.link !== "gone" && document.visibilityState === "visible") for (const p of parts[model.view]) if (p !== "health" && p !== "flows") void refresh(p);
}, 60_000);
go();
void begin();
