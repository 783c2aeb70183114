// Drives the page of sliders in a headless Chromium, by keyboard, and prints
// what it found as JSON. internal/webtest's TestModelPage calls it:
//   node model.mjs URL '{"width":…,"height":…,"scheme":"light","shots":"DIR"|"","key":""}'
import { join } from "node:path";
import { faintTexts, launch, tabTo, unnamedControls } from "./visitor.mjs";

const [url, text] = process.argv.slice(2);
const o = { width: 1280, height: 900, scheme: "light", motion: "reduce", shots: "", key: "", ...JSON.parse(text ?? "{}") };
const { context, close } = await launch(o);
const found = { errors: [], spills: [], faint: [], unnamed: [], small: [], said: [], asked: false, linked: false, refused: "", answers: [] };
try {
  const page = context.pages()[0] ?? (await context.newPage());
  page.on("console", (m) => m.type() === "error" && !(o.key && m.text().includes("401")) && found.errors.push(m.text()));
  page.on("pageerror", (e) => found.errors.push(String(e)));
  const look = async (name) => {
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) found.spills.push(`${name}: ${wide} px`);
    found.faint.push(...(await page.evaluate(faintTexts)).map((t) => `${name}: ${t}`));
    found.unnamed.push(...(await page.evaluate(unnamedControls)));
    found.small.push(...(await page.evaluate(smallTargets)));
    if (o.shots) await page.screenshot({ path: join(o.shots, `model-${o.width}-${o.scheme}-${name}.png`), fullPage: true });
  };
  const shown = () => page.waitForFunction(() => document.documentElement.dataset.state === "shown", undefined, { timeout: 20_000 });
  const answer = async (name) => {
    await shown();
    found.answers.push({
      name,
      grade: await page.locator("#result .grade span:last-child").innerText(),
      sentence: await page.locator("#result h2").innerText(),
      belief: await page.locator("#result .muted").first().innerText(),
      query: new URL(page.url()).search,
    });
  };
  await page.goto(`${url}model?downloads=4&uploads=4`, { waitUntil: "load" });
  if (o.key) {
    await page.waitForSelector("#key-form");
    found.asked = true;
    await look("key");
    await page.keyboard.type("not the key");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.getElementById("key-wrong")?.textContent !== "");
    found.refused = await page.locator("#key-wrong").innerText();
    await page.keyboard.type(o.key);
    await page.keyboard.press("Enter");
  }
  await answer("none");
  await page.evaluate(() => {
    globalThis.heard = [];
    const say = document.getElementById("say");
    new MutationObserver(() => globalThis.heard.push(say.textContent)).observe(say, { childList: true });
  });
  await look("none");
  // From the address to the curve, as a visitor waits for it, with a question
  // that was not asked before.
  await tabTo(page, "knob-rtt");
  found.value = await page.locator("#knob-rtt").getAttribute("aria-valuetext");
  const before = await page.evaluate(() => performance.now());
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => document.documentElement.dataset.state === "asking", undefined, { polling: 5 });
  await page.waitForFunction(() => document.documentElement.dataset.state === "shown", undefined, { polling: 5 });
  found.tookMs = (await page.evaluate(() => performance.now())) - before;
  await answer("rtt");
  // A slider that is dragged asks only when it rests, and is announced once.
  for (let i = 0; i < 8; i++) await page.keyboard.press("ArrowRight");
  await page.waitForTimeout(2500);
  found.said = await page.evaluate(() => globalThis.heard);
  await page.locator("#knob-queue").focus();
  await page.locator("#knob-queue").selectOption("cake");
  await page.waitForTimeout(300);
  await answer("cake");
  await look("cake");
  // On a fast line there is a quick answer first, and then the full one.
  const quick = await context.newPage();
  await quick.addInitScript(() => { // what is shown at each state, and when it is there first
    globalThis.states = {};
    new MutationObserver(() => {
      const state = document.documentElement.dataset.state;
      globalThis.states[state] ??= { at: performance.now(), text: document.querySelector("#result .muted")?.textContent ?? "" };
    }).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-state"] });
  });
  await quick.goto(`${url}model?down=1000&up=1000&downloads=4&uploads=4&calls=1&queue=fq_codel&share=95`, { waitUntil: "load" });
  await quick.waitForFunction(() => globalThis.states.shown !== undefined, undefined, { timeout: 20_000 });
  const { asking, first, shown: whole } = await quick.evaluate(() => globalThis.states);
  Object.assign(found, { first: first?.text, whole: whole.text, firstMs: first?.at - asking.at, wholeMs: whole.at - asking.at });
  await quick.close();
  // Its address alone shows the same picture again.
  const there = page.url();
  const again = await context.newPage();
  await again.goto(there, { waitUntil: "load" });
  await again.waitForFunction(() => document.documentElement.dataset.state === "shown", undefined, { timeout: 20_000 });
  found.shared = await again.locator("#result h2").innerText();
  if (o.key) { // a link brings the key along, and the address does not show it
    await context.clearCookies();
    const linked = await context.newPage();
    await linked.goto(`${there}#key=${encodeURIComponent(o.key)}`, { waitUntil: "load" });
    await linked.waitForFunction(() => document.documentElement.dataset.state === "shown", undefined, { timeout: 20_000 });
    found.linked = linked.url() === there;
  }
  console.log(JSON.stringify(found));
} finally {
  await close();
}

/** Controls too small for a finger (WCAG 2.2, 2.5.8: 24 px). Runs in the page. */
function smallTargets() {
  return [...document.querySelectorAll("button, input, select, summary")]
    .filter((e) => e.checkVisibility())
    .map((e) => [e, e.getBoundingClientRect()])
    .filter(([, r]) => r.width < 20 || r.height < 20 || (r.width < 24 && r.height < 24))
    .map(([e, r]) => `${e.id || e.tagName}: ${r.width} × ${r.height}`);
}
