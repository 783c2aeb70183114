// Line: its speeds, on and off, follow or hold, measurements, and the schedule.
import { el, type Child } from "../../../src/dom";
import type { EntryTable, Result, Running, State, WAN } from "../api.gen";
import { chart } from "../chart";
import { keyOf, mayChange, model } from "../model";
import { bps, day, clock, mbit, ms, numeral, rate, say } from "../say";

const field = (id: string, label: string, attributes: Record<string, string>): HTMLElement =>
  el("div", { class: "field" }, el("label", { for: id }, label), el("input", { id, name: id, ...attributes }));

function speeds(w: WAN): HTMLElement {
  const speed = (bps: number): string => (bps > 0 ? numeral(String(Math.round(bps / 1e4) / 100)) : "");
  const number = { inputmode: "decimal", autocomplete: "off", required: "" };
  const may = mayChange() && w.pending === null;
  return el(
    "form",
    { "data-do": "speeds", "data-key": "speeds", "data-still": `${w.wan} ${w.down.line_bps} ${w.up.line_bps} ${may} ${say.tag}`, class: "block", novalidate: "" },
    el("h2", {}, say.speeds),
    el("p", { class: "muted" }, say.speedsLead),
    el(
      "div",
      { class: "fields" },
      field("down", say.downMbit, { ...number, value: speed(w.down.line_bps), ...(may ? {} : { disabled: "" }) }),
      field("up", say.upMbit, { ...number, value: speed(w.up.line_bps), ...(may ? {} : { disabled: "" }) }),
      ...(mayChange() ? [el("button", { type: "submit", class: "primary", ...(may ? {} : { disabled: "" }) }, say.setSpeeds)] : []),
    ),
    el("p", { class: "wrong", id: "speeds-wrong", role: "alert" }),
  );
}

function shaping(w: WAN): HTMLElement {
  const may = mayChange() && w.pending === null;
  return el(
    "section",
    { class: "block", "data-key": "shaping" },
    el("h2", { id: "shaping-title" }, say.shaping),
    el(
      "div",
      { class: "fields" },
      el("p", { class: "num" }, w.on ? say.on : w.off_until_ms > 0 ? say.offUntil(clock(w.off_until_ms)) : say.off),
      ...(mayChange()
        ? [el("button", { type: "button", id: "onoff", "data-do": w.on ? "off" : "on", ...(w.on ? {} : { class: "primary" }), ...(may ? {} : { disabled: "" }) }, w.on ? say.turnOff : say.turnOn)]
        : []),
      ...(mayChange() && w.on ? [el("button", { type: "button", id: "off-hour", "data-do": "offHour", ...(may ? {} : { disabled: "" }) }, say.offHour)] : []),
    ),
    ...(w.kept === "in place" ? [] : [el("p", { class: "muted" }, say.kept[w.kept])]),
  );
}

function following(w: WAN): HTMLElement {
  const may = mayChange() && w.pending === null && w.can_follow;
  const one = (follow: boolean, text: string, means: string): HTMLElement =>
    el(
      "label",
      { class: "choice" },
      el("input", { type: "radio", name: "follow", value: String(follow), "data-do": "follow", ...(w.follow === follow ? { checked: "" } : {}), ...(may ? {} : { disabled: "" }) }),
      el("span", {}, el("strong", {}, text), el("br"), el("span", { class: "muted" }, means)),
    );
  const d = w.down;
  const bounds = w.follow && d.most_bps > 0 ? ` (↓ ${say.bounds(mbit(d.least_bps), rate(d.most_bps))}, ↑ ${say.bounds(mbit(w.up.least_bps), rate(w.up.most_bps))})` : "";
  return el(
    "fieldset",
    { class: "block", "data-key": "follow", "data-still": `${w.wan} ${w.follow} ${may} ${bounds}` },
    el("legend", {}, say.fixedOrFollow),
    one(false, say.fixedRate, say.fixedMeans),
    one(true, say.follow, say.followMeans + bounds),
    ...(w.can_follow ? [] : [el("p", { class: "muted" }, say.cannotFollow)]),
  );
}

/** How a test or a tuning goes. */
export function running(r: Running): HTMLElement {
  const tile = (name: string, value: string, unit: string): HTMLElement =>
    el("div", {}, el("dt", {}, name), el("dd", {}, el("span", { class: "num" }, value), el("span", { class: "unit" }, ` ${unit}`)));
  const tries = r.try_down_bps > 0 || r.try_up_bps > 0 ? ` (${say.tries(r.try_down_bps > 0 ? rate(r.try_down_bps) : "–", r.try_up_bps > 0 ? rate(r.try_up_bps) : "–")})` : "";
  const tuning = r.kind === "tune" ? [`${say.doing[r.doing] ?? r.doing}${tries}`, ...(r.round > 0 ? [say.round(r.round)] : [])].filter((t) => t !== "") : [];
  const step = [...tuning, say.step[r.step] ?? r.step].join(", ");
  return el(
    "div",
    { class: "running", "data-key": "running" },
    el("p", {}, el("strong", {}, say.running[r.kind]), ` ${step}`),
    el("progress", { max: "1", value: r.progress.toFixed(3), "aria-label": say.running[r.kind] }),
    el("dl", { class: "tiles three" }, tile(say.roundTrip, r.rtt_ms < 0 ? "–" : ms(r.rtt_ms), "ms"), tile(say.down, mbit(r.down_bps), say.mbit), tile(say.up, mbit(r.up_bps), say.mbit)),
    ...(mayChange() ? [el("button", { type: "button", "data-do": "stop" }, say.stop)] : []),
  );
}

/** What became of a run, in a sentence. */
export function endedSays(r: Running): string {
  if (r.stopped) return say.stopped;
  if (r.result === null) return say.runFailed((say.error as Record<string, string>)[r.error?.code ?? ""] ?? r.error?.text ?? "");
  if (!r.result.valid) return say.provesNothing;
  if (r.kind === "tune") return r.result.kept ? say.tuneKept : say.tuneNot;
  return say.ended.test;
}

/** Why a measurement proves nothing: the first reasons, and the others behind a tap. */
function reasons(all: string[]): Child[] {
  const first = 3;
  const list = (of: string[]): HTMLElement => el("ul", {}, ...of.map((x) => el("li", {}, x)));
  if (all.length <= first + 1) return [list(all)];
  return [list(all.slice(0, first)), el("details", { "data-key": "reasons" }, el("summary", {}, say.moreReasons(all.length - first)), list(all.slice(first)))];
}

/** What a command would be told to do, which a page cannot. */
const flags = /(^|\s)--[a-z]/;

function outcome(r: Running): HTMLElement {
  const found = r.result;
  const tiles = (...all: [string, string, string][]): HTMLElement =>
    el("dl", { class: "tiles three" }, ...all.map(([name, value, unit]) => el("div", {}, el("dt", {}, name), el("dd", {}, el("span", { class: "num" }, value), el("span", { class: "unit" }, ` ${unit}`)))));
  const figures: Child[] =
    found === null
      ? r.error !== null && r.error.text !== "" && !r.stopped && !flags.test(r.error.text) ? [el("p", { class: "muted", lang: "en" }, r.error.text)] : []
      : found.valid
        ? [
            el("p", {}, `${r.kind === "tune" ? (found.kept ? say.gradeKept : say.gradeAsIs) : say.grade}: `, el("strong", { class: "num" }, found.grade)),
            tiles([say.down, mbit(found.down_bps), say.mbit], [say.up, mbit(found.up_bps), say.mbit], [say.roundTrip, ms(found.idle_ms), "ms"]),
            tiles([say.addedDown, ms(Math.max(0, found.down_p95_ms)), ""], [say.addedUp, ms(Math.max(0, found.up_p95_ms)), ""], ...(found.fell_ms > 0 ? ([[say.fell, ms(found.fell_ms), "ms"]] as [string, string, string][]) : [])),
            ...(found.outcomes.length > 0 ? [el("p", {}, say.outcomes), tiles(...found.outcomes.map((o): [string, string, string] => [say.uses[o.use] ?? o.use, String(o.score), ""]))] : []),
          ]
        : reasons(found.invalid.map((x) => (say.tag === "de" ? x.de : x.en)));
  const tone = found?.valid === true ? (r.kind === "tune" && !found.kept ? "plain" : "") : r.stopped ? "" : "bad";
  return el("div", { class: `outcome ${tone}`, "data-key": "ended" }, el("p", {}, el("strong", {}, endedSays(r))), ...figures);
}

function measure(w: WAN): HTMLElement {
  const r = w.running;
  const may = mayChange() && w.pending === null;
  const parts: Child[] = [el("h2", {}, say.measure)];
  if (r !== null && !r.ended) {
    parts.push(running(r));
  } else {
    parts.push(el("p", { class: "muted" }, say.measureLead));
    if (r !== null) parts.push(outcome(r));
    if (mayChange()) {
      const button = (kind: string, text: string): HTMLElement => el("button", { type: "button", id: `run-${kind}`, "data-do": "run", "data-kind": kind, ...(may ? {} : { disabled: "" }) }, text);
      parts.push(el("div", { class: "fields" }, button("test", say.test), button("tune", say.tune)));
    }
  }
  return el("section", { class: "block", "data-key": "measure" }, ...parts);
}

const addedMs = (r: Result): number => Math.max(r.down_p95_ms, r.up_p95_ms, 0);

function compared(all: Result[]): HTMLElement {
  const valid = all.filter((r) => r.valid);
  const after = valid.find((r) => r.id === model.after) ?? valid.find((r) => r.shaped);
  const before = valid.find((r) => r.id === model.before) ?? valid.find((r) => !r.shaped);
  const parts: Child[] = [el("h2", { id: "compare-title" }, say.beforeAfter)];
  if (before === undefined || after === undefined) {
    parts.push(el("p", { class: "muted" }, say.needTwo));
  } else {
    const choose = (id: "before" | "after", chosen: Result): HTMLElement =>
      el(
        "div",
        { class: "field" },
        el("label", { for: id }, say[id]),
        el("select", { id, "data-do": "compare", "data-still": `${chosen.id} ${valid.length}` }, ...valid.map((r) => el("option", { value: r.id, ...(r === chosen ? { selected: "" } : {}) }, `${day(r.at_ms)} ${clock(r.at_ms)}, ${r.shaped ? say.shaped : say.unshaped}`))),
      );
    const figures: [string, (r: Result) => string][] = [
      [say.grade, (r) => r.grade],
      [say.addedDown, (r) => ms(Math.max(0, r.down_p95_ms))],
      [say.addedUp, (r) => ms(Math.max(0, r.up_p95_ms))],
      ...Object.entries(say.uses).map(([use, name]): [string, (r: Result) => string] => [name, (r) => String(r.outcomes.find((o) => o.use === use)?.score ?? "–")]),
      [say.idleTrip, (r) => ms(r.idle_ms)],
      [say.downMbit, (r) => mbit(r.down_bps)],
      [say.upMbit, (r) => mbit(r.up_bps)],
    ];
    parts.push(
      el("div", { class: "fields" }, choose("before", before), choose("after", after)),
      el(
        "div",
        { class: "wrap" },
        el(
          "table",
          { "aria-labelledby": "compare-title" },
          el("thead", {}, el("tr", {}, el("th", { scope: "col" }, say.figure), el("th", { scope: "col" }, say.before), el("th", { scope: "col" }, say.after))),
          el("tbody", {}, ...figures.map(([name, of]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, of(before)), el("td", {}, of(after))))),
        ),
      ),
    );
  }
  return el("section", { class: "block", "data-key": "compare" }, ...parts);
}

function history(all: Result[]): HTMLElement {
  const parts: Child[] = [el("h2", { id: "history-title" }, say.history)];
  if (all.length === 0) parts.push(el("p", { class: "muted" }, say.noHistory));
  const days = new Map<string, Result[]>();
  for (const r of all) days.set(day(r.at_ms), [...(days.get(day(r.at_ms)) ?? []), r]);
  for (const [name, results] of days) {
    parts.push(
      el(
        "details",
        { "data-key": name, ...(days.size === 1 ? { open: "" } : {}) },
        el("summary", {}, `${name}: ${[say.measurements(results.length), ...results.map((r) => r.grade).filter((g) => g !== "")].join(", ")}`),
        el(
          "div",
          { class: "wrap" },
          el(
            "table",
            { "aria-label": name },
            el("thead", {}, el("tr", {}, ...[say.time, say.kind, say.grade, say.added, "↓", "↑"].map((h) => el("th", { scope: "col" }, h)))),
            el(
              "tbody",
              {},
              ...results.map((r) =>
                el(
                  "tr",
                  {},
                  el("th", { scope: "row" }, clock(r.at_ms)),
                  el("td", {}, `${say.kinds[r.kind]}, ${r.shaped ? say.shaped : say.unshaped}`),
                  el("td", {}, r.valid ? r.grade : say.notValid),
                  el("td", {}, r.valid ? ms(addedMs(r)) : "–"),
                  el("td", {}, r.valid ? mbit(r.down_bps) : "–"),
                  el("td", {}, r.valid ? mbit(r.up_bps) : "–"),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  }
  return el("section", { class: "block", "data-key": "history", "data-still": `${all.map((r) => r.id).join()} ${say.tag}` }, ...parts);
}

/** What an entry of the schedule says. */
function planned(e: EntryTable, s: State): string {
  const speed = (text: string | undefined): string => (text === undefined ? say.asUsual : rate(bps(text)));
  const machine = e.do === "rates" ? say.ratesAre(speed(e.down), speed(e.up)) : s.machines.find((m) => m.address === e.machine)?.name || (e.machine ?? "");
  const days = !e.days?.length ? say.everyDay : e.days.map((d) => say.days[d] ?? d).join(", ");
  return `${say.does[e.do](e.at ?? e.from ?? "", e.to ?? "", machine)}, ${days}`;
}

/** The form of an entry that is there, or of a new one. */
function planForm(w: WAN, s: State, of: EntryTable | undefined): HTMLElement {
  const machines = s.machines.map((m): [string, string] => [m.address, m.name || m.address]);
  const theirs = of?.machine;
  if (theirs !== undefined && !machines.some(([address]) => address === theirs)) machines.push([theirs, theirs]);
  const kind = of?.do ?? "test";
  const speed = (text: string | undefined): string => (text === undefined ? "" : numeral(String(Math.round(bps(text) / 1e4) / 100)));
  const only = (kinds: string): Record<string, string> => ({ "data-for": kinds, ...(kinds.split(" ").includes(kind) ? {} : { hidden: "" }) });
  const option = (value: string, text: string, chosen: string | undefined): HTMLElement => el("option", { value, ...(value === chosen ? { selected: "" } : {}) }, text);
  const kinds = Object.entries(say.options).filter(([k]) => w.classes || k === kind || (k !== "first" && k !== "last"));
  const rates = { inputmode: "decimal", autocomplete: "off", placeholder: say.unchanged };
  return el(
    "details",
    { "data-key": "plan", ...(of === undefined ? {} : { open: "" }) },
    el("summary", {}, of === undefined ? say.addTitle : say.editTitle),
    el(
      "form",
      { "data-do": "plan", "data-key": `plan ${of === undefined ? "" : (model.editing ?? "")}`, "data-still": `${machines.join()} ${w.classes} ${w.pending === null} ${say.tag}`, class: "fields" },
      el("div", { class: "field" }, el("label", { for: "plan-do" }, say.doWhat), el("select", { id: "plan-do", name: "do" }, ...kinds.map(([k, t]) => option(k, t, kind)))),
      field("plan-from", say.at, { type: "time", required: "", value: of?.at ?? of?.from ?? "03:30" }),
      el("div", { class: "field", ...only("first last rates") }, el("label", { for: "plan-to" }, say.until), el("input", { id: "plan-to", name: "plan-to", type: "time", value: of?.to || "17:00" })),
      el("div", { class: "fields", ...only("rates") }, field("plan-down", say.downMbit, { ...rates, value: speed(of?.down) }), field("plan-up", say.upMbit, { ...rates, value: speed(of?.up) })),
      el("div", { class: "field", ...only("first last") }, el("label", { for: "plan-machine" }, say.machine), el("select", { id: "plan-machine", name: "machine" }, ...machines.map(([address, name]) => option(address, name, of?.machine)))),
      el(
        "fieldset",
        { class: "days" },
        el("legend", {}, say.onDays),
        ...Object.entries(say.days).map(([k, t]) => el("label", {}, el("input", { type: "checkbox", name: "day", value: k, ...(of?.days?.includes(k) === true ? { checked: "" } : {}) }), ` ${t}`)),
      ),
      el("p", { class: "wrong", id: "plan-wrong", role: "alert" }),
      el(
        "div",
        { class: "fields whole" },
        el("button", { type: "submit", class: "primary", ...(w.pending === null ? {} : { disabled: "" }) }, of === undefined ? say.add : say.save),
        ...(of === undefined ? [] : [el("button", { type: "button", "data-do": "unedit" }, say.cancel)]),
      ),
    ),
  );
}

function schedule(w: WAN, s: State): HTMLElement {
  const entries = model.schedule?.entries ?? [];
  const parts: Child[] = [el("h2", {}, say.schedule), el("p", { class: "muted" }, say.scheduleLead)];
  const mine = entries.map((e, i) => ({ e, i })).filter(({ e }) => keyOf(e) === w.wan);
  if (mine.length === 0) parts.push(el("p", {}, say.noSchedule));
  else {
    parts.push(
      el(
        "ul",
        { class: "plain-list" },
        ...mine.map(({ e, i }) =>
          el(
            "li",
            { class: "entry" },
            el("span", {}, planned(e, s)),
            ...(mayChange()
              ? [
                  el(
                    "span",
                    { class: "fields" },
                    el("button", { type: "button", "data-do": "replan", "data-index": String(i), "aria-label": say.editThis(planned(e, s)) }, say.edit),
                    el("button", { type: "button", "data-do": "unplan", "data-index": String(i), "aria-label": say.removeThis(planned(e, s)) }, say.remove),
                  ),
                ]
              : []),
          ),
        ),
      ),
    );
  }
  if (mayChange()) parts.push(planForm(w, s, model.editing === null ? undefined : entries[model.editing]));
  return el("section", { class: "block", "data-key": "schedule" }, ...parts);
}

/** Draws the view. */
export function lineView(w: WAN, s: State, width: number): Child[] {
  const out: Child[] = [shaping(w), speeds(w), following(w), measure(w)];
  const results = (model.history?.results ?? []).filter((r) => r.wan === w.wan || r.wan === w.interface);
  if (model.history !== null) out.push(compared(results), history(results));
  if (model.day !== null && keyOf(model.day) === w.wan) {
    const c = chart(model.day, s.time_ms - 86_400_000, s.time_ms, width, say.dayTitle);
    c.setAttribute("data-still", `${width} ${model.day.at_ms.at(-1) ?? 0}`);
    out.push(c);
  }
  if (model.schedule !== null) out.push(schedule(w, s));
  return out;
}
