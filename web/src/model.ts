// The page of sliders: a question to the server's simulator, drawn at once.
import "./style.css";
import { el, find } from "./dom";
import { admitted } from "./key";
import { charts } from "./panels/charts";
import { knobs } from "./panels/knobs";
import { mbit, ms } from "./figure";
import { numeral, say, translate } from "./lang";
import { tone } from "./tone";
import type { Picture } from "./wire.gen";

const patience = 120; // ms for which the sliders must rest
const fast = 60; // Mbit/s, both ways together, from which a first look is asked for
const quiet = 900; // ms before a screen reader reads the answer

translate();
const problem = find("problem");
const told = find("say");
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
    problem.textContent = say.noPicture(e instanceof Error ? e.message : String(e));
    problem.hidden = false;
  }
  document.documentElement.dataset["state"] = "shown";
}

/** Shows a picture; a first look is replaced soon, so screen readers do not read it. */
function show(p: Picture, question: URLSearchParams, first: boolean): void {
  const root = find("result");
  const verdict = p.verdicts[say.tag] ?? p.verdict;
  const letter = el("p", { class: `grade tone-${p.grade === "" ? "none" : tone(p.grade)}` });
  letter.append(el("span", { class: "visually-hidden" }, `${say.grade} `), el("span", {}, p.grade === "" ? "–" : p.grade));
  const tiles = el("dl", { class: "tiles" });
  const tile = (name: string, value: string, unit: string): void => {
    tiles.append(el("div", {}, el("dt", {}, name), el("dd", {}, el("span", { class: "num" }, value), el("span", { class: "unit" }, ` ${unit}`))));
  };
  tile(say.added, `+${ms(Math.max(0, p.added_ms.p95))}`, "ms");
  tile(say.download, mbit(p.down_mbps), "Mbit/s");
  tile(say.upload, mbit(p.up_mbps), "Mbit/s");
  if (p.calls !== undefined) tile(say.callsLose, numeral((100 * p.calls.loss).toFixed(1)), "%");
  if (p.mos !== undefined) tile(say.callSounds, numeral(p.mos.toFixed(1)), say.of44);
  if (p.page_s !== undefined) tile(say.pageTakes, numeral(p.page_s.toFixed(1)), "s");
  if (p.film_mbps !== undefined) tile(say.filmsCome, mbit(p.film_mbps), "Mbit/s");
  root.replaceChildren(
    el("div", { class: "verdict" }, letter, el("div", {}, el("h2", {}, verdict), el("p", { class: "muted" }, first ? glance(p) : belief(p, question)))),
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
    { latency: verdict, rate: say.meanRates(mbit(p.down_mbps), mbit(p.up_mbps)) },
  );
  clearTimeout(later);
  if (first) return;
  later = setTimeout(() => (told.textContent = `${say.gradeIs(p.grade)} ${verdict}`), quiet);
}

/** What a first look was taken at. */
function glance(p: Picture): string {
  return p.slower === undefined ? say.firstMoment : say.firstSlower(numeral(p.slower.toFixed(p.slower < 10 ? 1 : 0)));
}

/** What the comparison with a real kernel lets one expect (docs/simulator.md). */
function belief(p: Picture, question: URLSearchParams): string {
  const width = (v: number): number => Math.max(1, v / 10);
  const from = Math.max(p.idle_ms, p.rtt_ms.p95 - width(p.rtt_ms.p95));
  const to = p.rtt_ms.p95 + width(p.rtt_ms.p95);
  const wild = question.get("queue") === "none" && Number(question.get("downloads")) > 0 && Number(question.get("uploads")) > 0;
  return say.belief(ms(from), ms(to)) + (wild ? say.beliefWild : "");
}

const panel = knobs(new URLSearchParams(location.search), change);
void admitted().then(() => {
  find("control").hidden = false;
  void ask(panel.question());
});
