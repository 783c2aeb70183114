// The start button, which is also the stop button, and the options.
import { find } from "../dom";
import { say } from "../lang";
import type { Plan } from "../run";

export interface Control {
  /** Shows the button for what it does next. */
  set(state: "ready" | "running" | "again"): void;
}

const idleMs = 3000;
const shortMs = 8000;
const longMs = 20_000;

/** Makes the panel work. start and stop are called when the button is pressed. */
export function control(start: (p: Plan) => void, stop: () => void): Control {
  const form = find<HTMLFormElement>("control");
  const go = find<HTMLButtonElement>("go");
  const both = find<HTMLInputElement>("both");
  const long = find<HTMLInputElement>("long");
  const cost = find("cost");
  const options = find<HTMLDetailsElement>("options");
  let running = false;

  const plan = (): Plan => ({ idleMs, loadMs: long.checked ? longMs : shortMs, both: both.checked });
  const price = (): void => {
    const p = plan();
    const loads = p.both ? 3 : 2;
    const seconds = Math.ceil((p.idleMs + loads * (p.loadMs + 1000)) / 1000);
    const moved = Math.round(((loads + (p.both ? 1 : 0)) * p.loadMs * 100) / 8 / 1e3 / 10) * 10;
    cost.textContent = say.cost(seconds, moved);
  };
  both.addEventListener("change", price);
  long.addEventListener("change", price);
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    if (running) stop();
    else start(plan());
  });
  price();
  form.hidden = false;
  return {
    set(state) {
      running = state === "running";
      go.textContent = { ready: say.fixed.start, running: say.stop, again: say.again }[state];
      go.classList.toggle("primary", !running);
      cost.hidden = running;
      options.hidden = running;
      find("languages").hidden = running; // choosing one loads the page anew
      if (running) options.open = false;
    },
  };
}
