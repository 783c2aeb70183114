// Drives the page in a headless Chromium as a visitor would, by keyboard, and
// prints what it found as JSON. internal/serve's TestBrowserAlone calls it:
//   node browser.mjs URL '{"width":…,"height":…,"scheme":"light","both":false,"shots":"DIR"|"","hide":false,"stop":false,"blocked":false}'
import { join } from "node:path";
import { faintTexts, launch, tabTo, unnamedControls } from "./visitor.mjs";

const [url, text] = process.argv.slice(2);
const o = { width: 1280, height: 900, scheme: "light", motion: "no-preference", both: false, shots: "", hide: false, stop: false, blocked: false, ...JSON.parse(text ?? "{}") };
const { context, close } = await launch(o);
const found = { stopped: "", errors: [], spills: [], faint: [], unnamed: [], said: [], certain: [] };
try {
  const page = context.pages()[0] ?? (await context.newPage());
  // The browser itself logs failed attempts at datagrams.
  page.on("console", (m) => m.type() === "error" && !(o.blocked && m.text().includes("/api/datagrams")) && found.errors.push(m.text()));
  page.on("pageerror", (e) => found.errors.push(String(e)));
  const look = async (name) => {
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) found.spills.push(`${name}: ${wide} px`);
    found.faint.push(...(await page.evaluate(faintTexts)).map((t) => `${name}: ${t}`));
    if (o.shots) await page.screenshot({ path: join(o.shots, `${o.width}-${o.scheme}-${name}.png`), fullPage: true });
  };
  await page.goto(url, { waitUntil: "load" });
  found.isolated = await page.evaluate(() => crossOriginIsolated);
  found.unnamed = await page.evaluate(unnamedControls);
  await look("ready");
  await page.exposeFunction("heard", (t) => found.said.push(t));
  await page.evaluate(() => {
    const say = document.getElementById("say");
    new MutationObserver(() => void globalThis.heard(say.textContent)).observe(say, { childList: true });
  });
  if (o.both) {
    await page.locator("#options summary").focus();
    await page.keyboard.press("Enter");
    await page.locator("#both").focus();
    await page.keyboard.press("Space");
  }
  await tabTo(page, "go");
  if (o.stop) {
    await page.keyboard.press("Enter");
    await page.waitForSelector('.steps li[data-phase="download"][aria-current]', { timeout: 20_000 });
    await page.keyboard.press("Enter");
    await page.waitForSelector("#problem:not([hidden])", { timeout: 5000 });
    found.stopped = await page.locator("#problem").innerText();
    await look("stopped");
    await page.waitForTimeout(1500); // its loads' last bytes
  }
  await page.keyboard.press("Enter");
  await page.waitForSelector('.steps li[data-phase="upload"][aria-current]', { timeout: 40_000 });
  await page.waitForTimeout(3000);
  if (o.hide) {
    // Chromium does not hide a headless tab, so the page is made to believe
    // that it was hidden.
    await page.evaluate(() => {
      const set = (v) => Object.defineProperty(document, "visibilityState", { value: v, configurable: true });
      set("hidden");
      document.dispatchEvent(new Event("visibilitychange"));
      setTimeout(() => {
        set("visible");
        document.dispatchEvent(new Event("visibilitychange"));
      }, 1500);
    });
  }
  if (o.shots) await look("running");
  await page.waitForSelector("#result:not([hidden])", { timeout: 90_000 });
  await page.waitForTimeout(200);
  await look(o.hide ? "invalid" : "done");
  found.language = await page.evaluate(() => document.documentElement.lang);
  found.grade = await page.locator(".grade").innerText();
  found.sentence = await page.locator("#result-title").innerText();
  found.whatNow = (await page.locator("#result .hint").allInnerTexts()).join();
  found.focus = await page.evaluate(() => document.activeElement?.id);
  await page.locator("#stored").focus();
  await page.keyboard.press("Enter");
  await page.waitForURL("**/r/*");
  await page.waitForSelector("#result:not([hidden])");
  found.path = new URL(page.url()).pathname;
  found.storedSentence = await page.locator("#result-title").innerText();
  await look(o.hide ? "stored-invalid" : "stored");
  // The same result, as if it were not valid: with a grade that is certain, and without.
  for (const certain of ["F for certain.", ""]) {
    await page.route("**/shown", async (route) => {
      const response = await route.fetch();
      const kept = await response.json();
      kept.test.valid = false;
      Object.assign(kept.words, { certain, reasons: ["probes left late"] });
      await route.fulfill({ response, json: kept });
    });
    await page.reload();
    await page.waitForSelector("#result:not([hidden])");
    found.certain.push((await page.locator("#result-title, #result .hint h3").allInnerTexts()).join(" | "));
    await page.unroute("**/shown");
  }
  found.test = await page.evaluate(async () => (await fetch(`/api/results/${location.pathname.split("/").pop()}`)).json());
  console.log(JSON.stringify(found));
} finally {
  await close();
}
