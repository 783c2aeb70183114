// Drives the page in a headless Chromium as a visitor would, by keyboard, and
// prints what it found as JSON. internal/page's TestBrowser calls it:
//   node browser.mjs URL '{"width":…,"height":…,"scheme":"light","both":false,"shots":"DIR"|"","hide":false,"stop":false,"datagrams":false}'
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [url, text] = process.argv.slice(2);
const o = { width: 1280, height: 900, scheme: "light", motion: "no-preference", both: false, shots: "", hide: false, stop: false, datagrams: false, ...JSON.parse(text ?? "{}") };
const profile = mkdtempSync(join(tmpdir(), "unbloat-chromium-"));
const context = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", ...(o.datagrams ? [] : ["--disable-quic"]), "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  viewport: { width: o.width, height: o.height },
  deviceScaleFactor: o.width < 600 ? 2 : 1,
  isMobile: o.width < 600,
  hasTouch: o.width < 600,
  colorScheme: o.scheme,
  reducedMotion: o.motion,
  ignoreHTTPSErrors: true, // the test's certificate is its own
});
const found = { stopped: "", errors: [], spills: [], faint: [], unnamed: [], said: [] };
try {
  const page = context.pages()[0] ?? (await context.newPage());
  page.on("console", (m) => m.type() === "error" && found.errors.push(m.text()));
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
    // Chromium does not hide a headless tab, so the page is told that it was.
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
  found.agrees = (await page.evaluate(() => document.documentElement.dataset.agrees)) === "true";
  found.grade = await page.locator(".grade").innerText();
  found.sentence = await page.locator("#result-title").innerText();
  found.focus = await page.evaluate(() => document.activeElement?.id);
  await page.locator("#stored").focus();
  await page.keyboard.press("Enter");
  await page.waitForURL("**/r/*");
  await page.waitForSelector("#result:not([hidden])");
  found.path = new URL(page.url()).pathname;
  found.storedSentence = await page.locator("#result-title").innerText();
  await look(o.hide ? "stored-invalid" : "stored");
  found.test = await page.evaluate(async () => (await fetch(`/api/results/${location.pathname.split("/").pop()}`)).json());
  console.log(JSON.stringify(found));
} finally {
  await context.close();
  rmSync(profile, { recursive: true, force: true });
}

/** Reaches a control as a keyboard does. */
async function tabTo(page, id) {
  await page.evaluate(() => document.activeElement?.blur());
  for (let i = 0; i < 20; i++) {
    await page.keyboard.press("Tab");
    if ((await page.evaluate(() => document.activeElement?.id)) === id) return;
  }
  throw new Error(`#${id} cannot be reached by the keyboard`);
}

/** Texts whose contrast is under WCAG's 4.5 (3 for large ones). Runs in the page. */
function faintTexts() {
  const channel = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = (s) => s.match(/[\d.]+/g).map(Number);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const out = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walker.nextNode(); n; n = walker.nextNode()) {
    const e = n.parentElement;
    if (!n.textContent.trim() || !e.checkVisibility() || e.closest(".visually-hidden, noscript")) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(parse(style.color)), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const large = parseFloat(style.fontSize) >= 24;
    if (ratio < (large ? 3 : 4.5)) out.push(`${ratio.toFixed(2)} ${n.textContent.trim().slice(0, 30)}`);
  }
  return out;
}

/** Controls without a name. Runs in the page. */
function unnamedControls() {
  return [...document.querySelectorAll("button, input, a[href], summary")]
    .filter((e) => !(e.innerText || e.getAttribute("aria-label") || [...(e.labels ?? [])].map((l) => l.innerText).join("")).trim() && e.checkVisibility())
    .map((e) => e.outerHTML.slice(0, 80));
}
