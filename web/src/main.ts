// Joins the panels: a test at /, a stored result at /r/ID. This thread only
// draws, at most once a frame; measuring is done in workers.
import "./style.css";
import { find } from "./dom";
import { admitted } from "./key";
import { rich, say, speaking, translate } from "./lang";
import { charts } from "./panels/charts";
import { control } from "./panels/control";
import { showFigures } from "./panels/figures";
import { live } from "./panels/live";
import { showResult } from "./panels/result";
import { Run, Stopped, type Plan } from "./run";
import type { Saved, Submission } from "./wire.gen";

translate();
const problem = find("problem");
const told = find("say");
const curves = charts();

function complain(why: string): void {
  problem.textContent = why;
  problem.hidden = false;
}

function show(s: Saved): void {
  showResult(s);
  curves.show(s.test);
  showFigures(s.test, s.words);
}

/** Sends what was measured to the server, which judges it and keeps the result. */
async function send(s: Submission, session: string): Promise<Saved> {
  const r = await fetch(`/api/results?session=${encodeURIComponent(session)}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...speaking },
    body: JSON.stringify(s),
  });
  const body = (await r.json()) as Saved;
  if (!r.ok) throw new Error(body.error);
  return body;
}

/** Keeps a phone's screen on, where the browser can; a dark one ends the test. */
async function stayAwake(): Promise<WakeLockSentinel | undefined> {
  try {
    return await (navigator as { wakeLock?: WakeLock }).wakeLock?.request("screen");
  } catch {
    return undefined; // low on battery, or not allowed
  }
}

function test(): void {
  const panel = live();
  let current: Run | undefined;

  const start = async (plan: Plan): Promise<void> => {
    problem.hidden = true;
    find("lead").hidden = true;
    for (const id of ["result", "figures"]) find(id).hidden = true;
    buttons.set("running");
    panel.begin(plan);
    curves.begin((plan.idleMs + plan.loadMs * (plan.both ? 3 : 2)) / 1e3);
    const awake = await stayAwake();
    const run = new Run(plan, {
      hello: () => undefined,
      phase(name, at, length) {
        panel.phase(name, length);
        curves.phase(name, at, length);
      },
      probe(at, rtt) {
        panel.probe(rtt);
        curves.probe(at, rtt);
      },
      rate(direction, at, mbps) {
        panel.rate(direction, mbps);
        curves.rate(direction, at, mbps);
      },
    });
    current = run;
    const stopDrawing = draw(() => {
      panel.draw();
      curves.draw();
    });
    try {
      const measured = await run.run();
      let saved: Saved;
      try {
        saved = await send(measured, run.session);
      } catch (e) {
        complain(say.notJudged(reason(e)));
        told.textContent = "";
        return;
      }
      show(saved);
      find("result").scrollIntoView({ block: "nearest" });
      const { test, words } = saved;
      told.textContent = [say.done, test.valid ? say.gradeIs(test.grade) : "", words.verdict].join(" ");
    } catch (e) {
      complain(e instanceof Stopped ? say.stopped : say.brokeOff(reason(e)));
      told.textContent = "";
    } finally {
      stopDrawing();
      panel.end();
      run.close();
      current = undefined;
      buttons.set("again");
      void awake?.release();
    }
  };
  const buttons = control(
    (plan) => void start(plan),
    () => current?.stop(),
  );
}

/** Calls paint once a frame, or once a second where little motion is preferred. */
function draw(paint: () => void): () => void {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 50;
  let last = 0;
  let frame = requestAnimationFrame(function again(now) {
    if (now - last >= calm) {
      last = now;
      paint();
    }
    frame = requestAnimationFrame(again);
  });
  return () => cancelAnimationFrame(frame);
}

async function stored(id: string): Promise<void> {
  find("title").textContent = say.storedTitle;
  find("lead").replaceChildren(...rich(say.storedLead));
  try {
    const r = await fetch(`/api/results/${id}/shown`, { headers: speaking });
    const body = (await r.json()) as Saved;
    if (!r.ok) throw new Error(body.error);
    show(body);
  } catch (e) {
    complain(say.notShown(reason(e)));
  }
}

function reason(e: unknown): string {
  return e instanceof Error ? e.message : String(e);
}

const id = /^\/r\/([A-Za-z0-9_-]+)$/.exec(location.pathname)?.[1];
if (id === undefined) void admitted().then(test);
else void stored(id);
