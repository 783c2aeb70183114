// What the scripts that drive a page have in common: a headless Chromium like a
// visitor's on that device, and checks for every page.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

/** Starts a browser with a profile of its own; close removes both. */
export async function launch(o) {
  const profile = mkdtempSync(join(tmpdir(), "unbloat-chromium-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
    viewport: { width: o.width, height: o.height },
    deviceScaleFactor: o.width < 600 ? 2 : 1,
    isMobile: o.width < 600,
    hasTouch: o.width < 600,
    locale: o.language ?? "en-US",
    colorScheme: o.scheme,
    reducedMotion: o.motion,
    ignoreHTTPSErrors: true, // the test's certificate is its own
  });
  const close = async () => {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  };
  return { context, close };
}

/** Reaches a control as a keyboard does. */
export async function tabTo(page, id) {
  await page.evaluate(() => document.activeElement?.blur());
  for (let i = 0; i < 40; i++) {
    await page.keyboard.press("Tab");
    if ((await page.evaluate(() => document.activeElement?.id)) === id) return;
  }
  throw new Error(`#${id} cannot be reached by the keyboard`);
}

/** Texts whose contrast is under WCAG's 4.5 (3 for large ones). Runs in the page. */
export function faintTexts() {
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
export function unnamedControls() {
  return [...document.querySelectorAll("button, input, select, a[href], summary")]
    .filter((e) => !(e.innerText || e.getAttribute("aria-label") || [...(e.labels ?? [])].map((l) => l.innerText).join("")).trim() && e.checkVisibility())
    .map((e) => e.outerHTML.slice(0, 80));
}
