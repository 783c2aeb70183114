// A browser on the router's page with what every flow does there: waits, steps, and
// checks of what is shown, axe's among them.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { faintTexts, launch, unnamedControls } from "../../test/visitor.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const far = 100_000; // ms; a busy machine is slow
// What the browser itself logs about answers that a flow provokes.
const expected = /status of (401|403|409|429|503)|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RE|ERR_INCOMPLETE/;

/** Starts a browser as o says; found is what it sees from then on. */
export async function begin(o) {
  const { context, close } = await launch(o);
  const found = { errors: [], axe: [], spills: [], faint: [], unnamed: [], small: [], said: [], steps: {}, looks: [] };
  const page = context.pages()[0] ?? (await context.newPage());
  page.setDefaultTimeout(far);
  page.on("console", (m) => m.type() === "error" && !expected.test(m.text()) && found.errors.push(m.text()));
  page.on("pageerror", (e) => found.errors.push(String(e)));
  await page.exposeFunction("heard", (t) => found.said.push(plain(t)));
  await page.addInitScript(() =>
    document.addEventListener("DOMContentLoaded", () => {
      const say = document.getElementById("say");
      new MutationObserver(() => say.textContent !== "" && void globalThis.heard(say.textContent)).observe(say, { childList: true, characterData: true, subtree: true });
    }),
  );

  const shoot = async (name, fullPage = false) => {
    if (o.shots) await page.screenshot({ path: join(o.shots, `${o.flow}-${o.width}-${o.scheme}-${o.language.slice(0, 2)}-${name}.png`), fullPage });
  };
  const shown = (selector) => page.waitForSelector(selector);
  return {
    page, found, close, shoot, shown,
    until: (f, arg) => page.waitForFunction(f, arg),
    text: async (selector) => plain(await page.locator(selector).first().innerText()),
    step: (name, value) => (found.steps[name] = value),
    focused: () => page.evaluate(() => document.activeElement?.id ?? ""),
    /** Goes to a part of the page. */
    open: async (view) => {
      await page.locator(`#pages a[href="#${view}"]`).click();
      await shown(`[data-view="${view}"]`);
    },
    /** Checks what is shown now. */
    look: async (name) => {
      await page.waitForTimeout(120); // one frame, and layouts that follow it
      // A phone's window grows with what is too wide for it.
      const wide = (await page.evaluate(() => Math.max(innerWidth, document.documentElement.scrollWidth))) - o.width;
      if (wide > 0) found.spills.push(`${name}: ${wide} px: ${await page.evaluate(beyond, o.width)}`);
      found.faint.push(...(await page.evaluate(faintTexts)).map((t) => `${name}: ${t}`));
      found.unnamed.push(...(await page.evaluate(unnamedControls)).map((t) => `${name}: ${t}`));
      found.small.push(...(await page.evaluate(smallTargets)).map((t) => `${name}: ${t}`));
      if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(axe);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
      found.axe.push(...violations.flatMap((v) => v.nodes.map((n) => `${name}: ${v.id}: ${n.html.slice(0, 120)}: ${n.failureSummary?.replaceAll("\n", " ")}`)));
      found.looks.push(name);
      await shoot(name, true);
    },
  };
}

const plain = (t) => t.replaceAll("\u00a0", " ");

/** What reaches beyond the window. Runs in the page. */
function beyond(width) {
  return [...document.querySelectorAll("main *")].filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > width).map((e) => e.outerHTML.slice(0, 80)).at(-1);
}

/** Controls too small for a finger (WCAG 2.2, 2.5.8: 24 px). Runs in the page. */
function smallTargets() {
  return [...document.querySelectorAll("button, input, select, summary, nav a")]
    .filter((e) => e.checkVisibility())
    .map((e) => [e, e.getBoundingClientRect()])
    .filter(([, r]) => r.width < 20 || r.height < 20 || (r.width < 24 && r.height < 24))
    .map(([e, r]) => `${e.id || e.outerHTML.slice(0, 60)}: ${r.width} × ${r.height}`);
}
