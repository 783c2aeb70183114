// The page of sliders: a question to the server's simulator, drawn at once.
import "./style.css";
import { el, find } from "./dom";
import { admitted } from "./key";
import { charts } from "./panels/charts";
import { knobs } from "./panels/knobs";
import { mbit, ms, tone } from "./words";
import type { Picture } from "./wire";

const patience = 120; // ms for which the sliders must rest
const fast = 60; // Mbit/s, both ways together, from which a first look is asked for
const quiet = 900; // ms before a screen reader is told

const problem = find("problem");
const say = find("say");
const curves = charts();
let asked = new AbortController();
let soon: ReturnType<typeof setTimeout> | undefined;
let later: ReturnType<typeof setTimeout> | undefined;

/** Asks for a picture once the sliders rest. */
function change(question: URLSearchParams): void {
  history.replaceState(null, "", `?${question.toString()}`);
  clearTimeout(soon);
  soon = setTimeout(() => void ask(question), patience);
}

async function ask(question: URLSearchParams): Promise<void> {
  asked.abort();
  const mine = (asked = new AbortController());
  document.documentElement.dataset["state"] = "asking";
  const draw = async (q: string, first: boolean): Promise<void> => {
    const r = await fetch(`/api/model?${q}`, { signal: mine.signal });
    const body = (await r.json()) as Picture & { error?: string };
    if (!r.ok) throw new Error(body.error ?? `status ${r.status}`);
    problem.hidden = true;
    show(body, question, first);
  };
  try {
    if (Number(question.get("down")) + Number(question.get("up")) > fast) {
      await draw(`${question.toString()}&quick=1`, true);
      document.documentElement.dataset["state"] = "first";
    }
    await draw(question.toString(), false);
  } catch (e) {
    if (mine.signal.aborted) return; // a newer question is under way
    problem.textContent = `There is no picture: ${e instanceof Error ? e.message : String(e)}.`;
    problem.hidden = false;
  }
  document.documentElement.dataset["state"] = "shown";
}

/** Shows a picture; a first look is replaced soon, so nobody is told of it. */
function show(p: Picture, question: URLSearchParams, first: boolean): void {
  const root = find("result");
  const letter = el("p", { class: `grade tone-${p.grade === "" ? "none" : tone(p.grade)}` });
  letter.append(el("span", { class: "visually-hidden" }, "Grade "), el("span", {}, p.grade === "" ? "–" : p.grade));
  const tiles = el("dl", { class: "tiles" });
  const tile = (name: string, value: string, unit: string): void => {
    tiles.append(el("div", {}, el("dt", {}, name), el("dd", {}, el("span", { class: "num" }, value), el("span", { class: "unit" }, ` ${unit}`))));
  };
  tile("Added, p95", `+${ms(Math.max(0, p.added_ms.p95))}`, "ms");
  tile("Download", mbit(p.down_mbps), "Mbit/s");
  tile("Upload", mbit(p.up_mbps), "Mbit/s");
  if (p.calls !== undefined) tile("Calls lose", (100 * p.calls.loss).toFixed(1), "%");
  if (p.mos !== undefined) tile("A call sounds", p.mos.toFixed(1), "of 4.4");
  if (p.page_s !== undefined) tile("A web page takes", p.page_s.toFixed(1), "s");
  if (p.film_mbps !== undefined) tile("Films come in", mbit(p.film_mbps), "Mbit/s");
  root.replaceChildren(
    el("div", { class: "verdict" }, letter, el("div", {}, el("h2", {}, p.verdict), el("p", { class: "muted" }, first ? glance(p) : belief(p, question)))),
    tiles,
  );
  // On a phone the answer is below the sliders: this stays in sight.
  const brief = find("brief");
  brief.replaceChildren(
    el("strong", { class: `tone-${p.grade === "" ? "none" : tone(p.grade)}` }, p.grade === "" ? "–" : p.grade),
    el("span", {}, `+${ms(Math.max(0, p.added_ms.p95))} ms`),
    el("span", {}, `${mbit(p.down_mbps)} / ${mbit(p.up_mbps)} Mbit/s`),
  );
  root.hidden = find("limits").hidden = brief.hidden = false;
  curves.paint(
    [
      { name: "idle", series: p.idle },
      { name: "loaded", series: p.loaded },
    ],
    { latency: p.verdict, rate: `Download ${mbit(p.down_mbps)} Mbit/s, upload ${mbit(p.up_mbps)} Mbit/s in the mean.` },
  );
  clearTimeout(later);
  if (first) return;
  later = setTimeout(() => (say.textContent = `Grade ${p.grade}. ${p.verdict}`), quiet);
}

/** What a first look was taken at. */
function glance(p: Picture): string {
  const what = p.slower === undefined ? "a moment of it" : `a line ${p.slower.toFixed(p.slower < 10 ? 1 : 0)} times as slow, its rates raised by as much`;
  return `A first look, at ${what}; the whole is being simulated.`;
}

/** What the comparison with a real kernel lets one expect (docs/simulator.md). */
function belief(p: Picture, question: URLSearchParams): string {
  const width = (v: number): number => Math.max(1, v / 10);
  const from = Math.max(p.idle_ms, p.rtt_ms.p95 - width(p.rtt_ms.p95));
  const to = p.rtt_ms.p95 + width(p.rtt_ms.p95);
  const wild = question.get("queue") === "none" && Number(question.get("downloads")) > 0 && Number(question.get("uploads")) > 0;
  return `From a simulator: a real line’s p95 would most likely lie between ${ms(from)} and ${ms(to)} ms, its speeds within 3 %.${
    wild ? " With both directions full and no queue to keep order, it may be further off." : ""
  }`;
}

const panel = knobs(new URLSearchParams(location.search), change);
void admitted().then(() => {
  find("control").hidden = false;
  void ask(panel.question());
});
