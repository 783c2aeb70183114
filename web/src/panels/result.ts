// The grade, the sentence, what makes it invalid, and the link to the stored
// result.
import { el, find, type Child } from "../dom";
import { mbit, ms } from "../figure";
import { rich, say } from "../lang";
import { tone } from "../tone";
import { phasesOf } from "../wire";
import type { Saved, Test } from "../wire.gen";

/** Shows the result of a test. Its id is "" if it was not kept; then error says why. */
export function showResult({ test: t, id, error, words: said }: Saved): void {
  const root = find("result");
  const grade = t.valid && t.grade !== "" ? t.grade : "–";
  const letter = el("p", { class: `grade tone-${t.valid ? tone(t.grade) : "none"}` });
  letter.append(el("span", { class: "visually-hidden" }, t.valid ? `${say.grade} ` : say.noGrade), el("span", t.valid ? {} : { "aria-hidden": "true" }, grade));
  const words: Child[] = [el("h2", { id: "result-title" }, t.valid ? said.verdict : said.certain === "" ? say.notValid : said.certain)];
  if (t.valid) {
    const ways = phasesOf(t).filter((p) => p.name !== "idle");
    const grades = ways.map((p) => `${say.phase[p.name]} ${said.grades[p.name] ?? ""}`);
    if (grades.length > 0) words.push(el("p", { class: "muted" }, say.grades(grades.join(", "))));
  } else {
    words.push(el("ul", { class: "reasons" }, ...said.reasons.map((r) => el("li", {}, r))));
  }
  root.replaceChildren(el("div", { class: "verdict" }, letter, el("div", {}, ...words)));
  if (t.valid) root.append(tiles(t));
  if (t.valid ? tone(t.grade) === "bad" : said.certain !== "") root.append(el("div", { class: "hint" }, el("h3", {}, say.whatNow), el("p", {}, ...rich(say.whatNowIs))));
  root.append(links(t, id, error));
  root.hidden = false;
}

function tiles(t: Test): HTMLElement {
  const list = el("dl", { class: "tiles" });
  const tile = (name: string, value: string, unit: string): void => {
    list.append(el("div", {}, el("dt", {}, name), el("dd", {}, el("span", { class: "num" }, value), el("span", { class: "unit" }, ` ${unit}`))));
  };
  if (t.idle) tile(say.idleLatency, ms(t.idle.latency.rtt_ms.p50), "ms");
  const loaded = phasesOf(t).filter((p) => p.name !== "idle");
  if (loaded.length > 0) {
    const most = Math.max(...loaded.map((p) => p.phase.latency.increase_ms.p95));
    tile(say.addedBusy, `+${ms(Math.max(0, most))}`, "ms");
  }
  if (t.download) tile(say.download, mbit(t.download.goodput_down_bps / 1e6), "Mbit/s");
  if (t.upload) tile(say.upload, mbit(t.upload.goodput_up_bps / 1e6), "Mbit/s");
  for (const o of t.outcomes ?? []) tile(say.uses[o.use] ?? o.use, String(o.score), say.ofHundred);
  const fell = Math.max(0, ...loaded.map((p) => p.phase.recovery_ms ?? 0));
  if (fell > 0) tile(say.fell, ms(fell), "ms");
  return list;
}

function links(t: Test, id: string, why: string): HTMLElement {
  const row = el("div", { class: "links" });
  if (id === "") {
    row.append(el("p", { class: "muted" }, say.noLink(why)));
    return row;
  }
  const url = new URL(`/r/${id}`, location.href);
  if (url.pathname !== location.pathname) row.append(el("a", { href: url.pathname, id: "stored" }, say.link));
  row.append(
    el("a", { href: `/api/results/${id}`, download: `unbloat-${t.time.replaceAll(/[^0-9T]/g, "")}.json` }, say.save),
  );
  // Missing on pages that were not loaded over TLS.
  const clipboard = navigator.clipboard as Clipboard | undefined;
  if (clipboard !== undefined) {
    const copy = el("button", { type: "button" }, say.copy);
    copy.addEventListener("click", () => {
      clipboard.writeText(url.href).then(
        () => (copy.textContent = say.copied),
        () => (copy.textContent = say.notAllowed),
      );
    });
    row.append(copy);
  }
  return row;
}
